//! The listed form of tool calls: a JSON list of calls in a tag, `<tool_calls>[{"name": "f", "arguments": {…}}, …]</tool_calls>`. The closing
//! tag may be missing.

use super::json::{after, closed, list};
use super::{Declared, Form, FormReading};

const OPEN: &str = "<tool_calls>";
const CLOSE: &str = "</tool_calls>";

pub struct ListedForm;

impl Form for ListedForm {
    fn read(&self, text: &str, is_end: bool, declared: &Declared) -> FormReading {
        let rest = match after(text, OPEN, is_end) {
            Ok(rest) => rest.trim_start(),
            Err(reading) => return reading,
        };
        match rest.chars().next() {
            Some('[') => {}
            Some(_) => return FormReading::Text,
            None if is_end => return FormReading::Text,
            None => return FormReading::More,
        }
        let n = text.len() - rest.len();
        match list(rest, is_end, declared) {
            FormReading::Calls(calls, end) => match closed(&rest[end..], CLOSE, is_end) {
                Some(close) => FormReading::Calls(calls, n + end + close),
                None => FormReading::More,
            },
            other => other,
        }
    }
}
