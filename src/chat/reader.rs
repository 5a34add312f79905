//! An answer, taken apart while a model writes it: text, thought, and calls of tools.

use super::OnPart;
use super::think::{AnswerPart, ReplyStart, Splitter};
use crate::template::{Delta, Writer, opening_ids};
use crate::vocab::Vocab;
use std::ops::ControlFlow;

/// Takes an answer apart while a model writes it. What it hands out adds up to the answer: blanks around a text, and what may be the
/// beginning of a tag or of a stop text, are held back until they are decided.
pub struct AnswerReader {
    splitter: Splitter,
    /// Of a model that reads messages through a template: its special tokens part the segments of an answer.
    segments: Option<Writer>,
    has_tools: bool,
    is_call: bool,
}

/// A whole answer, taken apart.
pub(super) struct Read {
    pub text: String,
    pub thought: String,
    /// Whether there was a thought, be it empty.
    pub has_thought: bool,
    /// A stop text ended the answer.
    pub has_stopped: bool,
    /// Of a message: its segments as the model wrote them.
    pub segments: Vec<String>,
}

impl AnswerReader {
    /// For a reply in lines, which ends before any of the stop texts.
    pub(super) fn of_line(start: ReplyStart, stop_texts: Vec<String>) -> AnswerReader {
        AnswerReader { splitter: Splitter::new(start, stop_texts), segments: None, has_tools: false, is_call: false }
    }

    /// For the answer to a prompt that a template made.
    pub(super) fn of_message(vocab: &Vocab, prompt: &[u32], start: ReplyStart, stop_texts: Vec<String>, has_tools: bool) -> AnswerReader {
        let segments = Some(Writer::new(vocab, stop_texts, opening_ids(prompt, vocab)));
        AnswerReader { splitter: Splitter::new(start, Vec::new()), segments, has_tools, is_call: false }
    }

    /// Takes a token and the text that became certain with it, in which stop texts are cut already.
    pub fn push(&mut self, token: Option<u32>, text: &str, on_part: &mut dyn FnMut(AnswerPart<'_>)) {
        let _ = self.read(token, text, &mut |part| {
            on_part(part);
            ControlFlow::Continue(())
        });
    }

    /// Hands out what was held back.
    pub fn finish(self, on_part: &mut dyn FnMut(AnswerPart<'_>)) {
        self.end(&mut |part| {
            on_part(part);
            ControlFlow::Continue(())
        });
    }

    /// [`push`](Self::push), which breaks when the caller does, or when a stop text has come.
    pub(super) fn read(&mut self, token: Option<u32>, text: &str, on_part: &mut OnPart<'_>) -> ControlFlow<()> {
        let AnswerReader { splitter, segments, has_tools, is_call } = self;
        match (segments, token) {
            (Some(segments), Some(id)) => segments.push(id, &mut |delta| show(delta, splitter, *has_tools, is_call, on_part)),
            (Some(_), None) => ControlFlow::Continue(()),
            (None, _) => splitter.push(text, on_part),
        }
    }

    /// [`finish`](Self::finish), which returns the whole answer.
    pub(super) fn end(self, on_part: &mut OnPart<'_>) -> Read {
        let AnswerReader { mut splitter, segments, has_tools, mut is_call } = self;
        let (segments, at_stop_text) = segments.map_or((Vec::new(), splitter.has_stopped), |segments| {
            segments.finish(&mut |delta| show(delta, &mut splitter, has_tools, &mut is_call, on_part))
        });
        splitter.finish(on_part);
        let (text, thought) = (splitter.answer().into(), splitter.thought().into());
        Read { text, thought, has_thought: splitter.has_thought, has_stopped: at_stop_text, segments }
    }
}

fn show(delta: Delta<'_>, splitter: &mut Splitter, has_tools: bool, is_call: &mut bool, on_part: &mut OnPart<'_>) -> ControlFlow<()> {
    match delta {
        Delta::Begin { name } => {
            *is_call = has_tools && !name.is_empty();
            match name {
                "" => ControlFlow::Continue(()),
                name if *is_call => on_part(AnswerPart::Call(name)),
                // Without tools the first line is a text like any other.
                name => splitter.push(&format!("{name}\n"), on_part),
            }
        }
        Delta::Text(text) if *is_call => on_part(AnswerPart::Arguments(text)),
        Delta::Text(text) => splitter.push(text, on_part),
    }
}
