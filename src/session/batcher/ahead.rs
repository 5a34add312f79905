//! Sampling on the device: one submission has several steps, and the host reads the ids of all steps together.
//!
//! A submission writes to new pages (memory of recurrent states) and leaves the current pages unchanged. A text may end before the last step: at a
//! stop id, at a stop text, or because the caller ends it. The slot of such a text keeps its current page and reads the tokens of the text again.

use super::Batcher;
use super::step::{EventSink, Hear, PendingStep};
use crate::error::Result;
use crate::exec::{MAX_AHEAD, NOTHING};
use crate::sample::Sampler;
use crate::session::Session;
use std::borrow::BorrowMut;
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
    /// Sets the number of steps of the next submission, after a submission of `n` steps took the time `took`. The new number is at most twice `n`.
    fn learn(&mut self, n: usize, took: Duration) {
        let fit = LONGEST.as_secs_f64() * n as f64 / took.as_secs_f64().max(1e-9);
        self.0 = (fit as usize).clamp(1, (2 * n).min(MAX_AHEAD));
    }
}

/// The number of steps of the next submission, and the results of the last one.
#[derive(Default)]
pub struct Ahead {
    pace: Pace,
    n_steps: usize,
    /// Sampled ids, `[n_steps, texts]`.
    ids: Vec<u32>,
}

impl<S: BorrowMut<Session>> Batcher<S> {
    /// Begins a submission of several steps for the texts in `order`, which have exactly one unread token each. In each step, the device reads
    /// one token per text and samples the next.
    pub(super) fn begin_drawing(&mut self) -> Result<PendingStep> {
        if !self.has_samplers {
            self.send_samplers()?;
        }
        let Batcher { session, texts, order, ahead, has_samplers, .. } = self;
        *has_samplers = false;
        let session: &mut Session = session.borrow_mut();
        let n = order.iter().map(|&i| texts[i].n_left()).fold(ahead.pace.0, usize::min);
        ahead.n_steps = n;
        session.begin_draws(order.iter().map(|&i| (texts[i].slot, texts[i].unread[0])), n)?;
        *has_samplers = true;
        Ok(PendingStep::Drawing)
    }

    /// Copies the samplers of the texts in `order` to the device.
    fn send_samplers(&mut self) -> Result<()> {
        let Batcher { session, texts, order, .. } = self;
        let session: &mut Session = session.borrow_mut();
        let samplers: Vec<&Sampler> = order.iter().map(|&i| &texts[i].spec.sampler).collect();
        session.send_samplers(&samplers)
    }

    /// Finishes the submission of [`begin_drawing`](Self::begin_drawing) and adds the sampled tokens to the texts. Afterwards, a text that continues
    /// has one unread token, its last token. A text that has ended may have several unread tokens.
    pub(super) fn finish_drawing(&mut self, hear: &mut Hear<'_>) -> Result<()> {
        let Batcher { session, texts, order, ahead, prefill, guesses, has_samplers, .. } = self;
        let session: &mut Session = session.borrow_mut();
        let n = ahead.n_steps;
        let took = session.finish_draws(&mut ahead.ids).inspect_err(|_| *has_samplers = false)?;
        ahead.pace.learn(n, took);
        guesses.set_size(order.len(), n);
        if let Some(bound) = prefill {
            bound.learn(0, order.len(), took / n.max(1) as u32);
        }
        let model = session.model().clone();
        let mut sink = EventSink { vocab: model.vocab(), hear, is_broken: false };
        for drawn in ahead.ids.chunks_exact(order.len()) {
            if sink.is_broken {
                break;
            }
            for (&i, &token) in order.iter().zip(drawn) {
                let text = &mut texts[i];
                if text.is_stuck || !text.is_live() {
                    continue;
                }
                text.is_stuck = token == NOTHING;
                if text.is_stuck {
                    continue;
                }
                text.spec.sampler.skip();
                if sink.take(i, text, token, n) {
                    text.unread.push(token);
                }
            }
        }
        for (k, &i) in order.iter().enumerate() {
            let text = &mut texts[i];
            if text.unread.len() > n {
                // All sampled tokens belong to the text, so the slot moves to the page that the submission wrote.
                session.settle_draws(k, text.slot, Some(&text.unread[..n]))?;
                text.unread.drain(..n);
            } else {
                // The text had ended, or the device could not sample. Reading the tokens again, one per step, gives a bit-identical state.
                session.settle_draws(k, text.slot, None)?;
                text.is_stuck |= !text.is_live() || sink.is_broken;
            }
            *has_samplers &= !text.is_stuck;
        }
        Ok(())
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
