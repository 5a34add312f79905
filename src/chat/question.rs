//! A whole conversation as a prompt, and what a model makes of it taken apart: for programs that have all messages at hand and keep no
//! conversation.

use super::format::{Kind, vocab_of};
use super::reader::Read;
use super::rules::AnswerPosition;
use super::think::ReplyStart;
use super::{AnswerReader, Format};
use crate::constrain::Constraint;
use crate::error::{Error, Result};
use crate::sample::Sampling;
use crate::session::Model;
use crate::template::{Message, encode, opening, whole};
use crate::vocab::Vocab;
use std::ops::ControlFlow;

/// Messages, written for a model up to where it answers. [`Conversation`](super::Conversation) leads a conversation instead: with a first prompt, and where
/// answers end at a blank line with all that ChatRWKV does to logits.
#[derive(Debug, Clone)]
pub struct Question {
    /// The tokens of the prompt.
    pub tokens: Vec<u32>,
    /// How the format draws, unless told otherwise.
    pub sampling: Sampling,
    /// Ids that end the answer; none: the model's own.
    pub stop_ids: Option<Vec<u32>>,
    /// Texts before which an answer ends that follows no rules.
    pub stop_texts: Vec<String>,
    format: Format,
    /// What the prompt holds of the answer.
    opening: String,
    /// The messages declare tools, so an answer may call one.
    has_tools: bool,
}

impl Question {
    /// # Errors
    /// `Input` where there is no message, the format has no place for one, the model has no vocabulary, or that lacks a token that ends answers.
    pub fn new(model: &Model, format: &Format, messages: &[Message]) -> Result<Question> {
        Self::with_vocab(vocab_of(model)?, format, messages)
    }

    /// With any vocabulary.
    pub(super) fn with_vocab(vocab: &Vocab, format: &Format, messages: &[Message]) -> Result<Question> {
        if messages.is_empty() {
            return Err(Error::input("expected at least one message, found none"));
        }
        let (format, sampling) = (format.clone(), format.settings().sampling);
        let has_tools = messages.iter().any(|message| !message.tools.is_empty());
        Ok(match &format.kind {
            Kind::Messages(options) => {
                let parts = options.template.render(messages)?;
                let (tokens, opening) = (encode(&parts, vocab)?, opening(&whole(&parts)).to_string());
                let stop_ids = Some(options.stop_ids(vocab)?);
                let stop_texts = options.generation.stop_strings.clone();
                Question { tokens, sampling, stop_ids, stop_texts, format, opening, has_tools }
            }
            Kind::Lines(lines) => {
                let tokens = vocab.encode_further(lines.whole(messages)?.as_bytes())?;
                let (stop_texts, opening) = (vec![lines.end()], lines.opening.to_string());
                Question { tokens, sampling, stop_ids: None, stop_texts, format, opening, has_tools }
            }
        })
    }

    /// Returns the constraint of the answer; a thought before it is free. `make` gets the text before the answer, which its rules have to allow.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn constrain(&self, model: &Model, make: &mut dyn FnMut(&str) -> Result<Box<dyn Constraint>>) -> Result<Box<dyn Constraint>> {
        let vocab = vocab_of(model)?;
        self.position(vocab).constrain(vocab, model.facts().n_vocab, make)
    }

    /// Where the answer is in the text.
    pub(super) fn position(&self, vocab: &Vocab) -> AnswerPosition<'_> {
        match &self.format.kind {
            Kind::Lines(lines) => lines.position(vocab),
            Kind::Messages(_) => AnswerPosition::of_message(&self.opening),
        }
    }

    /// For an answer that ends before any of the stop texts.
    pub fn reader(&self, vocab: &Vocab, stop_texts: Vec<String>) -> AnswerReader {
        match &self.format.kind {
            Kind::Lines(_) => AnswerReader::of_line(self.start(), Vec::new()),
            Kind::Messages(_) => AnswerReader::of_message(vocab, &self.tokens, self.start(), stop_texts, self.has_tools),
        }
    }

    fn start(&self) -> ReplyStart {
        match &self.format.kind {
            Kind::Lines(lines) => lines.begins(),
            Kind::Messages(_) => ReplyStart::after(&self.opening),
        }
    }

    /// Takes apart what the model wrote: the text without blanks around it, and the thought before it.
    pub fn answer(&self, written: &str) -> (String, Option<String>) {
        let mut reader = AnswerReader::of_line(self.start(), Vec::new());
        reader.push(None, written, &mut |_| ());
        let Read { text, thought, .. } = reader.end(&mut |_| ControlFlow::Continue(()));
        (text, Some(thought).filter(|thought| !thought.is_empty()))
    }
}

#[cfg(all(test, feature = "embedded-model"))]
mod tests {
    use super::*;
    use crate::session::{ModelSource, Options};

    #[test]
    fn an_answer_is_taken_apart_as_its_format_has_it() {
        let options = Options { device: "cpu".parse().unwrap(), ..Options::default() };
        let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap();
        let ask = |format: &str| Question::new(&model, &Format::named(format, &model).unwrap(), &[Message::user("a")]).unwrap();
        let cases = [
            ("g1-think", ">\nhm\n</think>\n\nYes.\n", "Yes.", Some("hm")),
            ("g1-think", ">\nhm", "", Some("hm")),
            ("g1-fast", ">\n\nYes.", "Yes.", None),
            ("g1", " Yes.\n\nAnd no.", "Yes.\n\nAnd no.", None),
            ("g1", " <think>x</think>Yes.", "Yes.", Some("x")),
            ("world", " <think>x</think>Yes.", "<think>x</think>Yes.", None),
        ];
        for (format, written, text, thought) in cases {
            assert_eq!(ask(format).answer(written), (text.to_string(), thought.map(String::from)), "{format}");
        }
        let think = ask("g1-think");
        assert!(model.vocab().unwrap().decode(&think.tokens).ends_with(b"Assistant: <think"));
        assert_eq!(think.sampling, Format::named("g1", &model).unwrap().settings().sampling);
        assert_eq!((think.stop_texts, ask("world").stop_texts), (vec!["\n\nUser:".to_string()], vec!["\n\n".to_string()]));
    }
}
