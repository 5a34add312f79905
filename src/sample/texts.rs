//! Reads the values of sampling settings from text.

use crate::error::{Error, Result, short};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

pub(super) fn refuse(expected: &str, found: &str) -> Error {
    Error::usage(format!("expected {expected}, found {:?}", short(found, 60)))
}

/// Returns `x` if it is in the range. An error shows `found`.
pub(super) fn in_range(x: f32, found: impl Display, range: &RangeInclusive<f32>, expected: &str) -> Result<f32> {
    if range.contains(&x) { Ok(x) } else { Err(Error::usage(format!("expected {expected}, found {found}"))) }
}

pub(super) fn number<T: FromStr>(text: &str, expected: &str) -> Result<T> {
    text.parse().map_err(|_| refuse(expected, text))
}

/// Reads how many of the last tokens a setting examines. Returns `None`, which means all tokens, for `all` and for llama.cpp's `-1`.
pub(super) fn last(text: &str) -> Result<Option<usize>> {
    match text {
        "all" | "-1" => Ok(None),
        n => number(n, "a whole number of at least 0, or all").map(Some),
    }
}

/// Converts each text with `each` and returns the items of all results in one list.
pub(super) fn all<T>(values: &[&str], each: impl Fn(&str) -> Result<Vec<T>>) -> Result<Vec<T>> {
    let lists: Vec<Vec<T>> = values.iter().map(|text| each(text)).collect::<Result<_>>()?;
    Ok(lists.into_iter().flatten().collect())
}

/// Reads items that are separated by commas or spaces. Returns an empty list for `none` and for an empty text.
pub(super) fn items<T>(text: &str, item: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    if text.trim() == "none" {
        return Ok(Vec::new());
    }
    text.split([',', ' ']).map(str::trim).filter(|part| !part.is_empty()).map(item).collect()
}

/// Reads an id and its bias from `ID=X`.
pub(super) fn bias(text: &str) -> Result<(u32, f32)> {
    let parsed = text.split_once('=').and_then(|(id, x)| Some((id.trim().parse().ok()?, x.trim().parse().ok()?)));
    parsed.ok_or_else(|| refuse("ID=X, a token id and a number, such as 261=-1.5", text))
}

/// Reads the texts that end a repetition for DRY: a JSON array, `none`, or one text with the escapes `\n`, `\t` and `\\`.
pub(super) fn breakers(text: &str) -> Result<Vec<String>> {
    let texts: Vec<String> = match text {
        "none" | "[]" => return Ok(Vec::new()),
        array if array.starts_with("[\"") => {
            serde_json::from_str(array).map_err(|_| refuse("an array of strings such as [\"\\n\", \":\"]", array))?
        }
        text => vec![unescaped(text)],
    };
    if texts.iter().any(String::is_empty) { Err(refuse("strings that are not empty", text)) } else { Ok(texts) }
}

/// Replaces the escape `\n` by a newline, `\t` by a tab and `\\` by a backslash. Other backslashes stay unchanged.
fn unescaped(text: &str) -> String {
    let (mut out, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        match (c, chars.as_str().chars().next()) {
            ('\\', Some(escape @ ('n' | 't' | '\\'))) => {
                out.push(match escape {
                    'n' => '\n',
                    't' => '\t',
                    other => other,
                });
                chars.next();
            }
            _ => out.push(c),
        }
    }
    out
}
