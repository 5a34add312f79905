//! Python's string literals, as prompt files have them: every kind of quotes, raw ones, and f-strings over names.
//!
//! Reads, evaluates nothing: what stands in braces must be a name and nothing else.

use super::python::MAX_TEXT;

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
            '\\' if !literal.is_raw => 1 + unescape(rest, &mut out).map_err(|e| (e, at))?,
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

/// Reads what follows a backslash; how many bytes of it. What Python does not know stays as it stands, backslash and all.
fn unescape(text: &str, out: &mut String) -> Result<usize, String> {
    let first = text.chars().next().ok_or("a backslash at the very end")?;
    let plain = match first {
        '\n' => "",
        '\\' => "\\",
        '\'' => "'",
        '"' => "\"",
        'a' => "\u{7}",
        'b' => "\u{8}",
        'f' => "\u{c}",
        'n' => "\n",
        'r' => "\r",
        't' => "\t",
        'v' => "\u{b}",
        'N' => return Err("a character by its name, \\N{…}, which is not supported".into()),
        'x' => return numbered(text, 2, out),
        'u' => return numbered(text, 4, out),
        'U' => return numbered(text, 8, out),
        '0'..='7' => {
            let n = text.bytes().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
            let code = u32::from_str_radix(&text[..n], 8).expect("up to three octal digits are a number");
            out.push(char::from_u32(code).expect("up to 511 every number is a character"));
            return Ok(n);
        }
        _ => {
            out.push('\\');
            return Ok(0);
        }
    };
    out.push_str(plain);
    Ok(1)
}

/// A character by its number, in so many hexadecimal digits behind one letter.
fn numbered(text: &str, n: usize, out: &mut String) -> Result<usize, String> {
    let digits = text.get(1..=n).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let c = digits.and_then(|digits| char::from_u32(u32::from_str_radix(digits, 16).ok()?));
    out.push(c.ok_or_else(|| format!("\\{}, which is no character", crate::error::short(text, n + 1)))?);
    Ok(1 + n)
}
