//! Renders messages as one prompt, and makes a reader for the answer.

use super::answer_prefix::{AnswerPrefix, without_empty_answer};
use super::format::{FormatKind, LEAD, vocab_of};
use super::rules::AnswerPlace;
use super::think::ReplyStart;
use super::{AnswerReader, Format};
use crate::calls::Declared;
#[cfg(feature = "grammar")]
use crate::constrain::Constraint;
use crate::error::{Error, Result};
use crate::sample::Sampling;
use crate::session::Model;
use crate::template::{Family, Message, encode, whole};
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
    /// The answer that the last message begins, without its thought. `None` if the last message is not an answer.
    begun: Option<String>,
}

/// The kind of format that rendered a prompt. The kind determines how a reader splits the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A format of lines.
    Lines,
    /// A template with special tokens between segments of an answer.
    Segments,
    /// A template of GLM-4.7, whose answers are one text with special tokens in it.
    MarkedText,
    /// A template of RWKV-7 G1 or ChatML, whose answers are one text.
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
        let messages = without_empty_answer(messages);
        if messages.is_empty() {
            return Err(Error::input("expected at least 1 message, found an empty list").field("messages"));
        }
        let (messages, mut begun) = AnswerPrefix::split(messages);
        if messages.is_empty() {
            let e = Error::input("expected a message of the role user before the answer, found only a message of the role assistant")
                .field("messages");
            return Err(e.hint("begin with a message of the role user"));
        }
        let sampling = format.settings().sampling;
        let declared = Declared::in_messages(messages);
        let before = format.before_prompt();
        let mut question = match &format.kind {
            FormatKind::Messages(options) => {
                let template = &options.template;
                let mut parts = template.render(messages)?;
                let lead = template.lead(messages);
                let mut text = whole(&parts);
                let opening = template.opening(&text).to_string();
                let (tokens, source) = match options.is_rwkv() {
                    true => {
                        if let Some(begun) = begun {
                            text = begun.append_to(text.strip_suffix(&opening).unwrap_or(&text), lead);
                        }
                        ([before, &vocab.encode_further(text.as_bytes())?].concat(), Source::Text)
                    }
                    false => {
                        if let Some(begun) = begun {
                            parts = begun.append_to_parts(parts, lead);
                        }
                        let source = match (options.has_plain_answers(), template.family()) {
                            (true, Family::Glm47) => Source::MarkedText,
                            (true, _) => Source::Text,
                            (false, _) => Source::Segments,
                        };
                        (encode(&parts, vocab)?, source)
                    }
                };
                let start = ReplyStart::after(&opening);
                Question {
                    tokens,
                    sampling,
                    stop_ids: options.stop_ids(vocab)?,
                    stop_texts: options.stop_texts(messages),
                    max_new_tokens: options.generation.max_new_tokens,
                    place: AnswerPlace { opening, lead, blank_line: None },
                    start,
                    source,
                    n_before: before.len(),
                    declared,
                    begun: None,
                }
            }
            FormatKind::Lines(lines) => {
                let mut text = lines.whole(messages)?;
                if lines.begins() == ReplyStart::Answer {
                    begun = begun.map(AnswerPrefix::without_thought);
                }
                if let Some(begun) = begun {
                    text = begun.append_to(text.strip_suffix(lines.opening).unwrap_or(&text), LEAD);
                }
                Question {
                    tokens: [before, &vocab.encode_further(text.as_bytes())?].concat(),
                    sampling,
                    stop_ids: None,
                    stop_texts: vec![lines.end()],
                    max_new_tokens: None,
                    place: lines.answer_place(vocab),
                    start: lines.begins(),
                    source: Source::Lines,
                    n_before: before.len(),
                    declared,
                    begun: None,
                }
            }
        };
        if let Some(begun) = begun {
            question.place = AnswerPlace { opening: begun.opening().into(), lead: "", ..question.place };
            question.start = begun.start();
            question.begun = Some(begun.answer().into());
        }
        Ok(question)
    }

    /// Returns a constraint for the whole text that the model writes. The constraint restricts the answer, but not the thought before the answer.
    /// `make(between)` returns the constraint of the answer alone. `between` is the text between the prompt and the answer, usually a blank; the
    /// constraint of the answer must allow it first.
    ///
    /// # Errors
    /// `Input` if the model has no vocabulary; the errors of `make`.
    #[cfg(feature = "grammar")]
    pub fn constrain(&self, model: &Model, make: &mut dyn FnMut(&str) -> Result<Box<dyn Constraint>>) -> Result<Box<dyn Constraint>> {
        self.place.constrain(vocab_of(model)?, model.facts().n_vocab, make)
    }

    /// Returns the text between the prompt and a demanded tool call. `lead` is the text that the format has between the prompt and an answer.
    ///
    /// # Errors
    /// `Input` if a thought precedes the call in a format that cannot separate the thought from the call.
    #[cfg(feature = "grammar")]
    pub(crate) fn call_lead(&self, lead: &str) -> Result<String> {
        match self.source {
            Source::Segments if self.place.opening.is_empty() => Ok(String::new()),
            Source::Segments => Err(Error::input("a tool call cannot be required from a model that begins each answer with a thought")),
            Source::MarkedText => Ok(lead.into()),
            Source::Text | Source::Lines if lead.ends_with([' ', '\n']) => Ok(lead.into()),
            Source::Text | Source::Lines => Ok(format!("{lead}\n")),
        }
    }

    /// Returns a reader for the answer. In formats of lines and with templates of RWKV-7 G1 and ChatML, the reader ignores `stop_texts`. The caller
    /// must then pass them to the session in [`Limits`](crate::session::Limits).
    pub fn reader(&self, vocab: &Vocab, stop_texts: Vec<String>) -> AnswerReader {
        let reader = match self.source {
            Source::Segments => AnswerReader::of_message(vocab, &self.tokens, self.start, stop_texts, self.declared.clone()),
            Source::MarkedText => AnswerReader::of_marked_text(vocab, self.start, stop_texts, self.declared.clone()),
            Source::Text => AnswerReader::of_text(self.start, self.declared.clone()),
            Source::Lines => AnswerReader::of_line(self.start, Vec::new()),
        };
        if self.begun.is_some() { reader.going_on() } else { reader }
    }

    /// Returns the answer that the last message begins, without its thought. `None` if the last message is not an answer.
    #[cfg(feature = "grammar")]
    pub(crate) fn begun(&self) -> Option<&str> {
        self.begun.as_deref()
    }

    /// Returns how many tokens this prompt shares with the conversation's next prompt, which has the answer in place of the beginning of a thought.
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
        matches!(self.source, Source::Lines | Source::Text)
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
