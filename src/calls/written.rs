//! The long form of tool calls of RWKV-7 G1: the line `**Tool Call:**`, then a fenced block of JSON. The fence may be missing.

use super::fenced::FencedForm;
use super::json::{Frame, after, shifted};
use super::{Declared, Form, FormReading};

/// The line before the block of JSON. A call in this form begins with this line.
pub const MARK: &str = "**Tool Call:**";

pub struct WrittenForm;

impl Form for WrittenForm {
    fn read(&self, text: &str, is_end: bool, declared: &Declared) -> FormReading {
        let rest = match after(text, MARK, is_end) {
            Ok(rest) => rest.trim_start(),
            Err(reading) => return reading,
        };
        let n = text.len() - rest.len();
        let reading = match rest.starts_with(['{', '[']) {
            true => Frame { text: rest, close: "", is_end }.calls(declared),
            false => FencedForm.read(rest, is_end, declared),
        };
        shifted(reading, n)
    }
}
