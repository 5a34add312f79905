//! Guesses by a draft model: a smaller model with the same vocabulary, on its own device and in its own number formats.

use super::followed::Texts;
use super::{Proposer, Wish};
use crate::error::{Error, Result};
use crate::sample::Sampler;
use crate::session::Model;
use crate::session::speculation::Speculate;
use std::time::Duration;
use web_time::Instant;

/// The weight of a new time in the running mean.
const NEW: f64 = 0.2;
/// The measured time of guesses includes reading at most this many tokens per text. Longer reads are rare, so their time does not count.
const SHORT: usize = 16;
/// The share of right guesses that the first text expects.
const EXPECTED: f64 = 0.7;
/// The weight of the newest step in the running share of right guesses, which new texts expect.
const OF_STEP: f64 = 0.05;
/// The least share of right guesses that a new text expects. So a draft that was useless for earlier texts is tried again.
const LEAST: f64 = 0.2;

/// Guesses with a draft model. The draft draws with a copy of the text's sampler, and so with the same random numbers. Where both models expect the
/// same tokens, the draft also guesses randomly drawn tokens right.
pub struct Draft {
    texts: Texts,
    seconds: f64,
    /// The running share of right guesses in all texts.
    right: f64,
    /// True after the device of the draft failed. There are no further guesses then.
    has_failed: bool,
}

impl Draft {
    /// Opens a session of the draft model for the guesses of `n_texts` texts of `model`.
    ///
    /// # Errors
    /// `Model` if the two models have different vocabularies, or the draft predicts no tokens; the errors of
    /// [`Session::new`](crate::session::Session::new).
    pub fn new(draft: &Model, model: &Model, n_texts: usize) -> Result<Draft> {
        draft.check_drafts_for(model)?;
        Ok(Draft { texts: Texts::new(draft, n_texts)?, seconds: 0.0, right: EXPECTED, has_failed: false })
    }

    /// Adds the guesses. Returns the moment from which their time counts: before the draft reads the texts, or afterwards if a text has more than
    /// [`SHORT`] unread tokens.
    fn guess(&mut self, wishes: &mut [Wish<'_>]) -> Result<Instant> {
        let mut began = Instant::now();
        let texts = &mut self.texts;
        let mut work = Vec::new();
        for wish in &mut *wishes {
            wish.most = wish.most.min(texts.follow(wish.text.id.index(), wish.text.known(), &mut work)?);
        }
        let is_short = work.iter().all(|(_, unread)| unread.len() <= SHORT);
        texts.session.prefill_many(&work, &mut |_, _| ())?;
        if !is_short {
            began = Instant::now();
        }
        let mut samplers: Vec<Sampler> = wishes.iter().map(|wish| wish.text.spec.sampler.clone()).collect();
        let model = texts.session.model().clone();
        for n_guessed in 0.. {
            let mut work = Vec::new();
            for (wish, sampler) in
                wishes.iter_mut().zip(&mut samplers).filter(|(wish, _)| wish.guesses.len() == n_guessed && n_guessed < wish.most)
            {
                let Some(logits) = texts.logits(wish.key())? else { continue };
                // If the settings exclude every token, sampling the text itself reports the error.
                let Ok(guess) = sampler.sample(logits) else { continue };
                if wish.text.stop_ids.contains(&guess) {
                    continue;
                }
                sampler.accept(guess, wish.text.weight(guess, model.vocab()));
                wish.guesses.push(guess);
                if wish.guesses.len() < wish.most {
                    match texts.guessed(wish.key(), guess)? {
                        Some(slot) => work.push((slot, guess)),
                        None => wish.most = wish.guesses.len(),
                    }
                }
            }
            if work.is_empty() {
                break;
            }
            texts.session.decode_many(&work)?;
        }
        Ok(began)
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
        self.right.max(LEAST)
    }

    fn is_available(&self) -> bool {
        !self.has_failed
    }

    fn propose(&mut self, wishes: &mut [Wish<'_>]) {
        // A panic in `guess` leaves this set, because no slot of a text can be trusted after a panic.
        self.has_failed = true;
        let guessed = self.guess(wishes);
        self.has_failed = guessed.is_err();
        let began = match guessed {
            Ok(began) => began,
            Err(e) => {
                log::warn!("the draft model guesses no further tokens: {e}");
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

    fn learn(&mut self, key: usize, n_right: usize, n_compared: usize) {
        self.right += OF_STEP * (n_right as f64 / n_compared as f64 - self.right);
        self.texts.earn(key, n_right);
    }

    fn forget(&mut self, key: usize) {
        self.texts.forget(key);
    }
}

impl Model {
    /// Checks that the tokens of this model can be guesses for `model`: both models predict the same tokens.
    ///
    /// # Errors
    /// `Model` if the vocabularies differ, or if this model predicts no tokens.
    pub fn check_drafts_for(&self, model: &Model) -> Result<()> {
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
