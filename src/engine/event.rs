//! The events that the reader of a request receives.

use super::StateInfo;
use crate::error::Result;
use crate::session::{Finish, Logprobs, Timings};
use crate::template::ToolCall;
use serde::Serialize;

/// An event of one request. All `Text` events of a continuation, joined in order, are exactly the text of its [`Completion`]. In the same way,
/// `Thought` events form its thought and `Arguments` events form the arguments of its tool calls.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The request has got its slots. The prefill of its prompt begins.
    Started {
        /// The number of tokens in the prompt, or in all texts of the request.
        prompt_tokens: usize,
        /// The number of tokens at the beginning of the prompt that are not prefilled. These tokens are in an entry of the prefix cache, or in the
        /// state of a request with [`state_is_prefix`](super::Request::state_is_prefix). 0 for vectors and scores: a document uses
        /// an entry only later, when it gets its slot.
        cached_tokens: usize,
    },
    /// A part of the prompt, or of the texts for vectors and scores, is prefilled. Sent after each step of the prefill if the request sets
    /// [`return_progress`](super::Request::return_progress).
    Progress {
        /// The number of tokens that are prefilled, cached tokens included.
        processed_tokens: usize,
        /// The number of tokens in the prompt, or in all texts of the request.
        prompt_tokens: usize,
        /// The number of tokens that needed no prefill.
        cached_tokens: usize,
    },
    /// Log-probabilities of all prompt tokens except the first. Sent if the request sets both `echo` and `logprobs`.
    Prompt {
        /// The first token of the prompt. `None` if the prompt is empty.
        first: Option<u32>,
        /// One entry for each prompt token except the first.
        logprobs: Vec<Logprobs>,
    },
    /// The next piece of a continuation's text. An answer to messages neither begins nor ends with white space.
    Text {
        /// The number of the continuation within its request, from 0.
        index: usize,
        /// The text of the piece. Empty only if `token` is set.
        text: String,
        /// The token that this piece completes. `None` unless the request sets [`return_tokens`](super::Request::return_tokens). Also `None` for an
        /// echoed prompt, and for held-back text that is sent without a new token.
        token: Option<u32>,
    },
    /// The next piece of the model's thought: text that the model writes before its answer to messages.
    Thought {
        /// The number of the continuation within its request, from 0.
        index: usize,
        /// The text of the piece.
        text: String,
    },
    /// The model begins a tool call.
    Call {
        /// The number of the continuation within its request, from 0.
        index: usize,
        /// The number of the call in the answer, from 0.
        call: usize,
        /// The name of the tool.
        name: String,
    },
    /// The next piece of a tool call's arguments, as the model writes them.
    Arguments {
        /// The number of the continuation within its request, from 0.
        index: usize,
        /// The number of the call in the answer, from 0.
        call: usize,
        /// The text of the piece.
        text: String,
    },
    /// Log-probabilities at the position of one generated token. Sent for every token if the request sets `logprobs`. The token's text may come in
    /// a later event, because one character can consist of several tokens.
    Logprobs {
        /// The number of the continuation within its request, from 0.
        index: usize,
        /// The log-probabilities.
        logprobs: Logprobs,
    },
    /// The vector of a text. The texts of one request may end in any order.
    Vector {
        /// The number of the text within its request, from 0.
        index: usize,
        /// The vector, `[n_embd]`. Its Euclidean norm is 1 unless the engine's options say otherwise. For
        /// [`Input::Classes`](super::Input): the logits, `[n_labels]`.
        vector: Vec<f32>,
    },
    /// The score of a document. The documents of one request may end in any order.
    Score {
        /// The number of the document within its request, from 0.
        index: usize,
        /// The logit. A larger logit means that the document answers the query better. The logistic function converts a logit to a score from 0 to 1.
        logit: f32,
    },
    /// A continuation is complete.
    Done(Box<Completion>),
}

impl Event {
    /// Returns about how many bytes of memory the event takes.
    pub(super) fn n_bytes(&self) -> usize {
        let heap = match self {
            Event::Started { .. } | Event::Progress { .. } | Event::Score { .. } => 0,
            Event::Vector { vector, .. } => size_of_val(vector.as_slice()),
            Event::Prompt { logprobs, .. } => logprobs.iter().map(logprobs_bytes).sum(),
            Event::Text { text, .. } | Event::Thought { text, .. } | Event::Arguments { text, .. } => text.len(),
            Event::Call { name, .. } => name.len(),
            Event::Logprobs { logprobs, .. } => logprobs_bytes(logprobs),
            Event::Done(done) => {
                let calls = done.calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>();
                let logprobs = done.logprobs.iter().chain(&done.prompt_logprobs).map(logprobs_bytes).sum::<usize>();
                let texts = done.text.len() + done.thought.as_ref().map_or(0, String::len);
                let vector = done.vector.as_ref().map_or(0, |vector| size_of_val(vector.as_slice()));
                size_of::<Completion>() + texts + calls + logprobs + vector + size_of_val(done.tokens.as_slice())
            }
        };
        size_of::<Event>() + heap
    }
}

fn logprobs_bytes(logprobs: &Logprobs) -> usize {
    size_of::<Logprobs>() + size_of_val(logprobs.top.as_slice())
}

/// One complete continuation of a request.
#[derive(Debug, Clone)]
pub struct Completion {
    /// The number of the continuation within its request, from 0.
    pub index: usize,
    /// The text of the continuation, without thought and tool calls. Begins with the prompt if the request sets `echo`.
    pub text: String,
    /// The model's thought before the answer. `None` if the model wrote no thought.
    pub thought: Option<String>,
    /// The tool calls of the answer, in order.
    pub calls: Vec<ToolCall>,
    /// The sampled token ids, without the stop id that ended the text.
    pub tokens: Vec<u32>,
    /// Log-probabilities, one entry per token of `tokens`. Empty if the request does not set `logprobs`.
    pub logprobs: Vec<Logprobs>,
    /// The first token of the prompt. `None` if the prompt is empty.
    pub prompt_first: Option<u32>,
    /// Log-probabilities, one entry per prompt token except the first. Empty if the request does not set both `echo` and `logprobs`.
    pub prompt_logprobs: Vec<Logprobs>,
    /// The vector of the prompt, `[n_embd]`. `None` if the request has no prompt or does not set `pooling`.
    pub vector: Option<Vec<f32>>,
    /// The reason why the continuation ended.
    pub finish: Finish,
    /// True if the whole text satisfies the request's rules, false if it ended too early. `None` if the request has no rules.
    pub complete: Option<bool>,
    /// The named state that was saved, or the error that prevented it. `None` if the request does not set `save_state`.
    pub state: Option<Result<StateInfo>>,
    /// The seed of this continuation's sampler.
    pub seed: u64,
    /// The token counts of the continuation.
    pub usage: Usage,
    /// The durations of the continuation's phases.
    pub timings: Timings,
}

/// The reason why a text ended, as OpenAI's API names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// A limit cut the text.
    Length,
    /// The text calls tools.
    ToolCalls,
    /// The text is complete.
    Stop,
}

impl FinishReason {
    /// Returns the name of the reason in JSON, such as `tool_calls`.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::Length => "length",
            FinishReason::ToolCalls => "tool_calls",
            FinishReason::Stop => "stop",
        }
    }
}

impl Completion {
    /// Returns the reason why the text ended.
    pub fn finish_reason(&self) -> FinishReason {
        let is_cut = matches!(self.finish, Finish::Length | Finish::Context | Finish::Interrupted);
        match (is_cut, self.complete) {
            // No client can use a call that was cut, because its arguments are incomplete. So the reason is `length`. A text that satisfies its rules is
            // complete, even if its last tokens were chosen because of the limit.
            (true, None | Some(false)) => FinishReason::Length,
            _ if !self.calls.is_empty() => FinishReason::ToolCalls,
            _ => FinishReason::Stop,
        }
    }
}

/// Token counts of one continuation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// The number of tokens in the prompt.
    pub prompt_tokens: usize,
    /// The number of tokens at the beginning of the prompt that were not prefilled. These tokens were in an entry of the prefix cache, or in the
    /// state of a request with [`state_is_prefix`](super::Request::state_is_prefix).
    pub cached_tokens: usize,
    /// The number of generated tokens.
    pub completion_tokens: usize,
    /// The number of generated tokens of the thought, including the tag that ends it.
    pub reasoning_tokens: usize,
}
