//! Guesses by a draft model: a smaller model with the same vocabulary, on its own device and in its own number formats.

use super::{Proposer, Wish};
use crate::error::{Error, Result};
use crate::sample::Sampler;
use crate::session::speculation::Speculate;
use crate::session::{MAX_SLOTS, Model, Session, Slot};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;
use web_time::Instant;

/// The weight of a new time in the running mean.
const NEW: f64 = 0.2;
/// The largest number of tokens of a text that one step reads. If more are unread, the text has no guesses in this step.
const MOST_READ: usize = 128;
/// A reading of at most this many tokens per text belongs to the time of its guesses. A longer reading happens once per text.
const SHORT: usize = 16;

/// Guesses with a draft model. The draft draws with a copy of the text's own sampler, and so with the same random numbers: where both models expect
/// the same tokens, the draft also guesses sampled tokens.
pub struct Draft {
    session: Session,
    texts: HashMap<usize, Followed>,
    /// The mean time of a guess in seconds.
    seconds: f64,
    /// True after the device of the draft failed. There are no further guesses then.
    has_failed: bool,
}

/// The slots that follow a text.
struct Followed {
    /// The slot that has read tokens of the text.
    slot: Slot,
    /// A fork of `slot` that has also read the last guesses, and these guesses.
    ahead: Option<(Slot, Vec<u32>)>,
}

impl Draft {
    /// Opens a session of the draft model for the guesses of `n_texts` texts of `model`.
    ///
    /// # Errors
    /// `Model` if the two models have different vocabularies, or the draft predicts no tokens; the errors of [`Session::new`].
    pub fn new(draft: &Model, model: &Model, n_texts: usize) -> Result<Draft> {
        draft.check_drafts_for(model)?;
        let session = Session::new(draft, (2 * n_texts).clamp(2, MAX_SLOTS))?;
        Ok(Draft { session, texts: HashMap::new(), seconds: 0.0, has_failed: false })
    }

    /// Adds the guesses. Returns when the guesses began.
    fn guess(&mut self, wishes: &mut [Wish<'_>]) -> Result<Instant> {
        let mut began = Instant::now();
        let mut work: Vec<(Slot, &[u32])> = Vec::new();
        for wish in &mut *wishes {
            let (slot, mut unread) = self.follow(wish)?;
            if unread.len() > MOST_READ {
                (unread, wish.most) = (&unread[..MOST_READ], 0);
            }
            // A draft with attention may have no room left.
            let room = self.session.n_left(slot)?.unwrap_or(usize::MAX);
            wish.most = wish.most.min(room.saturating_sub(unread.len()));
            if unread.len() <= room && !unread.is_empty() {
                work.push((slot, unread));
            }
        }
        let is_short = work.iter().all(|(_, unread)| unread.len() <= SHORT);
        let Draft { session, texts, .. } = self;
        session.prefill_many(&work, &mut |_, _| ())?;
        if !is_short {
            began = Instant::now();
        }
        let mut samplers: Vec<Sampler> = wishes.iter().map(|wish| wish.continuation.sampler.clone()).collect();
        let model = session.model().clone();
        for n_guessed in 0.. {
            let mut work = Vec::new();
            for (wish, sampler) in
                wishes.iter_mut().zip(&mut samplers).filter(|(wish, _)| wish.guesses.len() == n_guessed && n_guessed < wish.most)
            {
                let Some(Followed { slot, ahead }) = texts.get_mut(&wish.key) else { continue };
                let logits = session.logits(ahead.as_ref().map_or(*slot, |(slot, _)| *slot))?;
                // Settings that exclude every token are reported when the text itself is sampled.
                let Ok(guess) = sampler.sample(logits) else { continue };
                if wish.continuation.stop_ids.contains(&guess) {
                    continue;
                }
                sampler.accept(guess, wish.continuation.weight(guess, model.vocab()));
                wish.guesses.push(guess);
                if wish.guesses.len() < wish.most {
                    if ahead.is_none() {
                        *ahead = Some((session.fork(*slot)?, Vec::new()));
                    }
                    if let Some((slot, read)) = ahead {
                        read.push(guess);
                        work.push((*slot, guess));
                    }
                }
            }
            if work.is_empty() {
                break;
            }
            session.decode_many(&work)?;
        }
        Ok(began)
    }

    /// Moves the slot of a text forward to the guesses that were right, and opens a slot for a new text. Returns the slot, and the tokens that it must
    /// still read.
    fn follow<'t>(&mut self, wish: &Wish<'t>) -> Result<(Slot, &'t [u32])> {
        let Draft { session, texts, .. } = self;
        let Followed { slot, ahead } = match texts.entry(wish.key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Followed { slot: session.open()?, ahead: None }),
        };
        if let Some((fork, guesses)) = ahead.take() {
            let since = wish.tokens.get(session.n_tokens(*slot)?..).unwrap_or_default();
            // The draft must read at least one token, because the logits after the last token are needed.
            let is_right = since.len() > guesses.len() && since.starts_with(&guesses);
            let unused = if is_right { std::mem::replace(slot, fork) } else { fork };
            session.close(unused)?;
        }
        Ok((*slot, &wish.tokens[session.n_tokens(*slot)?..]))
    }
}

impl Proposer for Draft {
    fn kind(&self) -> Option<Speculate> {
        Some(Speculate::Draft)
    }

    fn seconds(&self) -> Option<f64> {
        Some(self.seconds)
    }

    fn expected(&self) -> f64 {
        0.7
    }

    fn is_available(&self) -> bool {
        !self.has_failed
    }

    fn propose(&mut self, wishes: &mut [Wish<'_>]) {
        let began = match self.guess(wishes) {
            Ok(began) => began,
            Err(e) => {
                log::warn!("the draft model guesses no further tokens: {e}");
                self.has_failed = true;
                return wishes.iter_mut().for_each(|wish| wish.guesses.clear());
            }
        };
        let n_guesses: usize = wishes.iter().map(|wish| wish.guesses.len()).sum();
        if n_guesses == 0 {
            return;
        }
        let each = began.elapsed().max(Duration::from_nanos(1)).as_secs_f64() / n_guesses as f64;
        self.seconds = if self.seconds == 0.0 { each } else { self.seconds + NEW * (each.min(3.0 * self.seconds) - self.seconds) };
    }

    fn forget(&mut self, key: usize) {
        let Some(Followed { slot, ahead }) = self.texts.remove(&key) else { return };
        for slot in ahead.into_iter().map(|(slot, _)| slot).chain([slot]) {
            // A slot that cannot be closed was not open.
            let _ = self.session.close(slot);
        }
    }
}

impl Model {
    /// Checks that the tokens of this model can be guesses for `model`: both models predict the same tokens.
    ///
    /// # Errors
    /// `Model` if the vocabularies differ, or if this model predicts no tokens.
    pub(crate) fn check_drafts_for(&self, model: &Model) -> Result<()> {
        self.check_speaks()?;
        let (own, other) = (self.facts().n_vocab, model.facts().n_vocab);
        let hint = "choose a draft model with the same vocabulary, such as a smaller model of the same family";
        if own != other {
            let text = format!("the draft model {} has {own} tokens, but the model {} has {other} tokens", self.name(), model.name());
            return Err(Error::model(text).field("draft").hint(hint));
        }
        if let (Some(own), Some(other)) = (self.vocab(), model.vocab())
            && let Some(id) = (0..model.facts().n_vocab as u32).find(|&id| own.token(id) != other.token(id))
        {
            let text = format!("the draft model {} and the model {} have different texts for token {id}", self.name(), model.name());
            return Err(Error::model(text).field("draft").hint(hint));
        }
        Ok(())
    }
}
