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
    /// Splits an answer into segments, the texts between `<|assistant|>` tokens, and writes its special tokens as text. `None` if the answer has no
    /// special tokens: in formats of lines (`Name: text`) and with templates of RWKV-7 G1 and ChatML.
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

    /// Makes a reader for an answer that is one text with special tokens in it, such as `<tool_call>`, and can call the `declared` tools.
    pub(super) fn of_marked_text(vocab: &Vocab, start: ReplyStart, stop_texts: Vec<String>, declared: Declared) -> AnswerReader {
        AnswerReader { segments: Some(SegmentWriter::of_text(vocab, stop_texts)), ..Self::of_text(start, declared) }
    }

    /// Returns the reader of an answer whose beginning is in the prompt. Blanks at the beginning of the next text belong to the answer.
    pub(super) fn going_on(self) -> AnswerReader {
        AnswerReader { splitter: self.splitter.going_on(), ..self }
    }

    /// Reads the next token, and `text`: the new text that later tokens can no longer change. `token` is `None` if `text` was held back
    /// before and comes without a new token. Passes new parts to `on_part`. Returns `Break` if `on_part` does or if a stop text ends the answer.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{Part, Tool, encode, testing::MERGES};
    use crate::vocab::testing::newer_glm4;
    use serde_json::json;

    const TAGS: [&str; 8] =
        ["<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"];

    #[test]
    fn special_tokens_of_one_text_are_tags() {
        use Part::Special;
        let vocab = newer_glm4(&MERGES, &TAGS);
        let text = |text: &str| Part::Text(text.into());
        let call = [Special("<tool_call>"), text("f"), Special("<arg_key>"), text("a"), Special("</arg_key>"), Special("<arg_value>")];
        let parts = [
            &[text("first\n\nsecond"), Special("</think>"), text("I look. [[训练时间]]\n")][..],
            &call,
            &[text(" 你好 1\n"), Special("</arg_value>"), Special("</tool_call>"), text("Bye STOP now")],
        ]
        .concat();
        let declared = Declared::of(&[Tool::function(json!({"name": "f"})).unwrap()]);
        let mut reader = AnswerReader::of_marked_text(&vocab, ReplyStart::Thought(""), vec!["STOP".into()], declared);
        let mut heard = String::new();
        let mut on_part = |part: AnswerPart<'_>| {
            heard += &match part {
                AnswerPart::Text(text) => text.to_string(),
                AnswerPart::Thought(text) => format!("({text})"),
                AnswerPart::Call(name) => format!("@{name} "),
                AnswerPart::Arguments(text) => format!("{text}@"),
            };
            ControlFlow::Continue(())
        };
        let ended = encode(&parts, &vocab).unwrap().into_iter().try_for_each(|id| reader.push(Some(id), "", &mut on_part));
        let answer = reader.end(&mut on_part);
        assert!(ended.is_break() && answer.has_stopped && answer.segments.is_empty());
        assert_eq!((answer.thought.as_str(), answer.text.as_str()), ("first\n\nsecond", "I look. [[训练时间]]\nBye"));
        assert_eq!(answer.calls, [ToolCall { name: "f".into(), arguments: "{\"a\": \" 你好 1\\n\"}".into() }]);
        assert!(heard.replace(")(", "").starts_with("(first\n\nsecond)I look."), "{heard}");
        assert!(heard.contains("@f {\"a\": \" 你好 1\\n\"}@"), "{heard}");
    }
}
