//! What a generation hands out.

use super::StateInfo;
use crate::error::{Error, Result};
use crate::session::{Finish, Logprobs};

/// News of one request. All texts of one index together are the text of its [`Completion`], to the byte; so are thoughts and arguments.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The request has a slot, and its prompt is being read.
    Started {
        /// The number of tokens in the prompt.
        prompt_tokens: usize,
        /// Tokens of the prompt that need not be read, because a state holds them.
        cached_tokens: usize,
    },
    /// Log-probabilities of the prompt's tokens but the first, where the request asks for `echo` and for log-probabilities.
    Prompt {
        /// One entry for each token.
        logprobs: Vec<Logprobs>,
    },
    /// More of a continuation's text. An answer to messages comes without blanks around it.
    Text {
        /// The continuation, from 0.
        index: usize,
        /// The text.
        text: String,
    },
    /// More of what the model thinks before it answers messages.
    Thought {
        /// The continuation, from 0.
        index: usize,
        /// The text.
        text: String,
    },
    /// The model calls a tool: the call's number within the answer, and the tool's name.
    Call {
        /// The continuation, from 0.
        index: usize,
        /// The number of the call in the answer, from 0.
        call: usize,
        /// The name of the tool.
        name: String,
    },
    /// More of a call's arguments, as the model writes them.
    Arguments {
        /// The continuation, from 0.
        index: usize,
        /// The number of the call in the answer, from 0.
        call: usize,
        /// The text.
        text: String,
    },
    /// Log-probabilities of the next token, where the request asks for them. Its text may come later: a character can be several tokens.
    Logprobs {
        /// The continuation, from 0.
        index: usize,
        /// The log-probabilities.
        logprobs: Logprobs,
    },
    /// A continuation has ended.
    Done(Box<Completion>),
    /// The request has failed; nothing follows.
    Failed(Error),
}

impl Event {
    /// Bytes of memory that the event takes, about.
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

/// One continuation of a request, whole.
#[derive(Debug, Clone)]
pub struct Completion {
    /// Which of the request's continuations, from 0.
    pub index: usize,
    /// The text.
    pub text: String,
    /// What the model thought before it answered.
    pub thought: Option<String>,
    /// The calls of tools.
    pub calls: Vec<Call>,
    /// As drawn; the id that ended the text is none of them.
    pub tokens: Vec<u32>,
    /// One for each token, where the request asks for them; else none.
    pub logprobs: Vec<Logprobs>,
    /// One for each token of the prompt but the first, where the request asks for `echo` and for log-probabilities; else none.
    pub prompt_logprobs: Vec<Logprobs>,
    /// The reason why the continuation ended.
    pub finish: Finish,
    /// Whether the text is all that its rules want; `None` without rules.
    pub complete: Option<bool>,
    /// The state that was kept of its end, where the request asks for one, or why there is none.
    pub state: Option<Result<StateInfo>>,
    /// The seed that this continuation was drawn with.
    pub seed: u64,
    /// The numbers of tokens.
    pub usage: Usage,
    /// The time that the continuation took.
    pub timings: Timings,
}

/// A call of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    /// The name of the tool.
    pub name: String,
    /// As the model wrote them.
    pub arguments: String,
}

/// Tokens of one continuation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// The number of tokens in the prompt.
    pub prompt_tokens: usize,
    /// Of the prompt's tokens: those that were not read, because a state holds them.
    pub cached_tokens: usize,
    /// The number of generated tokens.
    pub completion_tokens: usize,
}

/// Where the time of one continuation went, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timings {
    /// From submission to a slot.
    pub queue_ms: f64,
    /// From a slot to the first token.
    pub prefill_ms: f64,
    /// From the first token to the end.
    pub decode_ms: f64,
}
