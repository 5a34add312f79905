//! Replaces escapes such as `\n` in texts given as arguments, if the flag `--escape` is given. llama.cpp has the same flag.

use super::output::say;
use std::sync::Once;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::short;

#[derive(clap::Args)]
pub struct EscapeArgs {
    /// In texts on the command line (not in files), replace escapes by characters: \n, \t, \r, \\, \", \xNN and \uNNNN
    #[arg(short, long, help_heading = "Input")]
    escape: bool,
}

impl EscapeArgs {
    /// Returns the text of an argument. With `--escape`, escapes are replaced. Without this flag, the text is unchanged, and the
    /// first text with a backslash before an `n` causes a note about `--escape` on stderr.
    ///
    /// # Errors
    /// `Usage` if an escape is unknown or incomplete, or if the resulting bytes are not UTF-8. The error names `flag`.
    pub fn text(&self, text: &str, flag: &str) -> Result<String> {
        if self.escape {
            return unescaped(text).map_err(|e| e.at(flag));
        }
        if text.contains("\\n") {
            static HINT: Once = Once::new();
            HINT.call_once(|| say(format_args!("note: {flag} contains a backslash and an n; --escape turns \\n into a newline")));
        }
        Ok(text.to_owned())
    }

    /// Returns the texts of several arguments. Each text is the result of [`text`](Self::text).
    ///
    /// # Errors
    /// The errors of [`text`](Self::text).
    pub fn texts(&self, texts: &[String], flag: &str) -> Result<Vec<String>> {
        texts.iter().map(|text| self.text(text, flag)).collect()
    }
}

/// Returns the text with its escapes replaced. `\xNN` is a byte, so several of these escapes may form one character.
fn unescaped(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let mut after = rest[at + 1..].chars();
        let kind = after.next().ok_or_else(|| Error::usage("the text ends with a single backslash").hint("write \\\\ for a backslash"))?;
        rest = after.as_str();
        match kind {
            'n' => bytes.push(b'\n'),
            't' => bytes.push(b'\t'),
            'r' => bytes.push(b'\r'),
            '\\' | '"' | '\'' => bytes.push(kind as u8),
            'x' => bytes.push(hex(&mut rest, 2)? as u8),
            'u' => {
                let c = character(&mut rest)?;
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            _ => {
                return Err(Error::usage(format!("unknown escape \\{kind}"))
                    .hint("escapes are \\n, \\t, \\r, \\\", \\xNN and \\uNNNN; write \\\\ for a backslash"));
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::usage(format!("the text with its escapes replaced is not UTF-8: invalid byte {:#04x} at byte {at}", e.as_bytes()[at]))
    })
}

/// Removes `n` hexadecimal digits from the front of `rest` and returns their value.
fn hex(rest: &mut &str, n: usize) -> Result<u32> {
    let digits = rest.get(..n).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
    let digits = digits.ok_or_else(|| {
        Error::usage(format!("expected {n} hexadecimal digits after \\{}, found {:?}", if n == 2 { 'x' } else { 'u' }, short(rest, n)))
    })?;
    *rest = &rest[n..];
    Ok(u32::from_str_radix(digits, 16).expect("hexadecimal digits were checked"))
}

/// Returns the character of an escape `\uNNNN`. `rest` begins with the four digits. Two such escapes in a row can be a surrogate pair, as
/// in JSON.
fn character(rest: &mut &str) -> Result<char> {
    let mut units = vec![hex(rest, 4)? as u16];
    if let (0xd800..=0xdbff, Some(mut low)) = (units[0], rest.strip_prefix("\\u")) {
        units.push(hex(&mut low, 4)? as u16);
        *rest = low;
    }
    let decoded = String::from_utf16(&units).ok().filter(|c| c.chars().count() == 1);
    decoded.and_then(|c| c.chars().next()).ok_or_else(|| {
        Error::usage(format!("\\u{:04x} is half of a character: the other \\uNNNN of its surrogate pair must follow", units[0]))
    })
}

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn escapes_become_characters() {
        for (text, want) in [
            (r"a\nb\tc\rd\\e", "a\nb\tc\rd\\e"),
            (r#"\"\'"#, "\"'"),
            (r"\xc3\xa9\x41", "éA"),
            (r"\u00e9\ud83d\ude00é", "é😀é"),
            (r"\\n", "\\n"),
            ("", ""),
        ] {
            assert_eq!(unescaped(text).unwrap(), want, "{text}");
        }
    }

    #[test]
    fn what_is_no_escape_is_refused() {
        for (text, want) in [
            (r"a\", "ends with a single backslash"),
            (r"\d", r"unknown escape \d"),
            (r"\x4", "2 hexadecimal digits"),
            (r"\x4é", "2 hexadecimal digits"),
            (r"\u12g4", "4 hexadecimal digits"),
            (r"\ud83d", "is half of a character"),
            (r"\ud83d\u0041", "is half of a character"),
            (r"\xff", "0xff at byte 0"),
        ] {
            let e = unescaped(text).unwrap_err().to_string();
            assert!(e.contains(want), "{text}: {e}");
        }
    }
}
