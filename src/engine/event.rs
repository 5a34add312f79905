//! Events of a generation.

use super::StateInfo;
use crate::error::{Error, Result};
use crate::session::{Finish, Logprobs};
use crate::template::ToolCall;

/// An event of one request. The texts of all `Text` events with one index add up to the text of the [`Completion`] with this index, byte for
/// byte. The same holds for `Thought` and `Arguments`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The request has its slots, and its prompt is being prefilled.
    Started {
        /// The number of tokens in the prompt.
        prompt_tokens: usize,
        /// The number of prompt tokens that come from an entry of the prefix cache and are not prefilled.
        cached_tokens: usize,
    },
    /// Log-probabilities of all prompt tokens except the first. Sent if the request has `echo` and `logprobs`.
    Prompt {
        /// One entry for each prompt token except the first.
        logprobs: Vec<Logprobs>,
    },
    /// The next piece of a continuation's text. An answer to messages is trimmed of white space at both ends.
    Text {
        /// The number of the continuation within its request, from 0.
        index: usize,
        /// The text of the piece.
        text: String,
    },
    /// The next piece of the model's thought. A thought precedes an answer to messages.
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
    /// Log-probabilities of the next token. Sent if the request has `logprobs`. The token's text may come later: a character can be several tokens.
    Logprobs {
        /// The number of the continuation within its request, from 0.
        index: usize,
        /// The log-probabilities.
        logprobs: Logprobs,
    },
    /// A continuation is complete.
    Done(Box<Completion>),
    /// The request has failed. No event follows.
    Failed(Error),
}

impl Event {
    /// Returns about how many bytes of memory the event takes.
    pub(super) fn n_bytes(&self) -> usize {
        let heap = match self {
            Event::Started { .. } | Event::Failed(_) => 0,
            Event::Prompt { logprobs } => logprobs.iter().map(logprobs_bytes).sum(),
            Event::Text { text, .. } | Event::Thought { text, .. } | Event::Arguments { text, .. } => text.len(),
            Event::Call { name, .. } => name.len(),
            Event::Logprobs { logprobs, .. } => logprobs_bytes(logprobs),
            Event::Done(done) => {
                let calls = done.calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>();
                let logprobs = done.logprobs.iter().chain(&done.prompt_logprobs).map(logprobs_bytes).sum::<usize>();
                let texts = done.text.len() + done.thought.as_ref().map_or(0, String::len);
                size_of::<Completion>() + texts + calls + logprobs + size_of_val(done.tokens.as_slice())
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
    /// The text of the continuation.
    pub text: String,
    /// The model's thought before the answer; `None` if the answer has no thought.
    pub thought: Option<String>,
    /// The tool calls.
    pub calls: Vec<ToolCall>,
    /// The sampled token ids, without the stop id that ended the text.
    pub tokens: Vec<u32>,
    /// One entry per token of `tokens`, or empty if the request has no `logprobs`.
    pub logprobs: Vec<Logprobs>,
    /// One entry per prompt token except the first, or empty unless the request has `echo` and `logprobs`.
    pub prompt_logprobs: Vec<Logprobs>,
    /// The reason why the continuation ended.
    pub finish: Finish,
    /// True if the text satisfies its rules from beginning to end; `None` if the request has no rules.
    pub complete: Option<bool>,
    /// The named state that was kept, or the reason why the state could not be kept; `None` if the request has no `save_state`.
    pub state: Option<Result<StateInfo>>,
    /// The seed of this continuation's sampler.
    pub seed: u64,
    /// The token counts of the continuation.
    pub usage: Usage,
    /// The durations of the continuation's phases.
    pub timings: Timings,
}

/// Token counts of one continuation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// The number of tokens in the prompt.
    pub prompt_tokens: usize,
    /// The number of prompt tokens that came from an entry of the prefix cache and were not prefilled.
    pub cached_tokens: usize,
    /// The number of generated tokens.
    pub completion_tokens: usize,
}

/// Durations of one continuation's phases, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timings {
    /// The time in the queue: from the end of `submit` until the request gets its slots.
    pub queue_ms: f64,
    /// The time from the start in a slot to the first token.
    pub prefill_ms: f64,
    /// The time from the first token to the end.
    pub decode_ms: f64,
}
