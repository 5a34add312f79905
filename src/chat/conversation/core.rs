//! The part that both kinds of conversations share: the session, the settings, kept states and sampling. One kind is in lines (`Name: text`). The
//! other kind is in messages, which a template renders.
//!
//! A state is a slot of the session with all tokens that the slot has read. A kept state never changes, because each text that continues the state
//! runs in a fork: a second slot that begins with the same state. So returning to a state is exact to the bit, and branches and undo steps share
//! states without a copy.

use super::Overrides;
use super::schedule::{Change, Schedule, SharedProcessor, lend, processor};
use crate::chat::format::vocab_of;
use crate::chat::rules::{AnswerPlace, MakeConstraint};
use crate::chat::{Answer, Settings};
use crate::constrain::Constraint;
use crate::error::{Error, Kind, Result};
use crate::sample::{Memory, Sampler, Sampling};
use crate::session::{Finish, Limits, Session, Slot, Stream, Timings};
use crate::vocab::Vocab;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Callback for the progress of a prefill. Its arguments are the number of prefilled tokens and the number of all tokens of the prompt.
pub type OnRead = Box<dyn FnMut(usize, usize) + Send>;

/// A point of a text from which the model can continue: a slot that has read the text up to this point.
#[derive(Debug)]
pub struct State {
    pub slot: Slot,
    /// All tokens of the text up to this point.
    pub tokens: Vec<u32>,
    /// The change that applies to the logits before the next token is sampled.
    pub change: Change,
}

/// A state that is kept, so that a branch or an undo step can return to it. Branches and undo steps share kept states.
pub type SharedState = Arc<State>;

/// Arguments of [`Core::draw`].
pub struct Draw {
    pub schedule: Schedule,
    pub constraint: Option<Box<dyn Constraint>>,
    /// True if the model's end-of-text token ends the answer. With a constraint, this token always ends the answer.
    pub ends: bool,
    pub max_tokens: usize,
    /// The largest number of tokens beyond `max_tokens` that may be sampled to complete the last character, as in [`Stream::grace`].
    pub grace: usize,
}

pub struct Core {
    pub session: Session,
    pub vocab: Vocab,
    pub settings: Settings,
    /// Sampler settings that apply to the next answer only.
    pub overrides: Overrides,
    pub processor: Option<SharedProcessor>,
    pub rules: Option<MakeConstraint>,
    pub on_read: OnRead,
    /// The state in which every text begins: its slot and its tokens. `None` for the empty state.
    pub start: Option<(Slot, Vec<u32>)>,
    /// The position in the random stream of the seed. In a conversation in lines, this is the number of tokens that were sampled so far. In a
    /// conversation in messages, an answer of n tokens adds n + 1, and the sum is added to the seed of the next answer.
    pub draws: u64,
}

impl Core {
    pub fn new(session: Session, settings: Settings, on_read: OnRead) -> Result<Core> {
        session.model().check_speaks()?;
        let vocab = vocab_of(session.model())?.clone();
        settings.sampling.check(session.model().facts().n_vocab)?;
        Ok(Core { session, vocab, settings, overrides: Overrides::default(), processor: None, rules: None, on_read, start: None, draws: 0 })
    }

    /// Returns the tokens of a text, without the special tokens that begin a conversation.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.vocab.encode_further(text.as_bytes())
    }

    /// Returns the constraint of an answer, or `None` if no constraint is set. `place` describes the texts around the answer.
    pub fn constraint(&self, place: &AnswerPlace) -> Result<Option<Box<dyn Constraint>>> {
        let Some(make) = &self.rules else { return Ok(None) };
        place.constrain(&self.vocab, self.session.model().facts().n_vocab, &mut |lead| make(lead)).map(Some)
    }

    /// Returns the sampler settings of the next answer: the conversation's settings, changed by the overrides.
    pub fn sampling(&self) -> Sampling {
        let mut sampling = self.settings.sampling.clone();
        sampling.temperature = self.overrides.temperature.unwrap_or(sampling.temperature);
        sampling.top_p = self.overrides.top_p.unwrap_or(sampling.top_p);
        sampling
    }

    /// Returns a sampler for the next answer. The sampler is at the current position in the random stream. `tokens` are the text so far, in which the
    /// sampler searches for repeated sequences. The counts of the other penalties begin empty, so tokens of earlier answers do not count.
    fn sampler(&self, tokens: &[u32]) -> Sampler {
        let sampling = self.sampling();
        let seed = sampling.seed;
        let mut sampler = Sampler::new(sampling);
        sampler.restore(Memory { seed, draws: self.draws, ..Memory::default() });
        sampler.read(tokens);
        sampler
    }

    /// Samples an answer that continues `state`. Afterwards, `state` has read the answer. `on_text` receives each new text, without incomplete
    /// characters, and may stop the answer. `read` holds the timings of the prompt's prefill. The caller must set `text`, `thought` and `is_kept`
    /// of the returned answer.
    ///
    /// # Errors
    /// The errors of [`Session::continue_many`].
    pub fn draw(
        &mut self,
        state: &mut State,
        draw: Draw,
        read: Timings,
        on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Answer> {
        let model = self.session.model().clone();
        let Draw { schedule, constraint, ends, max_tokens, grace } = draw;
        let stop_ids = if ends || constraint.is_some() { model.facts().stop_ids.clone() } else { Vec::new() };
        let limits = Limits { stop_ids: Some(stop_ids), ..Limits::new(max_tokens) };
        let mut stream = Stream::new(state.slot, self.sampler(&state.tokens), &limits);
        let own = self.processor.as_ref().map(lend);
        let change = (state.change, schedule);
        stream.processor = Some(processor(&model, &self.settings, change, state.tokens.last().copied(), own));
        (stream.constraint, stream.grace, stream.counts_every_token) = (constraint, grace, true);
        if self.is_stopped() {
            stream.finish = Some(Finish::Interrupted);
            stream.complete = stream.constraint.as_mut().map(|rules| rules.allowed().is_ok_and(|allowed| allowed.may_end));
        }
        let mut streams = [stream];
        let timings = self.session.continue_many(&mut streams, &limits, &mut |event| on_text(event.piece));
        let [Stream { tokens, finish, complete, sampler, .. }] = streams;
        self.draws = sampler.draws();
        let Timings { decode_ms, decode_tokens, .. } = timings?;
        state.tokens.extend_from_slice(&tokens);
        if let Some(last) = tokens.len().checked_sub(1) {
            state.change = schedule.after(last);
        }
        Ok(Answer {
            text: String::new(),
            thought: String::new(),
            calls: Vec::new(),
            tokens,
            finish: finish.unwrap_or(Finish::Interrupted),
            complete,
            is_kept: true,
            n_prompt: read.prefill_tokens,
            n_guarded: 0,
            timings: Timings { decode_ms, decode_tokens, ..read },
        })
    }

    /// Prefills tokens into `state` in chunks. `change` applies to the logits before the first token after `tokens` is sampled.
    ///
    /// # Errors
    /// `Interrupted` if the stop flag is set between two chunks; the errors of [`Session::prefill`].
    pub fn read(&mut self, state: &mut State, tokens: &[u32], change: Change) -> Result<()> {
        let chunk_len = self.settings.chunk_len;
        for (i, chunk) in tokens.chunks(chunk_len).enumerate() {
            if i > 0 && self.is_stopped() {
                return Err(Error::new(Kind::Interrupted, "interrupted during the prefill of the prompt"));
            }
            let on_read = &mut self.on_read;
            let mut tell = |done: usize, _| on_read(i * chunk_len + done, tokens.len());
            self.session.prefill_many(&[(state.slot, chunk)], &mut tell)?;
        }
        state.tokens.extend_from_slice(tokens);
        state.change = change;
        Ok(())
    }

    /// Opens the state in which a new text begins: a fork of `start`, or the empty state.
    pub fn fresh(&mut self) -> Result<State> {
        let (slot, tokens) = match self.start.clone() {
            Some((start, tokens)) => (self.session.fork(start)?, tokens),
            None => (self.session.open()?, Vec::new()),
        };
        Ok(State { slot, tokens, change: Change::default() })
    }

    /// Returns a fork of a state.
    pub fn copy(&mut self, of: &State) -> Result<State> {
        Ok(State { slot: self.session.fork(of.slot)?, tokens: of.tokens.clone(), change: of.change })
    }

    /// Frees a state's slot.
    pub fn close(&mut self, state: State) {
        self.session.close(state.slot).expect("a state's slot is open");
    }

    /// Drops one reference to a kept state. If this was the last reference, closes the state.
    pub fn release(&mut self, state: SharedState) {
        if let Some(state) = Arc::into_inner(state) {
            self.close(state);
        }
    }

    /// Runs `go` on a fork of `start`. Returns the fork and the result of `go`. If `go` fails, closes the fork.
    pub fn after<T>(&mut self, start: &State, go: impl FnOnce(&mut Core, &mut State) -> Result<T>) -> Result<(State, T)> {
        let copy = self.copy(start)?;
        self.with(copy, go)
    }

    /// Runs `go` on `state`. Returns the state and the result of `go`. If `go` fails, closes the state.
    pub fn with<T>(&mut self, mut state: State, go: impl FnOnce(&mut Core, &mut State) -> Result<T>) -> Result<(State, T)> {
        match go(self, &mut state) {
            Ok(made) => Ok((state, made)),
            Err(e) => {
                self.close(state);
                Err(e)
            }
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.session.stop_flag().load(Ordering::Relaxed)
    }

    /// Clears the stop flag.
    pub fn go_on(&self) {
        self.session.stop_flag().store(false, Ordering::Relaxed);
    }
}

/// Returns the error for a session without a free slot.
pub fn no_room() -> Error {
    Error::memory("no memory for another branch: all slots of the session are in use").hint("remove a branch first")
}
