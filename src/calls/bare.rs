//! The bare form of tool calls: a JSON object, or a JSON list of objects, without a tag or a fence, `{"name": "f", "arguments": {…}}`.

use super::json::value;
use super::{Declared, Form, FormReading};

pub struct BareForm;

impl Form for BareForm {
    fn read(&self, text: &str, is_end: bool, declared: &Declared) -> FormReading {
        value(text, is_end, declared)
    }
}
