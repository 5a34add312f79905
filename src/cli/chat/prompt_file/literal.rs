//! Python's string literals, as prompt files have them: every kind of quotes, raw ones, and f-strings over names.
//!
//! Reads, evaluates nothing: only a name may be in braces.

use crate::vocab::unescape_text;

/// The most bytes of one text: a text can grow by doubling itself.
pub const MAX_TEXT: usize = 8 << 20;

/// A literal that was cut out of its file.
#[derive(Debug, Clone, Copy)]
pub struct Literal<'a> {
    /// Backslashes are backslashes: prefix `r`.
    pub is_raw: bool,
    /// Braces hold names: prefix `f`.
    pub is_format: bool,
    /// Between the quotes.
    pub inner: &'a str,
}

/// What a literal's text is, with the values of names. The error says what is wrong and at which byte of the inner text.
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
                let inner = inner.ok_or_else(|| ("a { that is never closed; {{ stands for a brace".to_string(), at))?;
                let name = inner.trim();
                if !is_name(name) {
                    return Err((format!("the expression {{{}}}, which would have to be run", crate::error::short(inner, 40)), at));
                }
                let value = values(name).ok_or_else(|| (format!("{{{name}}}, a name without a value"), at))?;
                if out.len() + value.len() > MAX_TEXT {
                    return Err((format!("one of more than {MAX_TEXT} bytes"), at));
                }
                out.push_str(value);
                inner.len() + 2
            }
            '}' if literal.is_format => return Err(("a single }; }} stands for a brace".into(), at)),
            c => {
                out.push(c);
                c.len_utf8()
            }
        };
    }
    Ok(out)
}

pub fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_') && chars.all(|c| c.is_alphanumeric() || c == '_')
}
