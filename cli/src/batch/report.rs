//! The JSON of `wingbeat batch`: one object per prompt, and a summary.

use crate::report::{ErrorBody, ToolCallReport};
use serde::Serialize;
use serde_json::Value;
use std::ops::AddAssign;
use wingbeat::engine::Completion;
use wingbeat::low_level::session::Logprobs;

/// The result of one input line: the texts that continue its prompt.
#[derive(Debug, Clone, Serialize)]
pub struct BatchLine<'a> {
    pub id: &'a Value,
    /// The continuation of a line that asks for one continuation. `None` if the line asks for several continuations.
    #[serde(flatten)]
    pub only: Option<BatchChoice<'a>>,
    /// The continuations of a line that asks for several continuations. Empty if the line asks for one continuation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<BatchChoice<'a>>,
    /// The token counts of the prompt and of all continuations. The prompt counts once.
    pub usage: TokenCounts,
}

impl<'a> BatchLine<'a> {
    /// Returns the result of one line from its continuations `done`. If `has_vocab` is false, the continuations have no text.
    pub fn new(id: &'a Value, done: &'a [Completion], has_vocab: bool) -> BatchLine<'a> {
        let mut choices: Vec<BatchChoice<'_>> = done.iter().map(|done| BatchChoice::new(done, has_vocab)).collect();
        let usage = TokenCounts {
            prompt_tokens: done.iter().map(|done| done.usage.prompt_tokens).max().unwrap_or(0),
            completion_tokens: done.iter().map(|done| done.usage.completion_tokens).sum(),
        };
        let only = if choices.len() == 1 { choices.pop() } else { None };
        BatchLine { id, only, choices, usage }
    }
}

/// One continuation of a prompt.
#[derive(Debug, Clone, Serialize)]
pub struct BatchChoice<'a> {
    /// The generated text. `None` if the model has no vocabulary.
    pub text: Option<&'a str>,
    /// The reasoning that the model wrote before its answer. `None` if the model wrote no reasoning, or if the prompt is not a list of
    /// messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thought: Option<&'a str>,
    /// The tool calls that the model wrote, as in OpenAI's interface. Empty without tool calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCallReport<'a>>,
    /// The ids of the generated tokens.
    pub tokens: &'a [u32],
    /// The log-probabilities, one entry per generated token. Empty if the line does not ask for log-probabilities.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logprobs: Vec<TokenLogprobs<'a>>,
    /// The log-probabilities of the prompt, one entry per token except the first. Empty unless the line asks for log-probabilities and
    /// `echo`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prompt_logprobs: Vec<TokenLogprobs<'a>>,
    pub finish: &'static str,
    /// True if the text is complete under its grammar or schema. `None` without a grammar or schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// The seed of the random numbers with which this continuation was sampled.
    pub seed: u64,
}

impl<'a> BatchChoice<'a> {
    fn new(done: &'a Completion, has_vocab: bool) -> BatchChoice<'a> {
        BatchChoice {
            text: has_vocab.then_some(done.text.as_str()),
            thought: done.thought.as_deref(),
            tool_calls: done.calls.iter().map(Into::into).collect(),
            tokens: &done.tokens,
            logprobs: done.logprobs.iter().map(Into::into).collect(),
            prompt_logprobs: done.prompt_logprobs.iter().map(Into::into).collect(),
            finish: done.finish.name(),
            complete: done.complete,
            seed: done.seed,
        }
    }
}

/// A token, and the natural logarithm of its probability. `top` has the most likely tokens at this position, as pairs `[id, logarithm]`.
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

/// Token counts of one line, or sums over several lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TokenCounts {
    pub prompt_tokens: usize,
    pub completion_tokens: usize,
}

impl AddAssign for TokenCounts {
    fn add_assign(&mut self, other: TokenCounts) {
        self.prompt_tokens += other.prompt_tokens;
        self.completion_tokens += other.completion_tokens;
    }
}

/// The result of an input line that failed.
#[derive(Debug, Clone, Serialize)]
pub struct BatchFailure<'a> {
    /// The line's id. `None` if the line has no valid id, or if an earlier line has the same id.
    pub id: Option<&'a Value>,
    /// The number of the line in the input, from 1. Only set if `id` is `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    pub error: ErrorBody,
}

/// The summary of one run of `wingbeat batch`. A result of an earlier run counts only if its line is in the input.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BatchReport {
    /// The number of lines whose texts this run generated.
    pub done: usize,
    /// The number of lines with an error, from this run or an earlier run.
    pub failed: usize,
    /// The number of lines that this run skipped, because an earlier run generated their texts.
    pub kept: usize,
    /// The number of texts of this run that ended because the context was full.
    pub context_full: usize,
    /// The number of texts of this run that ended before their grammar or schema was complete.
    pub incomplete: usize,
    pub interrupted: bool,
    pub slots: usize,
    /// The seed of the run. The seed of a line without its own seed is derived from the run's seed and the line's id.
    pub seed: u64,
    /// The sum of the token counts of all lines that this run has done.
    pub usage: TokenCounts,
    /// The time of the run in seconds. Loading the model does not count.
    pub seconds: f64,
    /// The number of generated tokens per second.
    pub tokens_per_second: f64,
}
