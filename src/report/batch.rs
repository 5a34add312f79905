//! The JSON of the verb `batch`: one line per prompt, and a summary.

use super::ErrorBody;
use crate::engine::Completion;
use crate::session::Logprobs;
use crate::template::ToolCall;
use serde::Serialize;
use serde_json::Value;
use std::ops::AddAssign;

/// The result of a line.
#[derive(Debug, Clone, Serialize)]
pub struct BatchLine<'a> {
    pub id: &'a Value,
    /// The continuation, if there is exactly one.
    #[serde(flatten)]
    pub only: Option<BatchChoice<'a>>,
    /// The continuations, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<BatchChoice<'a>>,
    /// The token counts of the prompt and of all continuations together. The prompt counts once.
    pub usage: Usage,
}

impl<'a> BatchLine<'a> {
    /// Makes the line of one prompt from its continuations. If `has_vocab` is false, the continuations have no text.
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
    /// The text. `None` if the model has no vocabulary.
    pub text: Option<&'a str>,
    /// The model's thought before its answer to messages, or `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thought: Option<&'a str>,
    /// Tool calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<BatchCall<'a>>,
    /// The generated ids.
    pub tokens: &'a [u32],
    /// One entry per token. Empty if the line does not ask for log-probabilities.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logprobs: Vec<TokenLogprobs<'a>>,
    /// One entry per prompt token except the first. Empty unless the line asks for log-probabilities and `echo`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prompt_logprobs: Vec<TokenLogprobs<'a>>,
    pub finish: &'static str,
    /// True if the text is complete under its grammar or schema. `None` without a grammar or schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// The seed with which the text can be repeated.
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

/// A tool call with the arguments that the model wrote.
#[derive(Debug, Clone, Serialize)]
pub struct BatchCall<'a> {
    pub name: &'a str,
    pub arguments: &'a str,
}

impl<'a> From<&'a ToolCall> for BatchCall<'a> {
    fn from(call: &'a ToolCall) -> BatchCall<'a> {
        BatchCall { name: &call.name, arguments: &call.arguments }
    }
}

/// The natural logarithm of a token's probability. `top` has the most likely tokens at the same position as pairs `[id, logarithm]`.
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

/// The token counts of a text.
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

/// The error of a line.
#[derive(Debug, Clone, Serialize)]
pub struct BatchFailure<'a> {
    /// `None` if the line has no unique id.
    pub id: Option<&'a Value>,
    /// The number of the line in the input, from 1. `None` if the line has an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    pub error: ErrorBody,
}

/// The summary of a run. Results of other inputs in the same file do not count.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BatchReport {
    /// The number of lines that this run has done.
    pub done: usize,
    /// The number of lines with an error of this run or of an earlier run.
    pub failed: usize,
    /// The number of lines that an earlier run has done.
    pub kept: usize,
    /// The number of texts of this run that ended because the context was full.
    pub context_full: usize,
    /// The number of texts of this run that were cut before their grammar or schema was complete.
    pub incomplete: usize,
    pub interrupted: bool,
    pub slots: usize,
    /// The seed from which lines without a seed derive their own seeds.
    pub seed: u64,
    /// The token counts of this run.
    pub usage: Usage,
    /// The time of the run in seconds, without loading the model.
    pub seconds: f64,
    /// The number of generated tokens per second.
    pub tokens_per_second: f64,
}
