//! The part that both kinds of conversations share: the engine, the settings, states and sampling. A conversation is in lines (`Name: text`) or in
//! messages, which a template renders.
//!
//! In a conversation in lines, the engine holds each state, with all tokens of its text. A state never changes: a text that continues it leads to a
//! new state. So returning to a state is exact to the bit, and branches and undo steps share states.

use super::schedule::{Change, Schedule, SharedProcessor, lend, processor};
use super::{Answer, Overrides};
use crate::chat::Settings;
use crate::chat::format::vocab_of;
use crate::chat::rules::{AnswerPlace, MakeConstraint};
use crate::constrain::Constraint;
use crate::engine::{Engine, Passage, Pinned, Space, TurnResult};
use crate::error::Result;
use crate::sample::{Memory, Sampler, Sampling};
use crate::session::{Finish, Limits, Model, Text, TextSpec, Timings};
use crate::vocab::Vocab;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Callback for the progress of a prefill. Its arguments are the number of prefilled tokens and the number of all tokens of the prompt.
pub type OnRead = Box<dyn FnMut(usize, usize) + Send>;

/// A point of a text from which the model can continue. Clones share the state that the engine holds.
#[derive(Clone)]
pub struct TextState {
    /// The state after `tokens`. `None` for the empty state, and for a state that is kept as tokens only.
    pub pinned: Option<Pinned>,
    /// All tokens of the text up to this point.
    pub tokens: Vec<u32>,
    /// The change that applies to the logits before the next token is sampled.
    pub change: Change,
}

impl TextState {
    /// Returns whether the state must be prefilled again: it has tokens, and the engine does not hold it.
    pub fn is_dropped(&self) -> bool {
        self.pinned.is_none() && !self.tokens.is_empty()
    }
}

/// Arguments of [`Core::draw`].
pub struct DrawArgs {
    pub schedule: Schedule,
    pub constraint: Option<Box<dyn Constraint>>,
    /// True if the model's end-of-text token ends the answer, as it always does under a constraint.
    pub ends: bool,
    pub max_tokens: usize,
    /// The maximum number of tokens beyond `max_tokens` that are sampled to complete the last character, as in [`TextSpec::grace`].
    pub grace: usize,
}

pub struct Core {
    pub engine: Engine,
    pub vocab: Vocab,
    pub settings: Settings,
    /// Sampler settings that apply to the next answer only.
    pub overrides: Overrides,
    pub processor: Option<SharedProcessor>,
    pub rules: Option<MakeConstraint>,
    pub on_read: OnRead,
    /// The state in which every text begins.
    pub start: TextState,
    /// True if `start` was loaded.
    pub is_after_state: bool,
    /// The position in the random stream of the seed. In a conversation in lines, the position is the number of tokens sampled so far. In messages,
    /// an answer of n tokens adds n + 1, and the sum is added to the seed of the next answer.
    pub draws: u64,
    pub stop: Arc<AtomicBool>,
}

impl Core {
    pub fn new(engine: &Engine, settings: Settings, on_read: OnRead, stop: Arc<AtomicBool>) -> Result<Core> {
        let vocab = vocab_of(engine.model())?.clone();
        settings.sampling.check(engine.model().facts().n_vocab)?;
        Ok(Core {
            engine: engine.clone(),
            vocab,
            settings,
            overrides: Overrides::default(),
            processor: None,
            rules: None,
            on_read,
            start: TextState { pinned: None, tokens: Vec::new(), change: Change::default() },
            is_after_state: false,
            draws: 0,
            stop,
        })
    }

    pub fn model(&self) -> &Model {
        self.engine.model()
    }

    /// Returns the tokens of a text, without the special tokens that begin a conversation.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.vocab.encode_further(text.as_bytes())
    }

    /// Returns the constraint of an answer, or `None` if no constraint is set. `place` describes the texts around the answer.
    pub fn constraint(&self, place: &AnswerPlace) -> Result<Option<Box<dyn Constraint>>> {
        let Some(make) = &self.rules else { return Ok(None) };
        place.constrain(&self.vocab, self.model().facts().n_vocab, &mut |lead| make(lead)).map(Some)
    }

    /// Returns the sampler settings of the next answer: the conversation's settings, changed by the overrides.
    pub fn sampling(&self) -> Sampling {
        let mut sampling = self.settings.sampling.clone();
        sampling.temperature = self.overrides.temperature.unwrap_or(sampling.temperature);
        sampling.top_p = self.overrides.top_p.unwrap_or(sampling.top_p);
        sampling
    }

    /// Returns a sampler for the next answer, at the current position in the random stream. The sampler searches `tokens`, the text so far, for
    /// repeated sequences. All other penalties begin without counts, so tokens of earlier answers do not count.
    fn sampler(&self, tokens: &[u32]) -> Sampler {
        let sampling = self.sampling();
        let seed = sampling.seed;
        let mut sampler = Sampler::new(sampling);
        sampler.restore(Memory { seed, draws: self.draws, ..Memory::default() });
        sampler.read(tokens);
        sampler
    }

    /// Runs a job on the engine. `on_event` receives each token and each new text, and may end the text. The stop flag interrupts the prefill; later,
    /// it ends the text after the current token.
    ///
    /// # Errors
    /// `Interrupted` if the stop flag is set during the prefill; `Memory` if the engine holds as many states as it may; the errors of the job.
    pub fn pass(
        &mut self,
        job: TextSpec,
        from: Option<&Pinned>,
        space: Option<&Arc<Space>>,
        on_event: &mut dyn FnMut(Option<u32>, &str) -> ControlFlow<()>,
    ) -> Result<TurnResult> {
        let Core { engine, on_read, stop, .. } = self;
        let go = || if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let passage = Passage { job, from: from.cloned(), space: space.cloned(), stop: stop.clone() };
        let on_read = &mut |done, all| {
            on_read(done, all);
            go()
        };
        engine.pass(passage, on_read, &mut |token, piece| match on_event(token, piece) {
            ControlFlow::Continue(()) => go(),
            said => said,
        })
    }

    /// Samples an answer that continues `state`. Returns the state after the answer. `on_text` receives each new text, without incomplete characters,
    /// and may stop the answer. `read` holds the timings of the prompt's prefill. The caller must set `text`, `thought` and `is_kept` of the answer.
    ///
    /// # Errors
    /// The errors of [`pass`](Self::pass).
    pub fn draw(
        &mut self,
        state: &TextState,
        draw: DrawArgs,
        read: Timings,
        on_text: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(TextState, Answer)> {
        let DrawArgs { schedule, mut constraint, ends, max_tokens, grace } = draw;
        let answer = Answer {
            text: String::new(),
            thought: String::new(),
            calls: Vec::new(),
            tokens: Vec::new(),
            finish: Finish::Interrupted,
            complete: None,
            is_kept: true,
            n_prompt: read.prefill_tokens,
            n_guarded: 0,
            timings: read,
        };
        if self.is_stopped() {
            let complete = constraint.as_mut().map(|rules| rules.allowed().is_ok_and(|allowed| allowed.may_end));
            return Ok((state.clone(), Answer { complete, ..answer }));
        }
        let model = self.model().clone();
        let stop_ids = if ends || constraint.is_some() { model.facts().stop_ids.clone() } else { Vec::new() };
        let limits = Limits { stop_ids: Some(stop_ids), ..Limits::new(max_tokens) };
        let own = self.processor.as_ref().map(lend);
        let processor = processor(&model, &self.settings, (state.change, schedule), state.tokens.last().copied(), own);
        let job = TextSpec {
            processor: Some(processor),
            constraint,
            grace,
            counts_every_token: true,
            before: state.tokens.as_slice().into(),
            ..TextSpec::new(Vec::new(), self.sampler(&state.tokens), limits)
        };
        let passed = self.pass(job, state.pinned.as_ref(), None, &mut |_, piece| on_text(piece))?;
        let TurnResult { output, pinned, decode_ms, .. } = passed;
        let (finish, draws) = (output.reason(), output.spec.sampler.draws());
        let Text { tokens, complete, drafted, accepted, .. } = output;
        self.draws = draws;
        let change = tokens.len().checked_sub(1).map_or(state.change, |last| schedule.after(last));
        let state = TextState { pinned, tokens: [&state.tokens[..], &tokens].concat(), change };
        let timings = Timings { decode_ms, decode_tokens: tokens.len(), drafted_tokens: drafted, accepted_tokens: accepted, ..read };
        Ok((state, Answer { tokens, finish, complete, timings, ..answer }))
    }

    /// Prefills tokens after `state`, in chunks. Returns the state after the tokens, with `change` for the logits of the next token.
    ///
    /// # Errors
    /// The errors of [`pass`](Self::pass).
    pub fn read(&mut self, state: &TextState, tokens: &[u32], change: Change) -> Result<TextState> {
        if tokens.is_empty() {
            return Ok(TextState { change, ..state.clone() });
        }
        let job = TextSpec { chunk: self.settings.chunk_len, ..TextSpec::unsampled(tokens.to_vec()) };
        let passed = self.pass(job, state.pinned.as_ref(), None, &mut |_, _| ControlFlow::Continue(()))?;
        Ok(TextState { pinned: passed.pinned, tokens: [&state.tokens[..], tokens].concat(), change })
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Clears the stop flag.
    pub fn go_on(&self) {
        self.stop.store(false, Ordering::Relaxed);
    }
}
