//! Reads tool calls that are JSON objects with the keys `name` and `arguments`, and lists of such objects, in a longer text.

use super::{Declared, FormReading};
use crate::template::ToolCall;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The maximum number of bytes of a tool call. A longer call counts as text. Without a limit, the reader would wait forever for the end
/// of an object that never ends.
pub const MAX_BYTES: usize = 64 << 10;

/// The keys that can come first in the object of a call.
const KEYS: [&str; 7] = ["name", "arguments", "id", "type", "function", "tool_call", "tool_calls"];

/// The JSON object of a call, or an object around calls, as in OpenAI's messages. Unknown keys are skipped.
#[derive(Deserialize)]
struct CallObject<'a> {
    name: Option<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, alias = "tool_call")]
    function: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<Vec<&'a RawValue>>,
}

/// A text that can begin with tool calls: one or more JSON objects or lists, then a closing mark.
pub struct Frame<'a> {
    /// The text to read. Blanks before an object or a list are skipped.
    pub text: &'a str,
    /// The closing mark, such as `</tool_call>`. The text may lack the mark. Empty if the form has no closing mark.
    pub close: &'a str,
    /// True if no more text follows.
    pub is_end: bool,
}

impl Frame<'_> {
    /// Reads one or more objects or lists and the closing mark. The number of bytes in the result counts from the beginning of `text` and includes the mark.
    pub fn calls(&self, declared: &Declared) -> FormReading {
        let (mut calls, mut n_read) = (Vec::new(), 0);
        loop {
            let rest = &self.text[n_read..];
            let begin = n_read + rest.len() - rest.trim_start().len();
            let rest = &self.text[begin..];
            if !calls.is_empty() && !rest.starts_with(['{', '[']) {
                break;
            }
            match value(rest, self.is_end, declared) {
                FormReading::Calls(found, n) => {
                    calls.extend(found);
                    n_read = begin + n;
                }
                FormReading::Text if !calls.is_empty() => break,
                other => return other,
            }
        }
        match closed(&self.text[n_read..], self.close, self.is_end) {
            Some(n) => FormReading::Calls(calls, n_read + n),
            None => FormReading::More,
        }
    }
}

/// Returns the number of bytes up to the end of the closing mark `close`, including blanks before the mark. Returns 0 if the
/// mark is missing. Returns `None` if more text is needed to decide.
pub fn closed(text: &str, close: &str, is_end: bool) -> Option<usize> {
    let rest = text.trim_start();
    if close.is_empty() && (is_end || !rest.is_empty()) {
        return Some(0);
    }
    match rest.strip_prefix(close) {
        Some(after) if !close.is_empty() => Some(text.len() - after.len()),
        _ if close.starts_with(rest) && !is_end => None,
        _ => Some(0),
    }
}

/// Returns the text after the opening mark `mark`.
///
/// # Errors
/// [`FormReading::More`] if `text` is only the beginning of the mark and `is_end` is false. [`FormReading::Text`] if the mark is missing.
pub fn after<'a>(text: &'a str, mark: &str, is_end: bool) -> Result<&'a str, FormReading> {
    match text.strip_prefix(mark) {
        Some(rest) => Ok(rest),
        None if mark.starts_with(text) && !is_end => Err(FormReading::More),
        None => Err(FormReading::Text),
    }
}

/// Reads a JSON object or a JSON list of calls at the beginning of a text.
pub fn value(text: &str, is_end: bool, declared: &Declared) -> FormReading {
    if text.starts_with('[') { list(text, is_end, declared) } else { object(text, is_end, declared) }
}

/// Reads the JSON object of one or more calls at the beginning of a text. Returns [`FormReading::Text`] if the object is longer than 64 KiB or does not
/// call a declared tool.
fn object(text: &str, is_end: bool, declared: &Declared) -> FormReading {
    let more = if is_end || text.len() > MAX_BYTES { FormReading::Text } else { FormReading::More };
    match begins(text, declared) {
        Some(false) => return FormReading::Text,
        None => return more,
        Some(true) => {}
    }
    let Some(n) = end(text) else { return more };
    if n > MAX_BYTES {
        return FormReading::Text;
    }
    match calls(&text[..n], declared) {
        Some(calls) => FormReading::Calls(calls, n),
        None => FormReading::Text,
    }
}

/// Returns whether a text begins like a JSON object that calls a declared tool. Returns `None` if more text is needed to decide.
fn begins(text: &str, declared: &Declared) -> Option<bool> {
    let after = |text: &str, mark: &str| match text.strip_prefix(mark) {
        Some(rest) => Some(Some(rest.trim_start().to_string())),
        None if text.is_empty() => None,
        None => Some(None),
    };
    let Some(text) = after(text, "{")? else { return Some(false) };
    let Some(text) = after(&text, "\"")? else { return Some(false) };
    let Some((key, rest)) = text.split_once('"') else {
        return if KEYS.iter().any(|key| key.starts_with(text.as_str())) { None } else { Some(false) };
    };
    if !KEYS.contains(&key) {
        return Some(false);
    }
    let Some(value) = after(rest.trim_start(), ":")? else { return Some(false) };
    if key != "name" {
        return Some(true);
    }
    let Some(name) = after(&value, "\"")? else { return Some(false) };
    match name.split_once(['"', '\\']) {
        // An escape can stand for any characters, so `calls` compares the name once the object is complete.
        Some(_) if name.find('\\').is_some_and(|at| name.find('"').is_none_or(|quote| at < quote)) => Some(true),
        Some((name, _)) => Some(declared.has(name)),
        None if declared.has_beginning(&name) => None,
        None => Some(false),
    }
}

/// Returns the number of bytes of the object at the beginning of a text. Returns `None` if the closing bracket is missing.
fn end(text: &str) -> Option<usize> {
    let (mut depth, mut is_string, mut is_escaped) = (0usize, false, false);
    for (i, byte) in text.bytes().enumerate() {
        if is_string {
            (is_string, is_escaped) = (is_escaped || byte != b'"', !is_escaped && byte == b'\\');
            continue;
        }
        match byte {
            b'"' => is_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(i + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Reads the complete object of a call, or the complete object around calls. Returns `None` if a call does not name a declared tool or has no object of
/// arguments.
fn calls(text: &str, declared: &Declared) -> Option<Vec<ToolCall>> {
    let object: CallObject<'_> = serde_json::from_str(text).ok()?;
    match &object.tool_calls {
        Some(all) if object.name.is_none() && object.function.is_none() && !all.is_empty() => {
            all.iter().map(|one| single(serde_json::from_str(one.get()).ok()?, declared)).collect()
        }
        _ => Some(vec![single(object, declared)?]),
    }
}

/// Reads a call from an object with a name and arguments, or from an object whose key `function` contains such an object.
fn single(object: CallObject<'_>, declared: &Declared) -> Option<ToolCall> {
    match object.function {
        Some(function) if object.name.is_none() => call(serde_json::from_str(function.get()).ok()?, declared),
        _ => call(object, declared),
    }
}

fn call(object: CallObject<'_>, declared: &Declared) -> Option<ToolCall> {
    let (name, arguments) = (object.name?, object.arguments?.get());
    declared.has(&name).then_some(())?;
    // Some models write the arguments as a JSON text within a string.
    let within: Option<String> = serde_json::from_str(arguments).ok();
    let arguments = within.unwrap_or_else(|| arguments.to_string());
    let is_object = serde_json::from_str::<&RawValue>(&arguments).is_ok_and(|value| value.get().starts_with('{'));
    is_object.then(|| ToolCall { name, arguments: arguments.trim().to_string() })
}

/// Reads a JSON list of calls at the beginning of a text. If an item is not a call, the whole list counts as text.
pub fn list(text: &str, is_end: bool, declared: &Declared) -> FormReading {
    let (mut calls, mut separator) = (Vec::new(), "[");
    let mut rest = text;
    loop {
        let Some(after) = rest.strip_prefix(separator) else { return FormReading::Text };
        rest = after.trim_start();
        if text.len() - rest.len() > MAX_BYTES {
            return FormReading::Text;
        }
        match object(rest, is_end, declared) {
            FormReading::Calls(found, n) => {
                calls.extend(found);
                rest = rest[n..].trim_start();
            }
            other => return other,
        }
        let n_read = text.len() - rest.len();
        match rest.bytes().next() {
            _ if n_read >= MAX_BYTES => return FormReading::Text,
            None => return if is_end { FormReading::Text } else { FormReading::More },
            Some(b']') => return FormReading::Calls(calls, n_read + 1),
            Some(_) => separator = ",",
        }
    }
}

/// Returns `reading` with `n` added to its number of bytes, for a form that skips `n` bytes, such as a tag, before it reads calls.
pub fn shifted(reading: FormReading, n: usize) -> FormReading {
    match reading {
        FormReading::Calls(calls, bytes) => FormReading::Calls(calls, n + bytes),
        other => other,
    }
}
