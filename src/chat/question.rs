//! Renders messages as one prompt, and makes a reader for the answer.

use super::format::{Kind, vocab_of};
use super::rules::AnswerPlace;
use super::think::ReplyStart;
use super::{AnswerReader, Format};
use crate::constrain::Constraint;
use crate::error::{Error, Result};
use crate::sample::Sampling;
use crate::session::Model;
use crate::template::{Message, encode, opening, whole};
use crate::vocab::Vocab;

/// A prompt made from messages, for programs that keep the messages themselves. A [`Conversation`](super::Conversation) keeps the messages for
/// its caller.
#[derive(Debug, Clone)]
pub struct Question {
    /// The tokens of the prompt.
    pub tokens: Vec<u32>,
    /// The sampler settings that the format recommends.
    pub sampling: Sampling,
    /// Ids of the tokens that end the answer. `None` means the model's own stop tokens.
    pub stop_ids: Option<Vec<u32>>,
    /// Texts that end the answer. Stop texts do not apply to an answer with a constraint.
    pub stop_texts: Vec<String>,
    /// The most tokens of the answer, from `max_new_tokens` of the model's `generation_config.json`. `None` if it sets none.
    pub max_new_tokens: Option<usize>,
    pub(super) place: AnswerPlace,
    start: ReplyStart,
    /// True if a template rendered the prompt. False for a prompt in lines, such as `User: hello`.
    is_message: bool,
    /// True if the messages declare tools, so that an answer can call a tool.
    has_tools: bool,
}

impl Question {
    /// Renders messages as a prompt that ends where the model's answer begins.
    ///
    /// # Errors
    /// `Input` if there is no message, if the format does not support a message's role or tools, or if the vocabulary is missing or lacks a
    /// special token.
    pub fn new(model: &Model, format: &Format, messages: &[Message]) -> Result<Question> {
        Self::with_vocab(vocab_of(model)?, format, messages)
    }

    /// Does the same as [`new`](Self::new), with the vocabulary of the caller instead of the model's vocabulary.
    pub(super) fn with_vocab(vocab: &Vocab, format: &Format, messages: &[Message]) -> Result<Question> {
        if messages.is_empty() {
            return Err(Error::input("expected at least 1 message, found an empty list").field("messages"));
        }
        let sampling = format.settings().sampling;
        let has_tools = messages.iter().any(|message| !message.tools.is_empty());
        Ok(match &format.kind {
            Kind::Messages(options) => {
                let parts = options.template.render(messages)?;
                let (tokens, place) = (encode(&parts, vocab)?, AnswerPlace::of_message(opening(&whole(&parts))));
                let stop_ids = Some(options.stop_ids(vocab)?);
                let (stop_texts, start) = (options.generation.stop_strings.clone(), ReplyStart::after(&place.opening));
                let max_new_tokens = options.generation.max_new_tokens;
                Question { tokens, sampling, stop_ids, stop_texts, max_new_tokens, place, start, is_message: true, has_tools }
            }
            Kind::Lines(lines) => {
                let tokens = vocab.encode_further(lines.whole(messages)?.as_bytes())?;
                let (stop_texts, place, start) = (vec![lines.end()], lines.place(vocab), lines.begins());
                Question { tokens, sampling, stop_ids: None, stop_texts, max_new_tokens: None, place, start, is_message: false, has_tools }
            }
        })
    }

    /// Returns a constraint for the whole text that the model writes. The constraint restricts the answer, but not a thought before the answer.
    /// `make(between)` returns the constraint of the answer alone. `between` is the text between the prompt and the answer, usually a blank. The
    /// constraint that `make` returns must allow this text.
    ///
    /// # Errors
    /// `Input` if the model has no vocabulary; the errors of `make`.
    pub fn constrain(&self, model: &Model, make: &mut dyn FnMut(&str) -> Result<Box<dyn Constraint>>) -> Result<Box<dyn Constraint>> {
        self.place.constrain(vocab_of(model)?, model.facts().n_vocab, make)
    }

    /// Returns a reader for the answer. The reader ends the answer at `stop_texts` only if a template rendered the prompt. For a format of lines
    /// (`Name: text`), put the stop texts into [`Limits`](crate::session::Limits).
    pub fn reader(&self, vocab: &Vocab, stop_texts: Vec<String>) -> AnswerReader {
        match self.is_message {
            true => AnswerReader::of_message(vocab, &self.tokens, self.start, stop_texts, self.has_tools),
            false => AnswerReader::of_line(self.start, Vec::new()),
        }
    }
}

#[cfg(all(test, feature = "embedded-model"))]
mod tests {
    use super::*;
    use crate::session::{ModelSource, Options};

    #[test]
    fn a_prompt_begins_the_thought_and_names_where_the_answer_ends() {
        let options = Options { device: "cpu".parse().unwrap(), ..Options::default() };
        let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap();
        let ask = |format: &str| Question::new(&model, &Format::named(format, &model).unwrap(), &[Message::user("a")]).unwrap();
        let think = ask("g1-think");
        assert!(model.vocab().unwrap().decode(&think.tokens).ends_with(b"Assistant: <think"));
        assert_eq!(think.sampling, Format::named("g1-think", &model).unwrap().settings().sampling);
        assert_eq!((think.stop_texts, ask("world").stop_texts), (vec!["\n\nUser:".to_string()], vec!["\n\n".to_string()]));
    }
}
