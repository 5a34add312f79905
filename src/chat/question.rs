//! Renders messages as one prompt, and makes a reader for the answer.

use super::format::{Kind, vocab_of};
use super::rules::AnswerPlace;
use super::think::ReplyStart;
use super::{AnswerReader, Format};
use crate::calls::Declared;
#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
use crate::constrain::Constraint;
use crate::error::{Error, Result};
use crate::sample::Sampling;
use crate::session::Model;
use crate::template::{Message, encode, whole};
use crate::vocab::Vocab;

/// A prompt made from messages, for programs that keep the messages themselves. A `conversation::Conversation` keeps the messages for
/// its caller.
#[derive(Debug, Clone)]
pub struct Question {
    /// The tokens of the prompt.
    pub tokens: Vec<u32>,
    /// The sampler settings that the format recommends.
    pub sampling: Sampling,
    /// Ids of the tokens that end the answer. `None` means the model's own stop tokens.
    pub stop_ids: Option<Vec<u32>>,
    /// Texts that end the answer. Do not use them for an answer with a constraint: the constraint determines the end itself.
    pub stop_texts: Vec<String>,
    /// The maximum number of tokens in the answer, from `max_new_tokens` of the model's `generation_config.json`. `None` if the file sets no limit.
    pub max_new_tokens: Option<usize>,
    pub(crate) place: AnswerPlace,
    start: ReplyStart,
    source: Source,
    /// The number of tokens before the text of the prompt: 1 if the prompt begins with token 0 (`<|endoftext|>`), else 0.
    n_before: usize,
    /// The tools that the answer can call.
    declared: Declared,
}

/// The kind of format that rendered a prompt. The kind determines how a reader splits the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A format of lines.
    Lines,
    /// A template with special tokens between segments of an answer.
    Segments,
    /// A template of RWKV-7 G1, whose answers are one text.
    Text,
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

    /// Renders messages like [`new`](Self::new), with the caller's vocabulary instead of the model's.
    pub(crate) fn with_vocab(vocab: &Vocab, format: &Format, messages: &[Message]) -> Result<Question> {
        if messages.is_empty() {
            return Err(Error::input("expected at least 1 message, found an empty list").field("messages"));
        }
        let sampling = format.settings().sampling;
        let declared = Declared::in_messages(messages);
        let before = format.before_prompt();
        Ok(match &format.kind {
            Kind::Messages(options) => {
                let template = &options.template;
                let parts = template.render(messages)?;
                let text = whole(&parts);
                let (tokens, source) = match options.is_rwkv() {
                    true => ([before, &vocab.encode_further(text.as_bytes())?].concat(), Source::Text),
                    false => (encode(&parts, vocab)?, Source::Segments),
                };
                let place = AnswerPlace { opening: template.opening(&text).into(), lead: template.lead(messages), blank_line: None };
                let (stop_ids, stop_texts, start) =
                    (options.stop_ids(vocab)?, options.stop_texts(messages), ReplyStart::after(&place.opening));
                Question {
                    tokens,
                    sampling,
                    stop_ids,
                    stop_texts,
                    max_new_tokens: options.generation.max_new_tokens,
                    place,
                    start,
                    source,
                    n_before: before.len(),
                    declared,
                }
            }
            Kind::Lines(lines) => {
                let tokens = [before, &vocab.encode_further(lines.whole(messages)?.as_bytes())?].concat();
                let (stop_texts, place, start) = (vec![lines.end()], lines.place(vocab), lines.begins());
                Question {
                    tokens,
                    sampling,
                    stop_ids: None,
                    stop_texts,
                    max_new_tokens: None,
                    place,
                    start,
                    source: Source::Lines,
                    n_before: before.len(),
                    declared,
                }
            }
        })
    }

    /// Returns a constraint for the whole text that the model writes. The constraint restricts the answer, but not the thought before the answer.
    /// `make(between)` returns the constraint of the answer alone. `between` is the text between the prompt and the answer, usually a blank; the
    /// constraint of the answer must allow it first.
    ///
    /// # Errors
    /// `Input` if the model has no vocabulary; the errors of `make`.
    #[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
    pub fn constrain(&self, model: &Model, make: &mut dyn FnMut(&str) -> Result<Box<dyn Constraint>>) -> Result<Box<dyn Constraint>> {
        self.place.constrain(vocab_of(model)?, model.facts().n_vocab, make)
    }

    /// Returns the text between the prompt and a demanded tool call. `lead` is the text that the format has between the prompt and an answer.
    ///
    /// # Errors
    /// `Input` if a thought precedes the call in a format that cannot separate the thought from the call.
    #[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
    pub(crate) fn call_lead(&self, lead: &str) -> Result<String> {
        match self.source {
            Source::Segments if self.place.opening.is_empty() => Ok(String::new()),
            Source::Segments => Err(Error::input("a tool call cannot be required from a model that begins each answer with a thought")),
            Source::Text | Source::Lines if lead.ends_with([' ', '\n']) => Ok(lead.into()),
            Source::Text | Source::Lines => Ok(format!("{lead}\n")),
        }
    }

    /// Returns a reader for the answer. For RWKV, whose prompts have no special tokens, the reader ignores `stop_texts`. The caller must then pass
    /// them to the session in [`Limits`](crate::session::Limits).
    pub fn reader(&self, vocab: &Vocab, stop_texts: Vec<String>) -> AnswerReader {
        match self.source {
            Source::Segments => AnswerReader::of_message(vocab, &self.tokens, self.start, stop_texts, self.declared.clone()),
            Source::Text => AnswerReader::of_text(self.start, self.declared.clone()),
            Source::Lines => AnswerReader::of_line(self.start, Vec::new()),
        }
    }

    /// Returns how many tokens this prompt shares with the conversation's next prompt. Where this prompt begins a thought, the next prompt has the
    /// answer.
    pub(crate) fn n_stays(&self, vocab: &Vocab) -> Result<usize> {
        let (before, own) = self.tokens.split_at(self.n_before);
        let text = vocab.decode(own);
        let kept = text.strip_suffix(self.place.opening.as_bytes()).unwrap_or(&text);
        // An answer's beginning can change the tokens before it: " x" may be one token or two.
        let n_common = |answer: &str| {
            let tokens = vocab.encode_further(&[kept, answer.as_bytes()].concat())?;
            Ok(tokens.iter().zip(own).take_while(|(a, b)| a == b).count())
        };
        let counts = ["x", "The", "1"].map(n_common);
        counts.into_iter().try_fold(own.len(), |least, n| Ok(least.min(n?))).map(|n| before.len() + n)
    }

    /// Returns whether the session must search for the stop texts, because the reader ignores stop texts.
    pub(crate) fn is_text(&self) -> bool {
        self.source != Source::Segments
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
        assert_eq!((think.stop_texts, ask("world").stop_texts), (vec!["\nUser:".to_string()], vec!["\n\n".to_string()]));
    }
}
