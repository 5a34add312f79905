//! JSON as Python's `json.dumps` writes it, which is what the models have read: `": "` after a key, an element a line where there
//! is an indent, characters outside ASCII as they are, nothing escaped for HTML.

use serde_json::{Number, Value};
use std::fmt::Write;

/// The arguments of `json.dumps` that templates give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Style {
    /// Blanks a level; none: everything on one line.
    pub indent: Option<usize>,
    /// Characters outside ASCII as `\uXXXX`.
    pub ensure_ascii: bool,
    pub sort_keys: bool,
    /// Between elements; none: `, ` on one line, `,` else.
    pub item_separator: Option<String>,
    pub key_separator: String,
}

impl Default for Style {
    fn default() -> Self {
        Style { indent: None, ensure_ascii: false, sort_keys: false, item_separator: None, key_separator: ": ".into() }
    }
}

impl Style {
    /// How tools are shown to a model.
    pub fn tools() -> Style {
        Style { indent: Some(4), ..Style::default() }
    }
}

/// A value as text.
pub fn dumps(value: &Value, style: &Style) -> String {
    let mut text = String::new();
    write(&mut text, value, style, 0);
    text
}

fn write(text: &mut String, value: &Value, style: &Style, depth: usize) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(yes) => text.push_str(if *yes { "true" } else { "false" }),
        Value::Number(number) => text.push_str(&written(number)),
        Value::String(s) => write_string(text, s, style),
        Value::Array(items) => {
            let each = items.iter().map(|item| (None, item));
            write_all(text, ['[', ']'], each, style, depth);
        }
        Value::Object(map) => {
            let mut entries: Vec<(Option<&str>, &Value)> = map.iter().map(|(key, value)| (Some(key.as_str()), value)).collect();
            if style.sort_keys {
                entries.sort_by_key(|(key, _)| *key);
            }
            write_all(text, ['{', '}'], entries.into_iter(), style, depth);
        }
    }
}

fn write_all<'a>(
    text: &mut String,
    [open, close]: [char; 2],
    items: impl Iterator<Item = (Option<&'a str>, &'a Value)>,
    style: &Style,
    depth: usize,
) {
    let line = |text: &mut String, depth: usize| {
        if let Some(indent) = style.indent {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', indent * depth));
        }
    };
    let separator = style.item_separator.as_deref().unwrap_or(if style.indent.is_some() { "," } else { ", " });
    text.push(open);
    let mut is_empty = true;
    for (key, value) in items {
        if !is_empty {
            text.push_str(separator);
        }
        is_empty = false;
        line(text, depth + 1);
        if let Some(key) = key {
            write_string(text, key, style);
            text.push_str(&style.key_separator);
        }
        write(text, value, style, depth + 1);
    }
    if !is_empty {
        line(text, depth);
    }
    text.push(close);
}

fn write_string(text: &mut String, s: &str, style: &Style) {
    text.push('"');
    for c in s.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            c if c < ' ' || style.ensure_ascii && !c.is_ascii() => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

/// A number as Python's `repr` writes it: an integer as it is; a float with its fewest digits, as `1e-05` or `1e+16` where its
/// exponent is below -4 or above 15.
fn written(number: &Number) -> String {
    let Some(x) = number.as_f64().filter(|_| number.is_f64()) else { return number.to_string() };
    let short = format!("{x:e}");
    let (digits, exponent) = short.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the format's exponent is a number");
    match exponent {
        -4..=15 => format!("{x:?}"),
        _ => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What Python prints for the same.
    #[test]
    fn text_is_pythons() {
        let value: Value = serde_json::from_str(
            r#"{"z": "查 <b>&'\"\\/\u0001\n\t\u007f", "a": [1, -2, 1.0, 0.5, [], {}], "m": {"k": null, "j": [true, false]}}"#,
        )
        .unwrap();
        let indented = "{\n    \"z\": \"查 <b>&'\\\"\\\\/\\u0001\\n\\t\u{7f}\",\n    \"a\": [\n        1,\n        -2,\n        1.0,\n        \
                        0.5,\n        [],\n        {}\n    ],\n    \"m\": {\n        \"k\": null,\n        \"j\": [\n            true,\n            \
                        false\n        ]\n    }\n}";
        assert_eq!(dumps(&value, &Style::tools()), indented);
        assert_eq!(dumps(&value["m"], &Style::default()), r#"{"k": null, "j": [true, false]}"#);
        let sorted = Style { sort_keys: true, item_separator: Some(",".into()), key_separator: ":".into(), ..Style::default() };
        assert_eq!(dumps(&value["m"], &sorted), r#"{"j":[true,false],"k":null}"#);
        let ascii = Style { ensure_ascii: true, ..Style::default() };
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
            assert_eq!(dumps(&serde_json::from_str(json).unwrap(), &Style::default()), want);
        }
    }
}
