//! Follows one continuation: sends the parts of its text as events, and collects the parts for the completion.

use super::event::{Completion, Event, Usage};
use super::outbox::Outbox;
use super::states::StateInfo;
use super::submission::Submission;
use crate::chat::{AnswerPart, AnswerReader};
use crate::error::Result;
use crate::session::{Logprobs, Text, Timings};
use crate::template::ToolCall;
use async_channel::Receiver;
use std::ops::ControlFlow;
use web_time::Instant;

/// A continuation that is being generated.
#[derive(Default)]
pub struct AnswerProgress {
    /// The key of the request in the scheduler.
    pub request: u64,
    pub index: usize,
    pub seed: u64,
    pub first_token: Option<Instant>,
    /// The time at which the continuation got its slot. `None` while the continuation is swapped out.
    pub since: Option<Instant>,
    /// True if the continuation forks its slot at positions in the prompt, for the prefix cache.
    pub leaves_forks: bool,
    /// The tokens of a document whose state becomes an entry of the prefix cache. Empty if the document gets no new entry.
    pub document: Vec<u32>,
    reader: Option<AnswerReader>,
    /// True if the request asks for the token of every piece.
    pub returns_tokens: bool,
    /// Receives the result of saving the state after the text. `None` if no state is saved.
    pub saved: Option<Receiver<Result<StateInfo>>>,
    text: String,
    thought: String,
    n_thought: usize,
    calls: Vec<ToolCall>,
    logprobs: Vec<Logprobs>,
}

impl AnswerProgress {
    /// Returns a continuation without tokens. `reader` separates text, thought and calls of an answer to messages.
    pub fn new(request: u64, index: usize, seed: u64, reader: Option<AnswerReader>) -> AnswerProgress {
        AnswerProgress { request, index, seed, reader, since: Some(Instant::now()), ..AnswerProgress::default() }
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
            None => {
                let token = token.filter(|_| self.returns_tokens);
                if !piece.is_empty() || token.is_some() {
                    self.text.push_str(piece);
                    events.send(Event::Text { index: self.index, text: piece.into(), token });
                }
            }
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
                Event::Text { index, text: text.into(), token: None }
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
    pub fn completion(self, output: Text, request: &Submission) -> Completion {
        let first = self.first_token.unwrap_or_else(Instant::now);
        let timings = Timings {
            queue_ms: request.queue_ms(),
            prefill_ms: request.began.map_or(0.0, |began| (first - began).as_secs_f64() * 1e3),
            prefill_tokens: request.prompt_tokens() - request.cached_tokens,
            decode_ms: first.elapsed().as_secs_f64() * 1e3,
            decode_tokens: output.tokens.len(),
            drafted_tokens: output.drafted,
            accepted_tokens: output.accepted,
        };
        let finish = output.reason();
        let usage = Usage {
            prompt_tokens: request.prompt_tokens(),
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
            prompt_first: request.prepared.prompt.first().copied(),
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
