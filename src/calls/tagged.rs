//! The tagged form of tool calls: JSON objects in a tag, `<tool_call>{"name": "f", "arguments": {…}}</tool_call>`. The closing tag may be
//! missing.

use super::json::{Frame, after, shifted};
use super::{Declared, Form, FormReading};

const OPEN: &str = "<tool_call>";

pub struct TaggedForm;

impl Form for TaggedForm {
    fn read(&self, text: &str, is_end: bool, declared: &Declared) -> FormReading {
        match after(text, OPEN, is_end) {
            Ok(rest) => shifted(Frame { text: rest, close: "</tool_call>", is_end }.calls(declared), OPEN.len()),
            Err(reading) => reading,
        }
    }
}
