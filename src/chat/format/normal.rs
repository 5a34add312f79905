//! Brings texts into the form that formats of lines need. In training data, blank lines separate turns, so a message must not contain one.

/// Returns the text before the first turn in ChatRWKV's form: a newline, the text with each line trimmed, and a blank line. Returns an empty text if
/// `text` is blank.
pub fn first_prompt(text: &str) -> String {
    let lines: Vec<&str> = text.trim_matches(is_blank).split('\n').map(|line| line.trim_matches(is_blank)).collect();
    match lines.join("\n").trim_matches(is_blank) {
        "" => String::new(),
        text => format!("\n{text}\n\n"),
    }
}

/// Returns a message trimmed and without empty lines. An empty line would end the turn.
pub fn folded(text: &str) -> String {
    let mut folded = String::new();
    for c in text.trim_matches(is_blank).replace("\r\n", "\n").chars() {
        if c != '\n' || !folded.ends_with('\n') {
            folded.push(c);
        }
    }
    folded
}

/// Returns `true` for the characters that Python's `strip` removes: Unicode's blanks and the separators U+001C to U+001F.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_prompt_is_between_a_newline_and_a_blank_line() {
        let cases = [
            ("\nA: hi\n\nB: ho\n", "\nA: hi\n\nB: ho\n\n"),
            ("A", "\nA\n\n"),
            ("  A  \r\n\u{3000}B\u{3000} \n\n\n C\t", "\nA\nB\n\n\nC\n\n"),
            ("\u{1c}A\u{1f}\n \u{3000}\n", "\nA\n\n"),
            ("", ""),
            (" \n\u{3000}\n", ""),
        ];
        for (text, want) in cases {
            assert_eq!(first_prompt(text), want, "{text:?}");
            assert_eq!(first_prompt(want), want, "it is normal already");
        }
    }

    #[test]
    fn a_turn_has_no_blank_line() {
        let cases = [("a\n\nb", "a\nb"), (" a\r\n\r\n\r\nb \n", "a\nb"), ("a\n \nb", "a\n \nb"), ("a\rb", "a\rb"), ("\n\n", "")];
        for (text, want) in cases {
            assert_eq!(folded(text), want, "{text:?}");
        }
    }
}
