//! Running requests and their continuations.

use super::event::{Completion, Event, Usage};
use super::outbox::Outbox;
use super::states::{State, StateInfo};
use crate::chat::{AnswerPart, AnswerReader};
use crate::error::Result;
use crate::session::{Logprobs, Text, Timings};
use crate::template::ToolCall;
use async_channel::Receiver;
use std::ops::ControlFlow;
use std::sync::Arc;
use web_time::Instant;

/// A request that has slots.
pub struct Running {
    pub events: Outbox,
    /// Token ids of the prompt, without the tokens of `state`. Empty if the request has `texts`.
    pub prompt: Arc<[u32]>,
    /// The number of tokens in the prompt, or in all texts of the request.
    pub prompt_tokens: usize,
    /// The number of texts for vectors or scores that have not ended. 0 for a request that has a prompt.
    pub texts_left: usize,
    /// The number of tokens at the beginning of the prompt that a cache entry, or a state with `state_is_prefix`, covered.
    pub cached_tokens: usize,
    /// The number of prefilled tokens that was last reported. `None` if the request wants no reports.
    pub n_told: Option<usize>,
    /// The namespace in which the slots of the request become cache entries. `None` if the request uses no cache.
    pub namespace: Option<String>,
    /// The namespace of the request.
    pub owner: String,
    /// The named state that the prompt follows. `None` if the request begins with an empty state.
    pub state: Option<Arc<State>>,
    /// The namespace and the name under which the state after the text is saved. `None` saves no state.
    pub saves: Option<(String, String)>,
    pub queue_ms: f64,
    /// The time at which the request got its slots.
    pub began: Instant,
    /// Log-probabilities of all prompt tokens except the first. Empty if the request does not set both `echo` and `logprobs`.
    pub prompt_logprobs: Vec<Logprobs>,
    /// The vector of the prompt. `None` until the prompt is prefilled. Always `None` if the request does not set `pooling`.
    pub vector: Option<Vec<f32>>,
    /// The number of continuations that are not complete.
    pub n_left: usize,
    /// True if the reader is slow. The continuations then take part in no step.
    pub is_paused: bool,
}

/// A continuation that is being generated.
#[derive(Default)]
pub struct Sequence {
    /// The key of the request in the scheduler.
    pub request: u64,
    pub index: usize,
    pub seed: u64,
    pub first_token: Option<Instant>,
    /// The time at which the continuation got its slot. `None` if it was swapped out and has no slot.
    pub since: Option<Instant>,
    /// True if the continuation forks its slot at positions in the prompt, for the prefix cache.
    pub leaves_forks: bool,
    reader: Option<AnswerReader>,
    /// Receives the result of saving the state after the text. `None` if no state is saved.
    pub saved: Option<Receiver<Result<StateInfo>>>,
    text: String,
    thought: String,
    n_thought: usize,
    calls: Vec<ToolCall>,
    logprobs: Vec<Logprobs>,
}

impl Running {
    /// Returns the tokens of the request's named state, followed by `tokens`. Returns `None` if the state's tokens are unknown.
    pub fn tokens_before(&self, tokens: &[u32]) -> Option<Vec<u32>> {
        match &self.state {
            Some(state) if state.snapshot.n_tokens() > 0 => Some([state.tokens()?, tokens].concat()),
            _ => Some(tokens.to_vec()),
        }
    }
}

impl Sequence {
    /// Returns a continuation without tokens. `reader` separates text, thought and calls of an answer to messages.
    pub fn new(request: u64, index: usize, seed: u64, reader: Option<AnswerReader>) -> Sequence {
        Sequence { request, index, seed, reader, since: Some(Instant::now()), ..Sequence::default() }
    }

    /// Adds `prompt` to the beginning of the text, and sends the prompt as an event.
    pub fn echo(&mut self, prompt: &str, events: &Outbox) {
        if !prompt.is_empty() {
            self.emit(AnswerPart::Text(prompt), events);
        }
    }

    /// Sends the log-probabilities of a token.
    pub fn on_logprobs(&mut self, logprobs: &Logprobs, events: &Outbox) {
        self.logprobs.push(logprobs.clone());
        events.send(Event::Logprobs { index: self.index, logprobs: logprobs.clone() });
    }

    /// Sends the events of a sampled token. `piece` is the text that this token completes. `token` is `None` if the text comes without a new
    /// token.
    pub fn on_token(&mut self, token: Option<u32>, piece: &str, events: &Outbox) {
        match self.reader.take() {
            Some(mut reader) => {
                let was_thinking = reader.is_thinking();
                let _ = reader.push(token, piece, &mut |part| {
                    self.emit(part, events);
                    ControlFlow::Continue(())
                });
                self.n_thought += usize::from(token.is_some() && (was_thinking || reader.is_thinking()));
                self.reader = Some(reader);
            }
            None if !piece.is_empty() => self.emit(AnswerPart::Text(piece), events),
            None => {}
        }
    }

    /// Sends the text that the answer reader held back.
    pub fn finish(&mut self, events: &Outbox) {
        if let Some(reader) = self.reader.take() {
            reader.finish(&mut |part| {
                self.emit(part, events);
                ControlFlow::Continue(())
            });
        }
    }

    /// Adds a part of the answer to the continuation's result, and sends the part as an event.
    fn emit(&mut self, part: AnswerPart<'_>, events: &Outbox) {
        let index = self.index;
        let event = match part {
            AnswerPart::Text(text) => {
                self.text.push_str(text);
                Event::Text { index, text: text.into() }
            }
            AnswerPart::Thought(text) => {
                self.thought.push_str(text);
                Event::Thought { index, text: text.into() }
            }
            AnswerPart::Call(name) => {
                self.calls.push(ToolCall { name: name.into(), arguments: String::new() });
                Event::Call { index, call: self.calls.len() - 1, name: name.into() }
            }
            AnswerPart::Arguments(text) => {
                let Some(last) = self.calls.last_mut() else { return };
                last.arguments.push_str(text);
                Event::Arguments { index, call: self.calls.len() - 1, text: text.into() }
            }
        };
        events.send(event);
    }

    /// Returns the complete continuation, without its named state.
    pub fn completion(self, output: Text, request: &Running) -> Completion {
        let first = self.first_token.unwrap_or_else(Instant::now);
        let timings = Timings {
            queue_ms: request.queue_ms,
            prefill_ms: (first - request.began).as_secs_f64() * 1e3,
            prefill_tokens: request.prompt_tokens - request.cached_tokens,
            decode_ms: first.elapsed().as_secs_f64() * 1e3,
            decode_tokens: output.tokens.len(),
            drafted_tokens: output.drafted,
            accepted_tokens: output.accepted,
        };
        let finish = output.reason();
        let usage = Usage {
            prompt_tokens: request.prompt_tokens,
            cached_tokens: request.cached_tokens,
            completion_tokens: output.tokens.len(),
            // A stop id that ends the thought is not in `tokens`.
            reasoning_tokens: self.n_thought.min(output.tokens.len()),
        };
        Completion {
            index: self.index,
            text: self.text,
            thought: Some(self.thought).filter(|thought| !thought.is_empty()),
            calls: self.calls,
            tokens: output.tokens,
            logprobs: self.logprobs,
            prompt_first: request.prompt.first().copied(),
            prompt_logprobs: request.prompt_logprobs.clone(),
            vector: request.vector.clone(),
            finish,
            state: None,
            complete: output.complete,
            seed: self.seed,
            usage,
            timings,
        }
    }
}
