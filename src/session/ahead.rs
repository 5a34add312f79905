//! Sampling on the device: one submission has several steps, and the host reads the ids of all steps together.
//!
//! A page is the device memory of one slot's recurrent states. A submission reads the current pages and writes new pages, so that the current pages
//! do not change. A text may end before the last step: at a stop id, at a stop text, or by the caller. Then the text's slot keeps the page from
//! before the submission, and reads the tokens of the text again.

use super::Session;
use super::generate::Batch;
use super::pages::Move;
use super::read::Clock;
use super::slots::Slot;
use super::stream::Stream;
use super::work::{Cut, Wanted};
use crate::error::Result;
use crate::exec::{MAX_AHEAD, NOTHING};
use crate::sample::{Sampler, penalty_weight};
use crate::tape::Step;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest time that a submission should take. A token reaches the caller only after its whole submission.
const LONGEST: Duration = Duration::from_millis(30);

/// The number of steps per submission: as many as take at most 30 ms together, from 1 to [`MAX_AHEAD`].
struct Pace(usize);

impl Default for Pace {
    fn default() -> Pace {
        Pace(1)
    }
}

impl Pace {
    /// Sets the number of steps of the next submission, from the time `took` of a submission of `n` steps. The new number is at most twice `n`.
    fn learn(&mut self, n: usize, took: Duration) {
        let fit = LONGEST.as_secs_f64() * n as f64 / took.as_secs_f64().max(1e-9);
        self.0 = (fit as usize).clamp(1, (2 * n).min(MAX_AHEAD));
    }
}

/// A stream (one text) whose tokens the device samples.
pub(super) struct Live {
    /// Index of the stream in its batch.
    pub stream: usize,
    slot: Slot,
    /// Tokens that the slot has not read: exactly one before each submission.
    pub unread: Vec<u32>,
    /// True if the device could not sample a token. Then the slot reads its unread tokens, and the host samples from the slot's logits, or returns an
    /// error.
    pub is_stuck: bool,
}

impl Live {
    pub fn new(stream: usize, slot: Slot, unread: Vec<u32>) -> Live {
        Live { stream, slot, unread, is_stuck: false }
    }
}

/// A submission of several steps and the ids that it sampled. The buffers are reused.
#[derive(Default)]
struct Submission {
    step: Step,
    moves: Vec<Move>,
    n_steps: usize,
    /// Sampled ids, `[n_steps, streams]`.
    ids: Vec<u32>,
}

/// The number of steps of the next submission, and buffers that each submission reuses.
#[derive(Default)]
pub(super) struct Ahead {
    pace: Pace,
    sent: Submission,
}

impl Session {
    /// Continues streams on the device until all have ended or the caller ends the batch. `drawn` lists pairs `(stream, token)`: the token that
    /// was sampled last for each stream. Afterwards every slot has read its whole text, and `drawn` is empty. Does nothing if the session
    /// does not sample on the device, or if all streams have ended.
    pub(super) fn continue_ahead(&mut self, batch: &mut Batch<'_>, drawn: &mut Vec<(usize, u32)>) -> Result<()> {
        if batch.broken || drawn.iter().all(|&(i, _)| !batch.is_live(i)) || !self.draws_ahead {
            return Ok(());
        }
        let next: Vec<(Slot, u32)> = drawn.iter().map(|&(i, token)| (batch.streams[i].slot, token)).collect();
        self.check(next.as_slice())?;
        let start = |(stream, token): (usize, u32)| Live::new(stream, batch.streams[stream].slot, vec![token]);
        let mut live: Vec<Live> = drawn.drain(..).map(start).collect();
        let mut ahead = Ahead::default();
        loop {
            let ended: Vec<Live> = live.extract_if(.., |l| batch.broken || l.is_stuck || !batch.is_live(l.stream)).collect();
            self.settle(&ended)?;
            if live.is_empty() {
                return Ok(());
            }
            self.begin_draws(batch.streams, &live)?;
            // The device's copies of the samplers are valid until a stream ends.
            while live.iter().all(|l| batch.is_live(l.stream) && !l.is_stuck) && !batch.broken {
                self.begin_drawing(batch.streams, &live, &mut ahead)?;
                self.finish_drawing(batch, &mut live, &mut ahead)?;
            }
        }
    }

    /// Copies the samplers of these streams to the device.
    pub(super) fn begin_draws(&mut self, streams: &[Stream], live: &[Live]) -> Result<()> {
        let samplers: Vec<&Sampler> = live.iter().map(|l| &streams[l.stream].sampler).collect();
        let exempt = self.exempt();
        self.executor.begin_draws(&samplers, &exempt)
    }

    /// Begins a submission of several steps for the streams of the last [`begin_draws`](Self::begin_draws). Each stream must have exactly one unread
    /// token. In each step, the device reads one token per stream and samples the stream's next token.
    pub(super) fn begin_drawing(&mut self, streams: &[Stream], live: &[Live], ahead: &mut Ahead) -> Result<()> {
        let Ahead { pace, sent } = ahead;
        let n = live.iter().map(|l| streams[l.stream].n_left()).fold(pace.0, usize::min);
        let Submission { step, moves, n_steps, .. } = sent;
        *n_steps = n;
        step.clear();
        moves.clear();
        for (row, l) in (0..).zip(live) {
            let go = self.pages.leave(self.contents(l.slot)?.page);
            step.tokens.push(l.unread[0]);
            self.add_run(step, l.slot, go.run(row, 1), n)?;
            step.outputs.push(row);
            moves.push(go);
        }
        (self.clock, self.failure) = (Clock::start(), None);
        let begun = self.executor.begin_ahead(step, n);
        if begun.is_err() {
            moves.iter().for_each(|go| self.pages.cancel(go));
        }
        begun
    }

    /// Finishes the submission of [`begin_drawing`](Self::begin_drawing), passes the sampled tokens to the streams, and returns the time per step.
    /// Afterwards, `unread` of a stream that continues is the stream's last token. For a stream that has ended, `unread` holds the tokens of the text
    /// that the slot has not read.
    pub(super) fn finish_drawing(&mut self, batch: &mut Batch<'_>, live: &mut [Live], ahead: &mut Ahead) -> Result<Duration> {
        let Ahead { pace, sent } = ahead;
        let n = sent.n_steps;
        if let Err(e) = self.check_failure().and_then(|()| self.executor.finish_ahead(&mut sent.ids)) {
            sent.moves.iter().for_each(|go| self.pages.cancel(go));
            return Err(e);
        }
        let took = self.clock.stop();
        pace.learn(n, took);
        hand_over(batch, live, &sent.ids);
        batch.broken |= self.stop.load(Ordering::Relaxed);
        for (l, go) in live.iter_mut().zip(&sent.moves) {
            self.arrive(l, go, n)?;
        }
        Ok(took / n.max(1) as u32)
    }

    /// Moves a slot to the page (device memory of states) that the `n` steps of a submission wrote. The slot keeps its old page instead if one of the
    /// sampled tokens does not belong to the text: the text had ended, or the device could not sample.
    fn arrive(&mut self, l: &mut Live, go: &Move, n: usize) -> Result<()> {
        if l.unread.len() <= n {
            self.pages.cancel(go);
            return Ok(());
        }
        let memory = self.slots.get_mut(l.slot)?;
        self.pages.finish_steps(go, n);
        memory.advance(go.page_out, &l.unread[..n], self.model.context().is_some());
        l.unread.drain(..n);
        Ok(())
    }

    /// Reads the unread tokens of texts that ended, one token per step. Each step of the last submission also read one token per slot, so the slot's
    /// state is bit-identical to the state that the submission had computed after the same tokens.
    pub(super) fn settle(&mut self, ended: &[Live]) -> Result<()> {
        let work: Vec<(Slot, &[u32])> = ended.iter().map(|l| (l.slot, l.unread.as_slice())).collect();
        self.read(work.as_slice(), Cut::OneByOne, (Wanted::Last, None), &mut |_, _| ())
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

/// Appends the sampled ids, `[steps, streams]`, to the texts of the streams, step by step.
fn hand_over(batch: &mut Batch<'_>, live: &mut [Live], ids: &[u32]) {
    let n = ids.len() / live.len().max(1);
    for drawn in ids.chunks_exact(live.len()) {
        if batch.broken {
            return;
        }
        for (l, &token) in live.iter_mut().zip(drawn) {
            if l.is_stuck || !batch.is_live(l.stream) {
                continue;
            }
            l.is_stuck = token == NOTHING;
            if l.is_stuck {
                continue;
            }
            batch.streams[l.stream].sampler.skip();
            if batch.take(l.stream, token, n) {
                l.unread.push(token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_waits_at_most_30_ms() {
        let ms = Duration::from_millis;
        let mut pace = Pace(1);
        let after: Vec<usize> = [(1, 900), (1, 2), (2, 4), (4, 8), (8, 16), (14, 28), (14, 3), (28, 6), (32, 6), (32, 100)]
            .map(|(n, took)| {
                pace.learn(n, ms(took));
                pace.0
            })
            .to_vec();
        assert_eq!(after, [1, 2, 4, 8, 15, 15, 28, 32, 32, 9]);
    }
}
