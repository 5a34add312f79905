//! Lines of `batch`: one a prompt, in the order in which they end; and what all came to.

use super::ErrorBody;
use crate::engine::{Call, Completion};
use crate::session::Logprobs;
use serde::Serialize;
use serde_json::Value;
use std::ops::AddAssign;

/// What came of a line.
#[derive(Debug, Clone, Serialize)]
pub struct BatchLine<'a> {
    pub id: &'a Value,
    /// The continuation, where there is one.
    #[serde(flatten)]
    pub only: Option<BatchChoice<'a>>,
    /// The continuations, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<BatchChoice<'a>>,
    /// The prompt's tokens once, and those of all continuations.
    pub usage: Usage,
}

impl<'a> BatchLine<'a> {
    /// Makes the line of the continuations of one prompt. Without a vocabulary they have no text.
    pub fn new(id: &'a Value, done: &'a [Completion], has_vocab: bool) -> BatchLine<'a> {
        let mut choices: Vec<BatchChoice<'_>> = done.iter().map(|done| BatchChoice::new(done, has_vocab)).collect();
        let usage = Usage {
            prompt_tokens: done.iter().map(|done| done.usage.prompt_tokens).max().unwrap_or(0),
            completion_tokens: done.iter().map(|done| done.usage.completion_tokens).sum(),
        };
        let only = if choices.len() == 1 { choices.pop() } else { None };
        BatchLine { id, only, choices, usage }
    }
}

/// A continuation.
#[derive(Debug, Clone, Serialize)]
pub struct BatchChoice<'a> {
    /// Without a vocabulary there is none.
    pub text: Option<&'a str>,
    /// What the model thought before it answered messages, where it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thought: Option<&'a str>,
    /// Calls of tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<BatchCall<'a>>,
    /// Generated ids only.
    pub tokens: &'a [u32],
    /// One for each token, where the line asks for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logprobs: Vec<TokenLogprobs<'a>>,
    /// One for each token of the prompt but the first, where the line asks for log-probabilities and `echo`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prompt_logprobs: Vec<TokenLogprobs<'a>>,
    pub finish: &'static str,
    /// Whether the text follows its grammar or schema to the end. Absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// With which the text can be made again.
    pub seed: u64,
}

impl<'a> BatchChoice<'a> {
    fn new(done: &'a Completion, has_vocab: bool) -> BatchChoice<'a> {
        BatchChoice {
            text: has_vocab.then_some(done.text.as_str()),
            thought: done.thought.as_deref(),
            calls: done.calls.iter().map(Into::into).collect(),
            tokens: &done.tokens,
            logprobs: done.logprobs.iter().map(Into::into).collect(),
            prompt_logprobs: done.prompt_logprobs.iter().map(Into::into).collect(),
            finish: done.finish.name(),
            complete: done.complete,
            seed: done.seed,
        }
    }
}

/// A call of a tool, its arguments as the model wrote them.
#[derive(Debug, Clone, Serialize)]
pub struct BatchCall<'a> {
    pub name: &'a str,
    pub arguments: &'a str,
}

impl<'a> From<&'a Call> for BatchCall<'a> {
    fn from(call: &'a Call) -> BatchCall<'a> {
        BatchCall { name: &call.name, arguments: &call.arguments }
    }
}

/// Natural logarithms of the probabilities of a token, and of the likeliest ones at its place: `[id, logarithm]`.
#[derive(Debug, Clone, Serialize)]
pub struct TokenLogprobs<'a> {
    pub token: u32,
    pub logprob: f32,
    pub top: &'a [(u32, f32)],
}

impl<'a> From<&'a Logprobs> for TokenLogprobs<'a> {
    fn from(found: &'a Logprobs) -> TokenLogprobs<'a> {
        TokenLogprobs { token: found.token, logprob: found.logprob, top: &found.top }
    }
}

/// What a text took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    pub prompt_tokens: usize,
    pub completion_tokens: usize,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.prompt_tokens += other.prompt_tokens;
        self.completion_tokens += other.completion_tokens;
    }
}

/// A line of the input that came to nothing.
#[derive(Debug, Clone, Serialize)]
pub struct BatchFailure<'a> {
    /// None where the line has no id of its own.
    pub id: Option<&'a Value>,
    /// The number of the line in the input, from 1 on: in place of an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    pub error: ErrorBody,
}

/// The end of a run: what the lines of its input came to. Results of other inputs in the same file do not count.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BatchReport {
    /// Texts of this run.
    pub done: usize,
    /// Lines with an error, in this run or in an earlier one.
    pub failed: usize,
    /// Texts that were in the results before.
    pub kept: usize,
    /// Texts of this run that ended because the context was full.
    pub context_full: usize,
    /// Texts of this run that were cut before their grammar or schema let them end.
    pub incomplete: usize,
    pub interrupted: bool,
    pub slots: usize,
    /// From which the seeds of lines are derived that have none.
    pub seed: u64,
    /// Of the texts of this run.
    pub usage: Usage,
    /// Without the time to load the model.
    pub seconds: f64,
    /// Generated.
    pub tokens_per_second: f64,
}
