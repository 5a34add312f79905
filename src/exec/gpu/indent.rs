//! Indents WGSL by its brackets.

/// Indents every line by its brackets, four spaces per depth. Brackets that one line opens count once, as in `unroll i in 8 { {`. A line that
/// continues a statement is indented by four more spaces. Only the spaces at the beginning and at the end of lines change.
pub fn indented(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    // The number of the line that opened each bracket which is still open.
    let mut open: Vec<usize> = Vec::new();
    let mut continues = false;
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        let code = line.split("//").next().unwrap_or_default().trim_end();
        let rest = code.trim_start_matches(['}', ')', ']', ' ']);
        let closed = code[..code.len() - rest.len()].matches(['}', ')', ']']).count();
        open.truncate(open.len().saturating_sub(closed));
        let depth = open.chunk_by(|a, b| a == b).count();
        let is_continued = continues && closed == 0 && !code.is_empty();
        if !line.is_empty() {
            result.push_str(&"    ".repeat(depth + usize::from(is_continued)));
            result.push_str(line);
        }
        result.push('\n');
        for c in rest.chars() {
            match c {
                '{' | '(' | '[' => open.push(n),
                '}' | ')' | ']' => _ = open.pop(),
                _ => {}
            }
        }
        if !code.is_empty() {
            let is_whole = code.ends_with([';', ',', '{', '}', '(', '[']) || code.starts_with('@');
            continues = !is_whole;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_indented_by_their_brackets() {
        let expected = "\
// f(x) = {
@compute @workgroup_size(64)
fn main(
    x: u32, // (
) {
    unroll i in 8 { {
        let a = x
        // A comment is not a part of the statement.
            + 1u;
        if a == f(
            2u,
        ) {
            return;
        } else {
            a();
        }
    } }

    unroll j in 2 { b($j); }
}
";
        let flat: String = expected.lines().flat_map(|line| [line.trim_start(), "\n"]).collect();
        assert_eq!((indented(&flat).as_str(), indented(expected).as_str()), (expected, expected));
    }
}
