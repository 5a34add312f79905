//! Submissions of several steps in which the device also samples: each step reads one token per slot and samples the next token.

use super::pages::Move;
use super::read::Clock;
use super::{Session, Slot};
use crate::error::Result;
use crate::sample::{Sampler, penalty_weight};
use crate::tape::Step;
use std::sync::Arc;
use std::time::Duration;

/// The last submission, whose buffers are reused.
#[derive(Default)]
pub(super) struct Draws {
    step: Step,
    moves: Vec<Move>,
}

impl Session {
    /// Copies samplers to the device: one per slot of the next submissions, in the order of the slots.
    pub(super) fn send_samplers(&mut self, samplers: &[&Sampler]) -> Result<()> {
        let exempt = self.exempt();
        self.executor.begin_draws(samplers, &exempt)
    }

    /// Begins a submission of `n` steps. `work` lists the slots, each with the token that the slot reads in the first step. The slots keep their
    /// current pages until [`settle_draws`](Self::settle_draws).
    pub(super) fn begin_draws(&mut self, work: impl Iterator<Item = (Slot, u32)>, n: usize) -> Result<()> {
        let mut draws = std::mem::take(&mut self.draws);
        let begun = self.submit_draws(&mut draws, work, n);
        self.draws = draws;
        begun
    }

    fn submit_draws(&mut self, Draws { step, moves }: &mut Draws, work: impl Iterator<Item = (Slot, u32)>, n: usize) -> Result<()> {
        step.clear();
        moves.clear();
        for (row, (slot, token)) in (0..).zip(work) {
            let go = self.pages.leave(self.contents(slot)?.page);
            step.tokens.push(token);
            self.add_run(step, slot, go.run(row, 1), n)?;
            step.outputs.push(row);
            moves.push(go);
        }
        (self.clock, self.failure) = (Clock::start(), None);
        self.executor.begin_ahead(step, n).inspect_err(|_| moves.iter().for_each(|go| self.pages.cancel(go)))
    }

    /// Waits for the submission, and writes the sampled ids, `[n, slots]`, to `ids`. Returns how long the submission took. After an error, the slots
    /// are as they were before the submission.
    pub(super) fn finish_draws(&mut self, ids: &mut Vec<u32>) -> Result<Duration> {
        if let Err(e) = self.check_failure().and_then(|()| self.executor.finish_ahead(ids)) {
            self.draws.moves.iter().for_each(|go| self.pages.cancel(go));
            return Err(e);
        }
        Ok(self.clock.stop())
    }

    /// Moves the slot of the `k`-th sampler to the state after the submission. `read` are the tokens that the slot read in its steps. With `None`,
    /// the slot keeps the state that it had before.
    pub(super) fn settle_draws(&mut self, k: usize, slot: Slot, read: Option<&[u32]>) -> Result<()> {
        let go = &self.draws.moves[k];
        let Some(read) = read else {
            self.pages.cancel(go);
            return Ok(());
        };
        let keeps = self.model.context().is_some();
        let contents = self.slots.get_mut(slot)?;
        self.pages.finish_steps(go, read.len());
        contents.advance(go.page_out, read, keeps);
        Ok(())
    }

    /// Returns one bit per token id, set if the token does not count in penalties. Without a vocabulary, returns an empty slice, so that every
    /// token counts.
    fn exempt(&mut self) -> Arc<[u32]> {
        let model = self.model.clone();
        let exempt = self.exempt.get_or_insert_with(|| {
            let Some(vocab) = model.vocab() else { return Arc::default() };
            let mut bits = vec![0u32; model.facts().n_vocab.div_ceil(32)];
            for id in (0..model.facts().n_vocab as u32).filter(|&id| penalty_weight(vocab.token(id)) == 0.0) {
                bits[id as usize / 32] |= 1 << (id % 32);
            }
            bits.into()
        });
        exempt.clone()
    }
}
