//! Tokens drawn where the model runs: several steps a submission, whose ids the host reads together.
//!
//! A submission leaves the pages that it began on as they were. Where the host then finds that a text ended in the middle (a stop
//! id, a stop text, a caller who had enough), the slot goes back to its page and reads what was accepted.

use super::Session;
use super::generate::Batch;
use super::pages::Move;
use super::read::Clock;
use super::slots::Slot;
use super::stream::Stream;
use super::work::Cut;
use crate::error::Result;
use crate::exec::{MAX_AHEAD, NOTHING};
use crate::sample::{Sampler, penalty_weight};
use crate::tape::Step;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A token waits at the most this long for those that are drawn with it.
const LONGEST: Duration = Duration::from_millis(30);

/// How many tokens a submission draws: as many as take 30 ms, one where a single one takes longer.
struct Pace(usize);

impl Default for Pace {
    fn default() -> Pace {
        Pace(1)
    }
}

impl Pace {
    /// Doubles at most: the first submission made the kernels, too.
    fn learn(&mut self, n: usize, took: Duration) {
        let fit = LONGEST.as_secs_f64() * n as f64 / took.as_secs_f64().max(1e-9);
        self.0 = (fit as usize).clamp(1, (2 * n).min(MAX_AHEAD));
    }
}

/// A stream that draws ahead.
pub(super) struct Live {
    pub stream: usize,
    slot: Slot,
    /// Tokens that the slot's state has not read: one while it goes on.
    pub unread: Vec<u32>,
    /// The device found nothing to draw: the host says why.
    pub is_stuck: bool,
}

impl Live {
    pub fn new(stream: usize, slot: Slot, unread: Vec<u32>) -> Live {
        Live { stream, slot, unread, is_stuck: false }
    }
}

/// What goes to the device and comes back, kept for its memory.
#[derive(Default)]
struct Submission {
    step: Step,
    moves: Vec<Move>,
    n_steps: usize,
    /// `[n_steps, streams]`
    ids: Vec<u32>,
}

/// What is kept from one submission to the next.
#[derive(Default)]
pub(super) struct Ahead {
    pace: Pace,
    sent: Submission,
}

impl Session {
    /// Goes on with streams that each hold a token that was drawn, `(stream, token)`, until all have ended or the caller breaks
    /// off; then every slot stands after its text, and `drawn` is empty. Does nothing where the host draws.
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
            // Until one of them ends.
            while live.iter().all(|l| batch.is_live(l.stream) && !l.is_stuck) && !batch.broken {
                self.begin_drawing(batch.streams, &live, &mut ahead)?;
                self.finish_drawing(batch, &mut live, &mut ahead)?;
            }
        }
    }

    /// Tells the device for whom to draw.
    pub(super) fn begin_draws(&mut self, streams: &[Stream], live: &[Live]) -> Result<()> {
        let samplers: Vec<&Sampler> = live.iter().map(|l| &streams[l.stream].sampler).collect();
        let exempt = self.exempt();
        self.executor.begin_draws(&samplers, &exempt)
    }

    /// Begins a submission for streams of whom the device knows, each with a token unread: reads it, draws and reads some more and draws a
    /// last one.
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

    /// Ends what [`begin_drawing`](Self::begin_drawing) began. Streams that go on have one token unread then; of those that do not, `unread` is what
    /// their slot has not read of the text. Returns how long each step took.
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

    /// A slot goes on to where the submission of `n` steps left it if its text does, and stays where it was if not.
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

    /// Reads what a text still holds, token by token, as the submission did, so that the numbers are the same.
    pub(super) fn settle(&mut self, ended: &[Live]) -> Result<()> {
        let work: Vec<(Slot, &[u32])> = ended.iter().map(|l| (l.slot, l.unread.as_slice())).collect();
        self.read(work.as_slice(), Cut::OneByOne, None, &mut |_, _| ())
    }

    /// A bit an id: its tokens count nothing in penalties. Empty without a vocabulary, where every token counts.
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

/// Hands the texts what was drawn, `[n, streams]`, in the order in which it was.
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
    fn a_token_waits_30_ms_at_the_most() {
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
