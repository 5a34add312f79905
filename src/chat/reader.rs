//! Splits an answer into text, thought and tool calls while a model writes it.

use super::think::{AnswerPart, OnPart, ReplyStart, Splitter};
use crate::calls::{Declared, Form, FormReading, SegmentForm};
use crate::template::{SegmentDelta, SegmentWriter, ToolCall, opening_ids};
use crate::vocab::Vocab;
use std::ops::ControlFlow;

/// Splits an answer into text, thought and tool calls while a model writes it.
///
/// A part arrives in pieces. The joined pieces of a part are the whole text, thought or call. Blanks at the beginning and the end of a text are
/// dropped. Text that could be the beginning of a tag or a stop text is held back until the next tokens decide.
pub struct AnswerReader {
    splitter: Splitter,
    /// Splits an answer into segments, the texts between `<|assistant|>` tokens. `None` if the answer is one text: in formats of lines (`Name: text`)
    /// and with templates of RWKV-7 G1.
    segments: Option<SegmentWriter>,
    /// The tools that the answer can call.
    declared: Declared,
    /// True if the current segment (text between `<|assistant|>` tokens) is a tool call.
    is_call: bool,
}

/// An answer that has ended, split into its parts.
pub(crate) struct ReadAnswer {
    pub text: String,
    pub thought: String,
    /// True if the answer had a thought. An empty thought counts.
    pub has_thought: bool,
    /// True if a stop text ended the answer.
    pub has_stopped: bool,
    /// The beginning of a stop text that [`AnswerReader::end_cut`] dropped. Empty if no text was dropped.
    pub dropped: String,
    /// The calls in an answer that is one text. Empty if the answer has segments.
    pub calls: Vec<ToolCall>,
    /// The answer's segments as the model wrote them. Empty if the answer is one text.
    pub segments: Vec<String>,
}

impl AnswerReader {
    /// Makes a reader for the answer in a format of lines. The answer ends before the first stop text.
    pub(crate) fn of_line(start: ReplyStart, stop_texts: Vec<String>) -> AnswerReader {
        AnswerReader { splitter: Splitter::new(start, stop_texts), segments: None, declared: Declared::default(), is_call: false }
    }

    /// Makes a reader for an answer that is one text and can call the `declared` tools.
    pub(super) fn of_text(start: ReplyStart, declared: Declared) -> AnswerReader {
        let splitter = Splitter::new(start, Vec::new()).with_calls(declared);
        AnswerReader { splitter, segments: None, declared: Declared::default(), is_call: false }
    }

    /// Makes a reader for the answer to a prompt that a GLM template rendered with special tokens.
    pub(super) fn of_message(
        vocab: &Vocab,
        prompt: &[u32],
        start: ReplyStart,
        stop_texts: Vec<String>,
        declared: Declared,
    ) -> AnswerReader {
        let segments = Some(SegmentWriter::new(vocab, stop_texts, opening_ids(prompt, vocab)));
        AnswerReader { splitter: Splitter::new(start, Vec::new()), segments, declared, is_call: false }
    }

    /// Returns the reader of an answer whose beginning is in the prompt. Blanks at the beginning of the next text belong to the answer.
    pub(super) fn going_on(self) -> AnswerReader {
        AnswerReader { splitter: self.splitter.going_on(), ..self }
    }

    /// Reads the next token, and `text`: the new text that later tokens can no longer change. `token` is `None` if only text is reported that was
    /// held back before. Passes new parts to `on_part`. Returns `Break` if `on_part` does or if a stop text ends the answer.
    pub fn push(&mut self, token: Option<u32>, text: &str, on_part: &mut OnPart<'_>) -> ControlFlow<()> {
        let AnswerReader { splitter, segments, declared, is_call } = self;
        match (segments, token) {
            (Some(segments), Some(id)) => segments.push(id, &mut |delta| show(delta, splitter, declared, is_call, on_part)),
            (Some(_), None) => ControlFlow::Continue(()),
            (None, _) => splitter.push(text, on_part),
        }
    }

    /// Returns whether the next text belongs to the thought.
    pub fn is_thinking(&self) -> bool {
        self.splitter.is_thinking()
    }

    /// Ends the answer. Passes the text that was held back to `on_part`.
    pub fn finish(self, on_part: &mut OnPart<'_>) {
        self.end(on_part);
    }

    /// Does what [`finish`](Self::finish) does, and returns the complete answer.
    pub(crate) fn end(self, on_part: &mut OnPart<'_>) -> ReadAnswer {
        let AnswerReader { mut splitter, segments, declared, mut is_call } = self;
        let (segments, at_stop_text) = segments.map_or((Vec::new(), splitter.has_stopped), |segments| {
            segments.finish(&mut |delta| show(delta, &mut splitter, &declared, &mut is_call, on_part))
        });
        splitter.finish(on_part);
        let (text, thought) = (splitter.answer().into(), splitter.thought().into());
        let dropped = splitter.dropped.unwrap_or_default();
        let calls = std::mem::take(&mut splitter.found);
        ReadAnswer { text, thought, has_thought: splitter.has_thought, has_stopped: at_stop_text, dropped, calls, segments }
    }

    /// Ends an answer that was cut by the length limit or the caller. Drops an incomplete stop text at its end.
    pub(crate) fn end_cut(mut self, on_part: &mut OnPart<'_>) -> ReadAnswer {
        self.splitter.dropped = Some(String::new());
        self.end(on_part)
    }
}

/// Returns whether a segment with this first line calls one of the `declared` tools.
pub(crate) fn is_declared(first_line: &str, declared: &Declared) -> bool {
    matches!(SegmentForm.read(&format!("{first_line}\n"), true, declared), FormReading::Begins(..))
}

/// Passes one piece of a segment to `on_part`: as a piece of a tool call, or through `splitter` as a piece of thought or text.
fn show(
    delta: SegmentDelta<'_>,
    splitter: &mut Splitter,
    declared: &Declared,
    is_call: &mut bool,
    on_part: &mut OnPart<'_>,
) -> ControlFlow<()> {
    match delta {
        SegmentDelta::Begin { name } => {
            *is_call = is_declared(name, declared);
            match name {
                "" => ControlFlow::Continue(()),
                name if *is_call => on_part(AnswerPart::Call(name)),
                // A first line that names no tool is text.
                name => splitter.push(&format!("{name}\n"), on_part),
            }
        }
        SegmentDelta::Text(text) if *is_call => on_part(AnswerPart::Arguments(text)),
        SegmentDelta::Text(text) => splitter.push(text, on_part),
    }
}
