//! Evaluates Python's string literals in prompt files: all kinds of quotes, raw strings, and f-strings with names.
//!
//! No code is evaluated: the braces of an f-string can contain only names.

use wingbeat::low_level::front_end::unescape_text;

/// The maximum length of one text in bytes. Without a limit, each line `x = x + x` would double a text.
pub const MAX_TEXT: usize = 8 << 20;

/// A Python string literal.
#[derive(Debug, Clone, Copy)]
pub struct Literal<'a> {
    /// True with the prefix `r`: a backslash is an ordinary character.
    pub is_raw: bool,
    /// True with the prefix `f`: each name in braces is replaced by its value.
    pub is_format: bool,
    /// The text between the quotes.
    pub inner: &'a str,
}

/// Returns the text that a literal means. `values` returns the value of a name in braces. The error is a message and the byte offset of the
/// fault in `literal.inner`.
pub fn value<'v>(literal: &Literal<'_>, values: &dyn Fn(&str) -> Option<&'v str>) -> Result<String, (String, usize)> {
    let mut out = String::new();
    let text = literal.inner;
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at + c.len_utf8()..];
        at += match c {
            '\\' if !literal.is_raw => 1 + unescape_text(rest, &mut out).map_err(|e| (e, at))?,
            '{' | '}' if literal.is_format && rest.starts_with(c) => {
                out.push(c);
                2
            }
            '{' if literal.is_format => {
                let inner = rest.split('}').next().filter(|inner| inner.len() < rest.len());
                let inner = inner.ok_or_else(|| ("a { without a }; write {{ for a brace".to_string(), at))?;
                let name = inner.trim();
                if !is_name(name) {
                    return Err((
                        format!("the expression {{{}}}; only names are allowed", wingbeat::low_level::front_end::short(inner, 40)),
                        at,
                    ));
                }
                let value = values(name).ok_or_else(|| (format!("{{{name}}}, a name without a value"), at))?;
                if out.len() + value.len() > MAX_TEXT {
                    return Err((format!("a text of more than {MAX_TEXT} bytes"), at));
                }
                out.push_str(value);
                inner.len() + 2
            }
            '}' if literal.is_format => return Err(("a single }; write }} for a brace".into(), at)),
            c => {
                out.push(c);
                c.len_utf8()
            }
        };
    }
    Ok(out)
}

/// Returns `true` if a text is a Python name.
pub fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_') && chars.all(|c| c.is_alphanumeric() || c == '_')
}
