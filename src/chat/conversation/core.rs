//! What both kinds of conversations share: the session, the settings, kept states, and drawing through the session.
//!
//! A state is a slot of the session with the tokens that led there. States that are kept never change: going on from one forks its slot, so
//! that coming back is exact to the bit, and a branch or a step of `undo` shares them for nothing.

use super::Overrides;
use super::schedule::{Change, Schedule, SharedProcessor, lend, processor};
use crate::chat::format::vocab_of;
use crate::chat::rules::{AnswerPosition, MakeConstraint};
use crate::chat::{Answer, Settings};
use crate::constrain::Constraint;
use crate::error::{Error, Kind, Result};
use crate::sample::{Memory, Sampler, Sampling};
use crate::session::{Finish, Limits, Session, Slot, Stream, Timings};
use crate::vocab::Vocab;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Hears tokens read, and tokens to read in all.
pub type OnRead = Box<dyn FnMut(usize, usize) + Send>;

/// A place in a text from which the model can go on.
#[derive(Debug)]
pub struct State {
    pub slot: Slot,
    /// Every token that led here.
    pub tokens: Vec<u32>,
    /// What is changed of the logits here.
    pub change: Change,
}

/// A state that is kept.
pub type SharedState = Arc<State>;

/// How a text is drawn that goes on from a state.
pub struct Draw {
    pub schedule: Schedule,
    pub constraint: Option<Box<dyn Constraint>>,
    /// The model's end of a text ends it. Under a constraint it always may.
    pub ends: bool,
    pub max_tokens: usize,
    /// As [`Stream::grace`].
    pub grace: usize,
}

pub struct Core {
    pub session: Session,
    pub vocab: Vocab,
    pub settings: Settings,
    /// Settings of the next answer alone.
    pub overrides: Overrides,
    pub processor: Option<SharedProcessor>,
    pub rules: Option<MakeConstraint>,
    /// Hears how much of a text is read.
    pub on_read: OnRead,
    /// What every text begins after, if that is not nothing: a state that never changes, and the tokens that led there.
    pub start: Option<(Slot, Vec<u32>)>,
    /// Numbers of the random stream that were taken.
    pub draws: u64,
    stop: Arc<AtomicBool>,
}

impl Core {
    pub fn new(session: Session, settings: Settings, on_read: OnRead) -> Result<Core> {
        session.check_speaks()?;
        let vocab = vocab_of(session.model())?.clone();
        settings.sampling.check(session.model().facts().n_vocab)?;
        let stop = session.stop_flag();
        Ok(Core {
            session,
            vocab,
            settings,
            overrides: Overrides::default(),
            processor: None,
            rules: None,
            on_read,
            start: None,
            draws: 0,
            stop,
        })
    }

    /// The ids of a text within a conversation.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.vocab.encode_further(text.as_bytes())
    }

    /// Returns the constraint of an answer, if there is one.
    pub fn constraint(&self, place: &AnswerPosition<'_>) -> Result<Option<Box<dyn Constraint>>> {
        let Some(make) = &self.rules else { return Ok(None) };
        place.constrain(&self.vocab, self.session.model().facts().n_vocab, &mut |lead| make(lead)).map(Some)
    }

    /// The settings of the sampler for one answer.
    pub fn sampling(&self) -> Sampling {
        let mut sampling = self.settings.sampling.clone();
        sampling.temperature = self.overrides.temperature.unwrap_or(sampling.temperature);
        sampling.top_p = self.overrides.top_p.unwrap_or(sampling.top_p);
        sampling
    }

    /// A sampler that goes on in the random stream. It has counted no token: penalties begin anew with every answer.
    fn sampler(&self, tokens: &[u32]) -> Sampler {
        let sampling = self.sampling();
        let seed = sampling.seed;
        let mut sampler = Sampler::new(sampling);
        sampler.restore(Memory { seed, draws: self.draws, ..Memory::default() });
        sampler.read(tokens);
        sampler
    }

    /// Draws a text from where a state is; the state is after it then. `on_text` hears text as it becomes certain, and may break off. `read` is
    /// what reading the prompt took. The answer is one to keep, and has no text of its own yet.
    ///
    /// # Errors
    /// As [`Session::continue_many`].
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
            call: None,
            tokens,
            finish: finish.unwrap_or(Finish::Interrupted),
            complete,
            is_kept: true,
            n_prompt: read.prefill_tokens,
            n_guarded: 0,
            timings: Timings { decode_ms, decode_tokens, ..read },
        })
    }

    /// Reads tokens in chunks.
    ///
    /// # Errors
    /// `Interrupted` when the stop flag is set; else as [`Session::prefill`].
    pub fn read(&mut self, state: &mut State, tokens: &[u32], change: Change) -> Result<()> {
        let chunk_len = self.settings.chunk_len;
        for (i, chunk) in tokens.chunks(chunk_len).enumerate() {
            if i > 0 && self.is_stopped() {
                return Err(Error::new(Kind::Interrupted, "interrupted while reading"));
            }
            let on_read = &mut self.on_read;
            let mut tell = |done: usize, _| on_read(i * chunk_len + done, tokens.len());
            self.session.prefill_many(&[(state.slot, chunk)], &mut tell)?;
        }
        state.tokens.extend_from_slice(tokens);
        state.change = change;
        Ok(())
    }

    /// Returns the state in which a text begins.
    pub fn fresh(&mut self) -> Result<State> {
        let (slot, tokens) = match self.start.clone() {
            Some((start, tokens)) => (self.session.fork(start)?, tokens),
            None => (self.session.open()?, Vec::new()),
        };
        Ok(State { slot, tokens, change: Change::default() })
    }

    /// Returns a second state that goes on from here.
    pub fn copy(&mut self, of: &State) -> Result<State> {
        Ok(State { slot: self.session.fork(of.slot)?, tokens: of.tokens.clone(), change: of.change })
    }

    /// Frees a state's slot.
    pub fn close(&mut self, state: State) {
        self.session.close(state.slot).expect("a state's slot is open");
    }

    /// Gives up one user's share of a state.
    pub fn release(&mut self, state: SharedState) {
        if let Some(state) = Arc::into_inner(state) {
            self.close(state);
        }
    }

    /// Goes on with a copy, which is closed if that fails.
    pub fn after<T>(&mut self, start: &State, go: impl FnOnce(&mut Core, &mut State) -> Result<T>) -> Result<(State, T)> {
        let copy = self.copy(start)?;
        self.with(copy, go)
    }

    /// Goes on from before the first token.
    pub fn anew<T>(&mut self, go: impl FnOnce(&mut Core, &mut State) -> Result<T>) -> Result<(State, T)> {
        let fresh = self.fresh()?;
        self.with(fresh, go)
    }

    /// Goes on with a state, which is closed if that fails.
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
        self.stop.load(Ordering::Relaxed)
    }

    /// Clears the stop flag.
    pub fn go_on(&self) {
        self.stop.store(false, Ordering::Relaxed);
    }
}

/// There is no room for another state.
pub fn no_room() -> Error {
    Error::memory("expected room for another state, found every slot of the session in use").hint("remove a branch")
}
