//! Separates calls from text while a model writes its answer.

use super::value::{Extent, JsonValue};
use super::{Declared, FORMS, FormReading};
use crate::template::ToolCall;
use std::ops::ControlFlow;

/// A piece of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerPiece<'a> {
    Text(&'a str),
    /// A complete call. Its arguments are a JSON object: either the model's own text, or an object made from keys and values in tags.
    Call(&'a ToolCall),
}

/// A function that receives the pieces of an answer. `Break` stops the answer.
pub type OnPiece<'a> = dyn FnMut(AnswerPiece<'_>) -> ControlFlow<()> + 'a;

/// Finds calls of declared tools anywhere in a text. The result does not depend on the sizes of the parts in which the text is pushed.
#[derive(Debug, Clone)]
pub struct CallReader {
    declared: Declared,
    /// Text that may be the beginning of a call.
    held: String,
    /// An unfinished JSON value that is not a call. The next text belongs to this value. Calls within the value stay text, so that it stays whole
    /// JSON.
    within: Option<JsonValue>,
}

/// The characters with which a call can begin, in any form.
const FIRST: [char; 5] = ['*', '`', '<', '{', '['];

impl CallReader {
    /// Makes a reader for calls of the `declared` tools. Without tools, all text stays text.
    pub fn new(declared: Declared) -> CallReader {
        CallReader { declared, held: String::new(), within: None }
    }

    /// Appends text of the answer. Calls `on_piece` for each piece that later text cannot change. Returns `Break` if `on_piece` does.
    pub fn push(&mut self, text: &str, on_piece: &mut OnPiece<'_>) -> ControlFlow<()> {
        self.held.push_str(text);
        self.go(false, on_piece)
    }

    /// Ends the answer and calls `on_piece` for each remaining piece. Returns `Break` if `on_piece` does.
    pub fn finish(&mut self, on_piece: &mut OnPiece<'_>) -> ControlFlow<()> {
        self.go(true, on_piece)
    }

    fn go(&mut self, is_end: bool, on_piece: &mut OnPiece<'_>) -> ControlFlow<()> {
        let held = std::mem::take(&mut self.held);
        let (mut from, mut at) = (0, 0);
        while !self.declared.is_empty() {
            if let Some(value) = &mut self.within {
                let Extent::To(n) = value.read(&held[at..]) else { break };
                at += n;
                self.within = None;
            }
            let Some(next) = held[at..].find(FIRST) else { break };
            at += next;
            match self.read(&held[at..], is_end) {
                FormReading::Calls(calls, n) => {
                    self.held = held[at + n..].into();
                    if from < at {
                        on_piece(AnswerPiece::Text(&held[from..at]))?;
                    }
                    calls.iter().try_for_each(|call| on_piece(AnswerPiece::Call(call)))?;
                    self.held.clear();
                    (from, at) = (at + n, at + n);
                }
                FormReading::More => {
                    self.held = held[at..].into();
                    return if from < at { on_piece(AnswerPiece::Text(&held[from..at])) } else { ControlFlow::Continue(()) };
                }
                _ => match JsonValue::new(held.as_bytes()[at]) {
                    Some(value) => self.within = Some(value),
                    None => at += 1,
                },
            }
        }
        if from < held.len() { on_piece(AnswerPiece::Text(&held[from..])) } else { ControlFlow::Continue(()) }
    }

    /// Reads a text with all forms. Returns the first result that is not [`FormReading::Text`], or [`FormReading::Text`] if no form finds a call.
    fn read(&self, text: &str, is_end: bool) -> FormReading {
        let readings = FORMS.iter().map(|form| form.read(text, is_end, &self.declared));
        readings.into_iter().find(|reading| *reading != FormReading::Text).unwrap_or(FormReading::Text)
    }
}
