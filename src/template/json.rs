//! JSON in the form of Python's `json.dumps`, as in training data: `": "` after a key, and one element per line if there is an indent. HTML
//! characters such as `<` are not escaped. Characters outside ASCII are escaped only on request.

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};
use std::io::{self, Write};

/// The arguments of `json.dumps` that templates pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonStyle {
    /// The number of blanks per level. `None` writes one line.
    pub indent: Option<usize>,
    /// If true, characters outside ASCII are written as `\uXXXX`.
    pub ensure_ascii: bool,
    pub sort_keys: bool,
    /// The text between elements. `None` means `, ` without an indent and `,` with an indent.
    pub item_separator: Option<String>,
    pub key_separator: String,
}

impl Default for JsonStyle {
    fn default() -> Self {
        JsonStyle { indent: None, ensure_ascii: false, sort_keys: false, item_separator: None, key_separator: ": ".into() }
    }
}

impl JsonStyle {
    /// Returns the style in which prompts describe tools.
    pub fn tools() -> JsonStyle {
        JsonStyle { indent: Some(4), ..JsonStyle::default() }
    }
}

/// Returns a value as JSON text in the given style.
pub fn dumps(value: &Value, style: &JsonStyle) -> String {
    let sorted;
    let value = if style.sort_keys {
        let mut copy = value.clone();
        copy.sort_all_objects();
        sorted = copy;
        &sorted
    } else {
        value
    };
    let mut text = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut text, Python { style, depth: 0, has_items: false });
    value.serialize(&mut serializer).expect("a value is JSON, and a vector takes all of it");
    String::from_utf8(text).expect("JSON is text")
}

/// Writes separators, blanks and numbers as Python does.
struct Python<'a> {
    style: &'a JsonStyle,
    depth: usize,
    /// True if the current list or mapping has elements.
    has_items: bool,
}

impl Python<'_> {
    fn open<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        (self.depth, self.has_items) = (self.depth + 1, false);
        out.write_all(bracket)
    }

    fn close<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if std::mem::replace(&mut self.has_items, true) {
            self.line(out)?;
        }
        out.write_all(bracket)
    }

    fn item<W: ?Sized + Write>(&mut self, out: &mut W, is_first: bool) -> io::Result<()> {
        let separator = self.style.item_separator.as_deref().unwrap_or(if self.style.indent.is_some() { "," } else { ", " });
        out.write_all(if is_first { b"" } else { separator.as_bytes() })?;
        self.line(out)
    }

    fn line<W: ?Sized + Write>(&self, out: &mut W) -> io::Result<()> {
        let Some(indent) = self.style.indent else { return Ok(()) };
        out.write_all(b"\n")?;
        (0..indent * self.depth).try_for_each(|_| out.write_all(b" "))
    }
}

impl Formatter for Python<'_> {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }
    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, is_first: bool) -> io::Result<()> {
        self.item(out, is_first)
    }
    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_items = true;
        Ok(())
    }
    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }
    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }
    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, is_first: bool) -> io::Result<()> {
        self.item(out, is_first)
    }
    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(self.style.key_separator.as_bytes())
    }
    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_items = true;
        Ok(())
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        if !self.style.ensure_ascii {
            return out.write_all(fragment.as_bytes());
        }
        for c in fragment.chars() {
            match c.is_ascii() {
                true => out.write_all(&[c as u8])?,
                false => c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))?,
            }
        }
        Ok(())
    }

    /// Writes a number like Python's `repr`: the fewest digits, and `1e-05` or `1e+16` if the exponent is below -4 or above 15.
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, x: f64) -> io::Result<()> {
        let short = format!("{x:e}");
        let (digits, exponent) = short.split_once('e').expect("the format has an exponent");
        let exponent: i32 = exponent.parse().expect("the format's exponent is a number");
        match exponent {
            -4..=15 => write!(out, "{x:?}"),
            _ => write!(out, "{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Compares the text with Python's output.
    #[test]
    fn text_is_pythons() {
        let value: Value = serde_json::from_str(
            r#"{"z": "查 <b>&'\"\\/\u0001\n\t\u007f", "a": [1, -2, 1.0, 0.5, [], {}], "m": {"k": null, "j": [true, false]}}"#,
        )
        .unwrap();
        let indented = "{\n    \"z\": \"查 <b>&'\\\"\\\\/\\u0001\\n\\t\u{7f}\",\n    \"a\": [\n        1,\n        -2,\n        1.0,\n        \
                        0.5,\n        [],\n        {}\n    ],\n    \"m\": {\n        \"k\": null,\n        \"j\": [\n            true,\n            \
                        false\n        ]\n    }\n}";
        assert_eq!(dumps(&value, &JsonStyle::tools()), indented);
        assert_eq!(dumps(&value["m"], &JsonStyle::default()), r#"{"k": null, "j": [true, false]}"#);
        let sorted = JsonStyle { sort_keys: true, item_separator: Some(",".into()), key_separator: ":".into(), ..JsonStyle::default() };
        assert_eq!(dumps(&value["m"], &sorted), r#"{"j":[true,false],"k":null}"#);
        let ascii = JsonStyle { ensure_ascii: true, ..JsonStyle::default() };
        assert_eq!(dumps(&json!("é😀\u{7f}"), &ascii), "\"\\u00e9\\ud83d\\ude00\u{7f}\"");
    }

    #[test]
    fn numbers_are_pythons() {
        let cases = [
            ("1e10", "10000000000.0"),
            ("1e15", "1000000000000000.0"),
            ("1e16", "1e+16"),
            ("1.5e300", "1.5e+300"),
            ("0.0001", "0.0001"),
            ("1e-5", "1e-05"),
            ("1.5625e-7", "1.5625e-07"),
            ("1e-100", "1e-100"),
            ("0.0", "0.0"),
            ("-0.0", "-0.0"),
            ("0.1", "0.1"),
            ("18446744073709551615", "18446744073709551615"),
            ("-9223372036854775808", "-9223372036854775808"),
        ];
        for (json, want) in cases {
            assert_eq!(dumps(&serde_json::from_str(json).unwrap(), &JsonStyle::default()), want);
        }
    }
}
