//! Data that the handles of an engine share with its thread: the model, named states, counts and the preparers of requests.

use super::EngineOptions;
use super::prepare::{Prepared, Preparer};
use super::request::Request;
use super::states::{State as NamedState, States};
use crate::error::{Error, Kind, Result};
use crate::session::{Model, nothing_to_continue};
use crate::vocab::Vocab;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts of an engine at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// The number of slots.
    pub slots: usize,
    /// The number of slots without a continuation.
    pub free_slots: usize,
    /// The number of requests that have slots, or whose named states are being saved after their texts have ended.
    pub running: usize,
    /// The number of running requests that pause because their readers are slow: see [`EngineOptions::event_bytes`].
    pub paused: usize,
    /// The number of requests that wait for slots.
    pub waiting: usize,
    /// The number of entries in the prefix cache.
    pub cached: usize,
    /// The number of tokens sampled since the engine started.
    pub drawn: u64,
}

/// Data that the handles and the engine's thread share.
pub(super) struct Shared {
    pub model: Model,
    /// Preparers that no thread uses at the moment. Each preparer keeps the grammars that it has compiled.
    preparers: Mutex<Vec<Preparer>>,
    pub states: States,
    pub options: EngineOptions,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub stats: EngineStats,
    pub is_draining: bool,
}

impl Shared {
    pub fn new(model: &Model, options: EngineOptions, states: States, stats: EngineStats) -> Shared {
        let state = Mutex::new(State { stats, is_draining: false });
        Shared { model: model.clone(), preparers: Mutex::default(), states, options, state }
    }

    /// Prepares a request. If `state` is given, the prompt follows this state. Several threads can prepare requests at once.
    ///
    /// # Errors
    /// The errors of [`Preparer::prepare`]; `Input` if the prompt cannot follow the state.
    pub fn prepare(&self, request: &Request, state: Option<&NamedState>) -> Result<Prepared> {
        let lock = || self.preparers.lock().unwrap_or_else(PoisonError::into_inner);
        let preparer = lock().pop();
        let mut preparer =
            preparer.unwrap_or_else(|| Preparer::new(&self.model, self.options.format.clone()).with_ends(self.options.cache.is_on()));
        let prepared = match state {
            None => preparer.prepare(request),
            Some(state) => {
                let is_begun = state.snapshot.n_tokens() > 0;
                let encode = if is_begun { Vocab::encode_further } else { Vocab::encode_prompt };
                preparer.prepare_with(request, encode).and_then(|prepared| check_after(state, prepared, request, self.model.context()))
            }
        };
        lock().push(preparer);
        prepared
    }

    /// Checks that a request may enter the queue, and returns the locked counts. Each free slot soon takes a waiting request. So the number of free
    /// slots is subtracted from the number of waiting requests before the check.
    ///
    /// # Errors
    /// `Busy` if the queue is full, or `Device` after a call of `Engine::drain`.
    pub fn check_room(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.is_draining {
            return Err(gone());
        }
        let waiting = state.stats.waiting.saturating_sub(state.stats.free_slots);
        if waiting >= self.options.queue.max(1) {
            return Err(Error::new(Kind::Busy, format!("the queue is full: {waiting} requests are waiting")).hint("try again later"));
        }
        Ok(state)
    }

    /// Locks and returns the counts and the flag `is_draining`.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks that a prompt can follow a state. The context must have room for the tokens of the state and of the prompt. A prompt without
/// tokens needs a state with logits.
fn check_after(state: &NamedState, prepared: Prepared, request: &Request, context: Option<usize>) -> Result<Prepared> {
    let n = prepared.prompt.len();
    let all = n + state.snapshot.n_tokens();
    if let Some(context) = context.filter(|context| all > *context) {
        let text = format!("the prompt and the state have {all} tokens together, but the context holds {context} tokens");
        return Err(Error::input(text).field(request.input.field()).hint("give a larger `context`, or a shorter prompt"));
    }
    if n == 0 && !state.snapshot.has_logits() {
        return Err(nothing_to_continue().field(request.input.field()));
    }
    Ok(prepared)
}

pub(super) fn gone() -> Error {
    Error::device("the engine is shutting down and takes no more requests")
}
