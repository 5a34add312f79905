//! Parts of answers that several endpoints share: choices, usage, timings, log-probabilities, finish reasons.

use crate::failure::Failure;
use crate::ids::{new_id, now};
use crate::tickets::Ticket;
use serde::Serialize;
use utoipa::ToSchema;
use wingbeat::engine::{Completion, Engine, StateInfo};
use wingbeat::error::Error;
use wingbeat::low_level::session::{Finish, Logprobs};

/// The schema of [`FinishReason`](wingbeat::engine::FinishReason), which the library serialises as OpenAI's API names it.
#[derive(ToSchema)]
#[schema(as = FinishReason)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it only describes")]
pub enum FinishSchema {
    /// A limit cut the text.
    Length,
    /// The text calls tools.
    ToolCalls,
    /// The text is complete.
    Stop,
}

/// The answer of `/v1/chat/completions` or `/v1/completions`, or a chunk of a streamed answer.
#[derive(Serialize, ToSchema)]
pub struct Choices<C> {
    #[serde(flatten)]
    pub head: Head,
    pub choices: Vec<C>,
    /// In a stream, the field is missing unless the request sets `stream_options.include_usage`. With this option, the field is `null` in all chunks
    /// but the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Usage>)]
    pub usage: Option<Option<Usage>>,
    /// Present only in chunks before the first text of a request with `return_progress`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_progress: Option<PromptProgress>,
    #[serde(flatten)]
    pub end: End,
}

/// How far a prompt is prefilled, with llama-server's names.
#[derive(Clone, Copy, Serialize, ToSchema)]
pub struct PromptProgress {
    /// The number of tokens in the prompt.
    pub total: usize,
    /// The number of tokens that needed no prefill.
    pub cache: usize,
    /// The number of tokens that are prefilled, those of `cache` included.
    pub processed: usize,
    /// The time since the request got its slot, in milliseconds.
    pub time_ms: u64,
}

/// Fields that an answer and all its chunks have.
#[derive(Clone, Serialize, ToSchema)]
pub struct Head {
    id: String,
    object: &'static str,
    /// The time of the request, in seconds since 1970.
    created: u64,
    model: String,
    /// The version of the program and the beginning of the weights' hash.
    system_fingerprint: String,
    /// One line for each field of the request that has no effect. In a stream, the first chunk has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl Head {
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the head of a new answer, whose id begins with `prefix`.
    pub fn new(prefix: &str, object: &'static str, ticket: &Ticket, warnings: Vec<String>) -> Head {
        let hash = ticket.engine.model().weights_hash();
        let system_fingerprint = format!("wingbeat-{}-{}", env!("CARGO_PKG_VERSION"), &hash[..hash.len().min(16)]);
        Head { id: new_id(prefix), object, created: now(), model: ticket.model.name.clone(), system_fingerprint, warnings }
    }

    /// Returns this head, and removes the warnings from `self`, so that only the first chunk of a stream has them.
    pub fn with_warnings_once(&mut self) -> Head {
        let without = Head { warnings: Vec::new(), ..self.clone() };
        std::mem::replace(self, without)
    }
}

/// The tokens of all continuations of a request.
#[derive(Clone, Copy, Default, Serialize, ToSchema)]
pub struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: CachedTokens,
    completion_tokens_details: ReasoningTokens,
}

#[derive(Clone, Copy, Default, Serialize, ToSchema)]
pub struct CachedTokens {
    /// The number of prompt tokens that needed no prefill.
    pub cached_tokens: usize,
}

#[derive(Clone, Copy, Default, Serialize, ToSchema)]
pub struct ReasoningTokens {
    /// The number of tokens in the thoughts.
    pub reasoning_tokens: usize,
}

impl Usage {
    /// Adds a continuation. A prompt counts once, however many continuations it has.
    pub fn add(&mut self, done: &Completion) {
        if done.index == 0 {
            self.prompt_tokens += done.usage.prompt_tokens;
            self.prompt_tokens_details.cached_tokens += done.usage.cached_tokens;
        }
        self.completion_tokens += done.usage.completion_tokens;
        self.completion_tokens_details.reasoning_tokens += done.usage.reasoning_tokens;
        self.total_tokens = self.prompt_tokens + self.completion_tokens;
    }
}

/// Fields that OpenAI's API does not have, at the end of an answer or of a streamed choice.
#[derive(Clone, Default, Serialize, ToSchema)]
pub struct End {
    /// The seed of the sampler. The same request with this seed has the same answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
    /// True if the text satisfies its grammar or schema, false if it was cut before. Present only if the request has rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// The stored state. Present only if the request stores a state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<KeptState>,
}

impl End {
    pub fn of(done: &Completion) -> End {
        let round = |ms: f64| (ms * 1e3).round() / 1e3;
        let t = &done.timings;
        let (queue_ms, prefill_ms, decode_ms) = (round(t.queue_ms), round(t.prefill_ms), round(t.decode_ms));
        let (drafted, accepted) = t.guesses().unzip();
        let timings = Timings { queue_ms, prefill_ms, decode_ms, drafted, accepted };
        let state = done.state.clone().map(|saved| match saved {
            Ok(StateInfo { name, n_tokens, bytes }) => KeptState::Stored { name, tokens: n_tokens, bytes },
            Err(e) => KeptState::Refused { error: e.into() },
        });
        End { seed: Some(done.seed), timings: Some(timings), complete: done.complete, state }
    }
}

/// The durations of the phases of an answer, in milliseconds, and the numbers of guesses.
#[derive(Clone, Serialize, ToSchema)]
pub struct Timings {
    queue_ms: f64,
    prefill_ms: f64,
    decode_ms: f64,
    /// The number of guessed tokens that steps have checked. Absent if there were no guesses.
    #[serde(skip_serializing_if = "Option::is_none")]
    drafted: Option<usize>,
    /// The number of guessed tokens that were right. Absent if there were no guesses.
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<usize>,
}

/// The state after an answer, or the error because of which no state was stored.
#[derive(Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub enum KeptState {
    Stored { name: String, tokens: usize, bytes: u64 },
    Refused { error: Refusal },
}

#[derive(Clone, Serialize, ToSchema)]
pub struct Refusal {
    message: String,
}

impl From<Error> for Refusal {
    fn from(e: Error) -> Refusal {
        Refusal { message: Failure::from(e).message() }
    }
}

/// Returns the text of `stops` that ended the answer: the first that occurs in the answer's tokens. The chat format has stop texts, too, so the answer
/// can end with none of `stops`.
pub fn stop_text(engine: &Engine, done: &Completion, stops: &[String]) -> Option<String> {
    let vocab = engine.model().vocab().filter(|_| done.finish == Finish::Stop)?;
    let written = String::from_utf8_lossy(&vocab.decode(&done.tokens)).into_owned();
    let found = stops.iter().filter_map(|stop| Some((written.find(stop.as_str())?, stop)));
    found.min_by_key(|(at, _)| *at).map(|(_, stop)| stop.clone())
}

/// Returns the bytes of a token. A special token has the bytes of its text.
pub fn token_bytes(engine: &Engine, token: u32) -> &[u8] {
    engine.model().vocab().map_or(&[], |vocab| vocab.token_marked(token))
}

/// Returns the text of a token. Bytes that are not UTF-8 become U+FFFD.
pub fn token_text(engine: &Engine, token: u32) -> String {
    String::from_utf8_lossy(token_bytes(engine, token)).into_owned()
}

/// Returns the log-probability, but at least -9999, because JSON has no infinity.
pub fn finite(logprob: f32) -> f32 {
    logprob.max(-9999.0)
}

/// The log-probabilities of a chat completion's tokens.
#[derive(Serialize, ToSchema)]
pub struct ChatLogprobs {
    pub content: Vec<ChatLogprob>,
    /// Always `null`.
    refusal: Option<Vec<ChatLogprob>>,
}

impl ChatLogprobs {
    /// Returns the log-probabilities `all` with the texts of their tokens, or `None` if `all` is empty.
    pub fn of(engine: &Engine, all: &[Logprobs]) -> Option<ChatLogprobs> {
        let entry = |at: &Logprobs| ChatLogprob {
            token: ChatToken::new(engine, at.token, at.logprob),
            top_logprobs: at.top.iter().map(|(token, logprob)| ChatToken::new(engine, *token, *logprob)).collect(),
        };
        (!all.is_empty()).then(|| ChatLogprobs { content: all.iter().map(entry).collect(), refusal: None })
    }
}

/// A token, and the most likely tokens at its position.
#[derive(Serialize, ToSchema)]
pub struct ChatLogprob {
    #[serde(flatten)]
    token: ChatToken,
    top_logprobs: Vec<ChatToken>,
}

/// A token with its log-probability.
#[derive(Serialize, ToSchema)]
pub struct ChatToken {
    /// The text of the token. Bytes that are not UTF-8 become U+FFFD.
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

impl ChatToken {
    fn new(engine: &Engine, token: u32, logprob: f32) -> ChatToken {
        ChatToken { token: token_text(engine, token), logprob: finite(logprob), bytes: token_bytes(engine, token).into() }
    }
}
