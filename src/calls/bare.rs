//! The bare form of a tool call: one JSON object without a tag or a fence, `{"name": "f", "arguments": {…}}`.

use super::json::object;
use super::{Declared, Form, FormReading};

pub struct BareForm;

impl Form for BareForm {
    fn read(&self, text: &str, is_end: bool, declared: &Declared) -> FormReading {
        object(text, is_end, declared)
    }
}
