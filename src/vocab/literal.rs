//! Reads Python's string and bytes literals, in which vocabulary files write their tokens. Prompt files and tool calls use the same escapes.
//!
//! `'é'` and `"it's"` are text and become UTF-8; `b'\xe2\x80'` is raw bytes. An escape that Python does not know (`\d`) is an error in a vocabulary,
//! because only damage can produce it. Ids and lines are left to the callers, because only vocabulary files have them.

/// Appends the bytes of the literal `source` to `out`. The error is the end of a sentence that begins with "the token with id N".
pub(super) fn append(source: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let (is_bytes, quoted) = match source.strip_prefix('b') {
        Some(rest) => (true, rest),
        None => (false, source),
    };
    let inner = ['\'', '"'].iter().find_map(|&q| Some((q, quoted.strip_prefix(q)?.strip_suffix(q)?)));
    let Some((quote, mut rest)) = inner else {
        return Err("must be written as '…', \"…\" or b'…'".into());
    };
    loop {
        let end = rest.find(['\\', quote]).unwrap_or(rest.len());
        let (plain, tail) = rest.split_at(end);
        if is_bytes && !plain.is_ascii() {
            return Err("is a bytes literal with a character outside ASCII".into());
        }
        out.extend_from_slice(plain.as_bytes());
        let Some(escape) = tail.strip_prefix('\\') else {
            return if tail.is_empty() { Ok(()) } else { Err(format!("has an unescaped {quote} inside")) };
        };
        let (value, after) = unescape(escape, is_bytes).ok_or_else(|| bad_escape(escape))?;
        match value {
            EscapeValue::Byte(byte) => out.push(byte),
            EscapeValue::Char(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        rest = after;
    }
}

/// Appends the character of an escape in a text. `escape` is the text after the backslash. Returns the length of the escape after its backslash, in
/// bytes.
///
/// As in Python, a backslash before a newline is removed with the newline, and an unknown escape stays with its backslash. The error
/// describes what was found.
pub fn unescape_text(escape: &str, out: &mut String) -> Result<usize, String> {
    match (unescape(escape, false), escape.chars().next()) {
        (_, None) => Err("a backslash at the end of the text".into()),
        (Some((EscapeValue::Char(c), rest)), _) => {
            out.push(c);
            Ok(escape.len() - rest.len())
        }
        (_, Some('\n')) => Ok(1),
        (_, Some('N')) => Err("the escape \\N{…}, which is not supported".into()),
        (_, Some('x')) => Err(no_character(escape, 3)),
        (_, Some('u')) => Err(no_character(escape, 5)),
        (_, Some('U')) => Err(no_character(escape, 9)),
        _ => {
            out.push('\\');
            Ok(0)
        }
    }
}

fn no_character(escape: &str, n: usize) -> String {
    format!("\\{}, which is not a character", escape.chars().take(n).collect::<String>())
}

enum EscapeValue {
    Byte(u8),
    Char(char),
}

/// Reads the text after a backslash. Returns the value of the escape and the text after the escape. Returns `None` if this kind of literal has no
/// such escape, or if the value is out of range.
fn unescape(escape: &str, is_bytes: bool) -> Option<(EscapeValue, &str)> {
    let first = escape.chars().next()?;
    let rest = &escape[first.len_utf8()..];
    let (code, rest) = match first {
        '\\' | '\'' | '"' => (first as u32, rest),
        'n' => (0x0a, rest),
        'r' => (0x0d, rest),
        't' => (0x09, rest),
        'a' => (0x07, rest),
        'b' => (0x08, rest),
        'f' => (0x0c, rest),
        'v' => (0x0b, rest),
        'x' => digits(rest, 2, 16)?,
        'u' if !is_bytes => digits(rest, 4, 16)?,
        'U' if !is_bytes => digits(rest, 8, 16)?,
        '0'..='7' => {
            // one to three octal digits
            let n = escape.bytes().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
            digits(escape, n, 8)?
        }
        _ => return None,
    };
    let value = if is_bytes { EscapeValue::Byte(u8::try_from(code).ok()?) } else { EscapeValue::Char(char::from_u32(code)?) };
    Some((value, rest))
}

/// Reads exactly `n` digits. Returns the value of the digits and the text after the digits. Returns `None` if fewer than `n` digits follow.
fn digits(s: &str, n: usize, radix: u32) -> Option<(u32, &str)> {
    let head = s.get(..n)?;
    let all_digits = head.chars().all(|c| c.is_digit(radix)); // from_str_radix also accepts a sign
    let code = u32::from_str_radix(head, radix).ok().filter(|_| all_digits)?;
    Some((code, &s[n..]))
}

fn bad_escape(escape: &str) -> String {
    format!("has the unknown escape \\{}", escape.chars().take(9).collect::<String>())
}
