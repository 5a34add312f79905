//! A whole conversation as a prompt, and what a model makes of it taken apart: for programs that have all messages at hand and keep no
//! conversation.

use super::format::{Kind, vocab_of};
use super::rules::AnswerPosition;
use super::think::{ReplyStart, Splitter};
use super::{AnswerPart, Format};
use crate::constrain::Constraint;
use crate::error::{Error, Result};
use crate::sample::Sampling;
use crate::session::Model;
use crate::template::{Delta, Message, Writer, encode, opening, opening_ids, whole};
use crate::vocab::Vocab;
use std::ops::ControlFlow;

/// Messages, written for a model up to where it answers. [`Conversation`](super::Conversation) leads a conversation instead: with a first prompt, and where
/// answers end at a blank line with all that ChatRWKV does to logits.
#[derive(Debug, Clone)]
pub struct Question {
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

/// Takes an answer apart while a model writes it. What it hands out adds up to the answer: blanks around a text, and what may be the
/// beginning of a tag or of a stop text, are held back until they are decided.
pub struct AnswerReader {
    splitter: Splitter,
    /// Of a model that reads messages through a template: its special tokens part the segments of an answer.
    segments: Option<Writer>,
    has_tools: bool,
    is_call: bool,
}

/// What a model wrote, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Without blanks around it.
    pub text: String,
    /// What the model thought before it.
    pub thought: Option<String>,
}

impl Question {
    /// # Errors
    /// `Input` where there is no message, the format has no place for one, the model has no vocabulary, or that lacks a token that ends answers.
    pub fn new(model: &Model, format: &Format, messages: &[Message]) -> Result<Question> {
        let vocab = vocab_of(model)?;
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

    /// Rules for the answer; a thought before it is free. `make` gets the text that stands before the answer, which the rules are to want.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn hold(&self, model: &Model, make: &mut dyn FnMut(&str) -> Result<Box<dyn Constraint>>) -> Result<Box<dyn Constraint>> {
        let vocab = vocab_of(model)?;
        let place = match &self.format.kind {
            Kind::Lines(lines) => lines.position(vocab),
            Kind::Messages(_) => AnswerPosition::of_message(&self.opening),
        };
        place.constrain(vocab, model.facts().n_vocab, make)
    }

    /// For an answer that ends before any of the stop texts.
    pub fn reader(&self, vocab: &Vocab, stop_texts: Vec<String>) -> AnswerReader {
        let segments = match &self.format.kind {
            Kind::Lines(_) => None,
            Kind::Messages(_) => Some(Writer::new(vocab, stop_texts, opening_ids(&self.tokens, vocab))),
        };
        AnswerReader { splitter: Splitter::new(self.begins(), Vec::new()), segments, has_tools: self.has_tools, is_call: false }
    }

    fn begins(&self) -> ReplyStart {
        match &self.format.kind {
            Kind::Lines(lines) => lines.begins(),
            Kind::Messages(_) => ReplyStart::after(&self.opening),
        }
    }

    /// Takes apart what the model wrote.
    pub fn answer(&self, written: &str) -> Written {
        let mut splitter = Splitter::new(self.begins(), Vec::new());
        let on_piece = &mut |_: AnswerPart<'_>| ControlFlow::Continue(());
        let _ = splitter.push(written, on_piece);
        splitter.finish(on_piece);
        let thought = splitter.thought().to_string();
        Written { text: splitter.answer().into(), thought: Some(thought).filter(|thought| !thought.is_empty()) }
    }
}

impl AnswerReader {
    /// Takes a token and the text that became certain with it, in which stop texts are cut already.
    pub fn push(&mut self, token: Option<u32>, text: &str, on_part: &mut dyn FnMut(AnswerPart<'_>)) {
        let AnswerReader { splitter, segments, has_tools, is_call } = self;
        match (segments, token) {
            (Some(segments), Some(id)) => {
                let _ = segments.push(id, &mut |delta| {
                    show(delta, splitter, *has_tools, is_call, on_part);
                    ControlFlow::Continue(())
                });
            }
            (Some(_), None) => {}
            (None, _) => split(splitter, text, on_part),
        }
    }

    /// Hands out what was held back.
    pub fn finish(self, on_part: &mut dyn FnMut(AnswerPart<'_>)) {
        let AnswerReader { mut splitter, segments, has_tools, mut is_call } = self;
        if let Some(segments) = segments {
            segments.finish(&mut |delta| {
                show(delta, &mut splitter, has_tools, &mut is_call, on_part);
                ControlFlow::Continue(())
            });
        }
        splitter.finish(&mut |piece| {
            on_part(piece);
            ControlFlow::Continue(())
        });
    }
}

fn show(delta: Delta<'_>, splitter: &mut Splitter, has_tools: bool, is_call: &mut bool, on_part: &mut dyn FnMut(AnswerPart<'_>)) {
    match delta {
        Delta::Begin { name } => {
            *is_call = has_tools && !name.is_empty();
            match name {
                "" => {}
                name if *is_call => on_part(AnswerPart::Call(name)),
                // Without tools the first line is a text like any other.
                name => split(splitter, &format!("{name}\n"), on_part),
            }
        }
        Delta::Text(text) if *is_call => on_part(AnswerPart::Arguments(text)),
        Delta::Text(text) => split(splitter, text, on_part),
    }
}

fn split(splitter: &mut Splitter, text: &str, on_part: &mut dyn FnMut(AnswerPart<'_>)) {
    let _ = splitter.push(text, &mut |piece| {
        on_part(piece);
        ControlFlow::Continue(())
    });
}

#[cfg(all(test, feature = "embedded-model"))]
mod tests {
    use super::*;
    use crate::session::{ModelSource, Options};

    #[test]
    fn an_answer_is_taken_apart_as_its_format_has_it() {
        let options = Options { device: "cpu".into(), ..Options::default() };
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
            assert_eq!(ask(format).answer(written), Written { text: text.into(), thought: thought.map(Into::into) }, "{format}");
        }
        let think = ask("g1-think");
        assert!(model.vocab().unwrap().decode(&think.tokens).ends_with(b"Assistant: <think"));
        assert_eq!(think.sampling, Format::named("g1", &model).unwrap().settings().sampling);
        assert_eq!((think.stop_texts, ask("world").stop_texts), (vec!["\n\nUser:".to_string()], vec!["\n\n".to_string()]));
    }
}
