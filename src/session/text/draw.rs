//! Samples the tokens of a text on the host.

use super::{Text, TextSpec, allowed_after, tell};
use crate::constrain::{self, Constraint};
use crate::error::{Error, Result};
use crate::sample::Sampler;
use crate::session::{Logprobs, caught};
use std::sync::mpsc::Receiver;
use std::time::Duration;
use web_time::Instant;

/// The mean time of a draw above which a constraint counts as slow.
pub(in crate::session) const SLOW: Duration = Duration::from_millis(20);

/// Draws one token under a constraint. Owns everything that drawing needs, so any thread can draw.
pub(in crate::session) struct Draw {
    constraint: Box<dyn Constraint>,
    sampler: Sampler,
    /// Logits `[vocab]`, after the processor.
    logits: Vec<f32>,
    /// Tokens of the text that the constraint has not accepted yet.
    untold: Vec<u32>,
    stop_ids: Vec<u32>,
    /// The number of tokens by which the text may still grow.
    left: usize,
    is_closing: bool,
    /// True if the constraint has accepted the token that was drawn.
    has_told_last: bool,
}

impl Draw {
    /// Returns the token, or `None` if the constraint allows no further token.
    pub fn run(&mut self) -> Result<Option<u32>> {
        let Draw { constraint, sampler, logits, untold, stop_ids, left, .. } = self;
        let constraint = constraint.as_mut();
        untold.drain(..).try_for_each(|token| constraint.accept(token))?;
        let allowed = constraint.allowed()?;
        if allowed.is_complete() {
            return Ok(None);
        }
        allowed.mask(logits, stop_ids);
        let drawn = constrain::draw(constraint, logits, stop_ids, *left, &mut |logits| sampler.draw(logits))
            .map_err(|e| Error { hint: None, ..e }.hint("the grammar allows only tokens that are banned or have no probability"))?;
        self.is_closing = drawn.is_closing;
        if let Some(token) = drawn.token.filter(|token| *left == 1 && !stop_ids.contains(token)) {
            // This token reaches the text's limit, so the caller will ask whether the text may end. The constraint computes the answer now and keeps
            // it: this may take long, and a draw may run on another thread than the step.
            constraint.accept(token)?;
            self.has_told_last = true;
            let _ = constraint.allowed();
        }
        Ok(drawn.token)
    }
}

/// A draw on another thread.
pub(in crate::session) struct Drawing {
    pub result: Receiver<Drawn>,
    pub begun: Instant,
    pub is_slow: bool,
}

/// A draw that has ended.
pub(in crate::session) struct Drawn {
    pub draw: Draw,
    pub result: Result<Option<u32>>,
    pub took: Duration,
}

impl Text {
    /// Returns whether the host must sample: for a processor, a constraint, log-probabilities, `counts_every_token`, or settings of the sampler
    /// that the device's kernel does not support.
    pub(in crate::session) fn needs_host(&self) -> bool {
        self.is_watched() || self.spec.counts_every_token || self.spec.n_logprobs.is_some() || !self.spec.sampler.fits_device()
    }

    /// Returns whether a processor or a constraint must see the logits before each sampling.
    fn is_watched(&self) -> bool {
        self.spec.processor.is_some() || self.spec.constraint.is_some()
    }

    /// Samples the next token on the host from logits `[vocab]`. Returns `None` if the constraint allows no further token.
    pub(in crate::session) fn draw(&mut self, logits: &[f32]) -> Result<Option<u32>> {
        if let Some(mut draw) = self.begin_draw(logits) {
            let (began, result) = (Instant::now(), draw.run());
            return self.end_draw(draw, result, began.elapsed(), logits);
        }
        let drawn = match &mut self.spec.processor {
            // The guard must check the model's own logits: a processor may make logits infinite.
            Some(change) if self.spec.sampler.guarded(logits).is_none() => {
                logits.clone_into(&mut self.scratch);
                change(&self.tokens, &mut self.scratch);
                self.spec.sampler.draw(&self.scratch)?
            }
            _ => self.spec.sampler.sample(logits)?,
        };
        self.logprobs = self.spec.n_logprobs.map(|n| Logprobs::of(logits, drawn, n));
        Ok(Some(drawn))
    }

    /// Begins to draw the next token under the constraint: moves everything that the draw needs out of the text. Returns `None` without a constraint.
    /// Until [`end_draw`](Self::end_draw), only [`end`](Self::end) may be called.
    pub(in crate::session) fn begin_draw(&mut self, logits: &[f32]) -> Option<Draw> {
        let constraint = self.spec.constraint.take()?;
        logits.clone_into(&mut self.scratch);
        // The guard must check the model's own logits: a processor may make logits infinite, and a constraint always does.
        let change = self.spec.processor.as_mut().filter(|_| self.spec.sampler.guarded(logits).is_none());
        change.into_iter().for_each(|change| change(&self.tokens, &mut self.scratch));
        self.is_lent = true;
        Some(Draw {
            constraint,
            sampler: self.spec.sampler.clone(),
            logits: std::mem::take(&mut self.scratch),
            untold: self.tokens[self.n_told..].to_vec(),
            stop_ids: self.stop_ids.clone(),
            left: self.n_left(),
            is_closing: false,
            has_told_last: false,
        })
    }

    /// Puts back everything that [`begin_draw`](Self::begin_draw) moved out, and returns the token. `took` is the time of the draw.
    pub(in crate::session) fn end_draw(
        &mut self,
        draw: Draw,
        result: Result<Option<u32>>,
        took: Duration,
        logits: &[f32],
    ) -> Result<Option<u32>> {
        (self.spec.constraint, self.spec.sampler, self.scratch) = (Some(draw.constraint), draw.sampler, draw.logits);
        self.n_told = self.tokens.len() + usize::from(draw.has_told_last);
        self.is_closing |= draw.is_closing;
        self.is_lent = false;
        self.spent += took;
        let token = result?;
        self.logprobs = self.spec.n_logprobs.zip(token).map(|(n, token)| Logprobs::of(logits, token, n));
        Ok(token)
    }

    /// Returns the time that the constraint has taken so far.
    pub(in crate::session) fn spent(&self) -> Duration {
        self.spent
    }

    /// Returns whether the constraint takes more than 20 ms per token.
    pub(in crate::session) fn is_slow(&self) -> bool {
        self.spent > SLOW * self.tokens.len().max(1) as u32
    }

    /// Returns the bytes that the constraint requires next. Returns no bytes without a constraint, or if there is a choice.
    pub(in crate::session) fn forced(&mut self) -> Vec<u8> {
        let Text { spec: TextSpec { constraint, .. }, tokens, n_told, spent, .. } = self;
        let Some(constraint) = constraint else { return Vec::new() };
        let began = Instant::now();
        // An error is reported when the next token is drawn.
        let forced = caught(|| tell(constraint.as_mut(), tokens, n_told).map(|()| constraint.forced()));
        *spent += began.elapsed();
        forced.unwrap_or_default()
    }

    /// Returns whether the constraint allows the text to end here, and whether it requires the end. Returns `None` without a constraint. Both values
    /// are false if the constraint returns an error.
    pub(super) fn may_end(&mut self) -> Option<(bool, bool)> {
        let Text { spec: TextSpec { constraint, .. }, tokens, n_told, .. } = self;
        let constraint = constraint.as_mut()?.as_mut();
        let ends = caught(|| allowed_after(constraint, tokens, n_told).map(|allowed| (allowed.may_end, allowed.is_complete())));
        Some(ends.unwrap_or_default())
    }
}
