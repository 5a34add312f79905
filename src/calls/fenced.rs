//! The short form of tool calls of RWKV-7 G1: a fenced block with JSON objects or lists.

use super::json::{Frame, after, shifted};
use super::{Declared, Form, FormReading};

/// The marker before and after the block of JSON.
pub const FENCE: &str = "```";

pub struct FencedForm;

impl Form for FencedForm {
    fn read(&self, text: &str, is_end: bool, declared: &Declared) -> FormReading {
        let rest = match after(text, FENCE, is_end) {
            Ok(rest) => rest,
            Err(reading) => return reading,
        };
        let rest = match after(rest, "json", is_end) {
            Ok(rest) => rest,
            // A fence without a language.
            Err(FormReading::Text) => rest,
            Err(reading) => return reading,
        };
        let n = text.len() - rest.len();
        shifted(Frame { text: rest, close: FENCE, is_end }.calls(declared), n)
    }
}
