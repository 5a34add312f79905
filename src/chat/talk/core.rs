//! What every way to talk shares: the session, the settings, and how a token is drawn.

use super::super::Settings;
use super::super::format::vocab_of;
use super::super::rules::{MakeConstraint, Place};
use super::command::Overrides;
use crate::constrain::Constraint;
use crate::error::{Error, Kind, Result};
use crate::sample::{Memory, Sampler, Sampling};
use crate::session::{Processor, Session, Slot};
use crate::vocab::Vocab;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A processor that is used in one answer after the other.
pub struct SharedProcessor(Arc<Mutex<Processor>>);

impl SharedProcessor {
    pub fn new(processor: Processor) -> SharedProcessor {
        SharedProcessor(Arc::new(Mutex::new(processor)))
    }

    /// For one answer.
    pub fn lend(&self) -> Processor {
        let shared = self.0.clone();
        Box::new(move |tokens, logits| (shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))(tokens, logits))
    }
}

/// Hears tokens read, and tokens to read in all.
pub type OnRead = Box<dyn FnMut(usize, usize) + Send>;

pub struct Core {
    pub session: Session,
    pub vocab: Vocab,
    pub settings: Settings,
    pub processor: Option<SharedProcessor>,
    pub rules: Option<MakeConstraint>,
    /// Hears how much of a text is read.
    pub on_read: OnRead,
    /// What every text begins behind, if that is not nothing: a state that never changes, and the tokens that led there.
    pub start: Option<(Slot, Vec<u32>)>,
    /// Numbers of the random stream that were taken.
    pub draws: u64,
    stop: Arc<AtomicBool>,
}

impl Core {
    pub fn new(session: Session, settings: Settings) -> Result<Core> {
        session.check_speaks()?;
        let vocab = vocab_of(session.model())?.clone();
        settings.sampling.check(session.model().facts().n_vocab)?;
        let stop = session.stop_flag();
        Ok(Core { session, vocab, settings, processor: None, rules: None, on_read: Box::new(|_, _| ()), start: None, draws: 0, stop })
    }

    /// The ids of a text within a conversation.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.vocab.encode_further(text.as_bytes())
    }

    /// The rules for an answer, where there are any.
    pub fn constraint(&self, place: &Place<'_>) -> Result<Option<Box<dyn Constraint>>> {
        let Some(make) = &self.rules else { return Ok(None) };
        place.hold(&self.vocab, self.session.model().facts().n_vocab, &mut |lead| make(lead)).map(Some)
    }

    /// The settings of the sampler for one answer.
    pub fn sampling(&self, overrides: Overrides) -> Sampling {
        let mut sampling = self.settings.sampling.clone();
        sampling.temperature = overrides.temperature.unwrap_or(sampling.temperature);
        sampling.top_p = overrides.top_p.unwrap_or(sampling.top_p);
        sampling
    }

    /// A sampler that goes on in the random stream, behind these tokens. It has counted none of them: penalties begin anew with every
    /// command.
    ///
    /// # Errors
    /// `Usage` at a text of `dry-breaker` that nothing in the vocabulary contains.
    pub fn sampler(&mut self, overrides: Overrides, behind: &[u32]) -> Result<Sampler> {
        let sampling = self.sampling(overrides);
        let seed = sampling.seed;
        let mut sampler = Sampler::new(sampling);
        sampler.restore(Memory { seed, draws: self.draws, ..Memory::default() });
        self.session.tell_breakers(&mut sampler)?;
        sampler.read(behind);
        Ok(sampler)
    }

    /// Whether somebody said stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What was said before does not count any more.
    pub fn go_on(&self) {
        self.stop.store(false, Ordering::Relaxed);
    }

    /// An error where somebody said stop.
    pub fn check_stop(&self) -> Result<()> {
        if self.is_stopped() { Err(Error::new(Kind::Interrupted, "interrupted while reading")) } else { Ok(()) }
    }
}
