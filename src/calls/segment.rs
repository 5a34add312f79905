//! GLM-4's form of a tool call. A segment is the text after a role token. Its first line is the name of a tool, and the rest is the arguments.

use super::{Declared, Form, FormReading};

pub struct SegmentForm;

impl Form for SegmentForm {
    fn read(&self, text: &str, is_end: bool, declared: &Declared) -> FormReading {
        match text.split_once('\n') {
            Some((name, _)) if declared.has(name.trim()) => FormReading::Begins(name.trim().into(), name.len() + 1),
            None if !is_end => FormReading::More,
            _ => FormReading::Text,
        }
    }
}
