//! GLM-4's form: the name of a tool is the first line of a segment, and the arguments are the rest of the segment.

use super::{Declared, Form, Reading};

pub struct Segment;

impl Form for Segment {
    fn read(&self, text: &str, is_end: bool, declared: &Declared) -> Reading {
        match text.split_once('\n') {
            Some((name, _)) if declared.has(name.trim()) => Reading::Begins(name.trim().into(), name.len() + 1),
            None if !is_end => Reading::More,
            _ => Reading::Text,
        }
    }
}
