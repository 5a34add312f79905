//! What a request and its continuations have come to so far.

use super::event::{Call, Completion, Event, Timings, Usage};
use super::outbox::Outbox;
use super::states::{State, StateInfo};
use crate::chat::{AnswerPart, AnswerReader};
use crate::error::Result;
use crate::session::{JobOutput, Logprobs};
use async_channel::Receiver;
use std::sync::Arc;
use web_time::Instant;

/// A request that has slots.
pub struct Running {
    pub events: Outbox,
    pub prompt: Vec<u32>,
    pub cached_tokens: usize,
    /// Whose entries of the prefix cache its slots become; `None` if they become none.
    pub namespace: Option<String>,
    /// Where the prompt began.
    pub state: Option<Arc<State>>,
    /// The namespace and the name of the state that is kept of its end.
    pub saves: Option<(String, String)>,
    pub queue_ms: f64,
    /// When it got its slots.
    pub began: Instant,
    /// Of the prompt's tokens but the first, where they are asked for.
    pub prompt_logprobs: Vec<Logprobs>,
    /// Continuations that have not ended.
    pub n_left: usize,
    /// The reader is slow: no continuation takes part in a step.
    pub is_paused: bool,
}

/// One continuation.
#[derive(Default)]
pub struct Sequence {
    pub request: u64,
    pub index: usize,
    pub seed: u64,
    pub first_token: Option<Instant>,
    /// Its prompt leaves forks for the prefix cache.
    pub leaves_forks: bool,
    reader: Option<AnswerReader>,
    /// Gets the named state of its end, or why the state could not be kept.
    pub saved: Option<Receiver<Result<StateInfo>>>,
    text: String,
    thought: String,
    calls: Vec<Call>,
    logprobs: Vec<Logprobs>,
}

impl Running {
    /// All tokens that lead to the end of these: of the state, and these. `None` where the state's are not known.
    pub fn tokens_before(&self, tokens: &[u32]) -> Option<Vec<u32>> {
        match &self.state {
            Some(state) if state.snapshot.n_tokens() > 0 => Some([state.tokens()?, tokens].concat()),
            _ => Some(tokens.to_vec()),
        }
    }
}

impl Sequence {
    pub fn new(request: u64, index: usize, seed: u64, reader: Option<AnswerReader>) -> Sequence {
        Sequence { request, index, seed, reader, ..Sequence::default() }
    }

    /// Begins the text with the prompt's.
    pub fn echo(&mut self, prompt: &str, events: &Outbox) {
        if !prompt.is_empty() {
            self.emit(AnswerPart::Text(prompt), events);
        }
    }

    /// Hands out log-probabilities of a token.
    pub fn on_logprobs(&mut self, logprobs: &Logprobs, events: &Outbox) {
        self.logprobs.push(logprobs.clone());
        events.send(Event::Logprobs { index: self.index, logprobs: logprobs.clone() });
    }

    /// Hands out what a token brought.
    pub fn on_token(&mut self, token: Option<u32>, piece: &str, events: &Outbox) {
        match self.reader.take() {
            Some(mut reader) => {
                reader.push(token, piece, &mut |part| self.emit(part, events));
                self.reader = Some(reader);
            }
            None if !piece.is_empty() => self.emit(AnswerPart::Text(piece), events),
            None => {}
        }
    }

    /// Hands out what was held back to the end.
    pub fn finish(&mut self, events: &Outbox) {
        if let Some(reader) = self.reader.take() {
            reader.finish(&mut |part| self.emit(part, events));
        }
    }

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
                self.calls.push(Call { name: name.into(), arguments: String::new() });
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

    pub fn completion(self, output: JobOutput, request: &Running) -> Completion {
        let first = self.first_token.unwrap_or_else(Instant::now);
        let timings = Timings {
            queue_ms: request.queue_ms,
            prefill_ms: (first - request.began).as_secs_f64() * 1e3,
            decode_ms: first.elapsed().as_secs_f64() * 1e3,
        };
        let usage =
            Usage { prompt_tokens: request.prompt.len(), cached_tokens: request.cached_tokens, completion_tokens: output.tokens.len() };
        Completion {
            index: self.index,
            text: self.text,
            thought: Some(self.thought).filter(|thought| !thought.is_empty()),
            calls: self.calls,
            tokens: output.tokens,
            logprobs: self.logprobs,
            prompt_logprobs: request.prompt_logprobs.clone(),
            finish: output.finish,
            state: None,
            complete: output.complete,
            seed: self.seed,
            usage,
            timings,
        }
    }
}
