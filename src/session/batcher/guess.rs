//! Speculation: a step also reads guesses of the next tokens, and the host samples after each guess as long as the guesses are right. So one step can
//! yield several tokens, and each token is sampled exactly as without guesses.

use super::step::{EventSink, Hear};
use super::{Batcher, TextId};
use crate::error::{Error, Result};
use crate::exec::wait::{MAY_BLOCK, would_block};
use crate::session::propose::{Base, Draft, Offer, Pace, Proposer, Wish, free_proposers};
use crate::session::speculation::{MAX_GUESSES, MOST_GUESSES, Speculate};
use crate::session::text::Text;
use crate::session::{Model, Session, caught};
use std::borrow::{Borrow, BorrowMut};
use web_time::Instant;

/// After this many steps without a guess, a proposer that takes time is tried again. Each further wrong try doubles the number.
const TRY_AGAIN: usize = 64;
/// The largest number of such doublings.
const MOST_DOUBLINGS: u32 = 4;
/// The largest number of guesses of a proposer that takes time, until one of its guesses for the text was right. Does not limit a number of guesses
/// that the caller has set.
const FIRST: usize = 2;

/// The proposers of a batcher and the times of its steps.
pub struct Guesses {
    proposers: Vec<Box<dyn Proposer>>,
    pace: Pace,
    /// The time at which the current step began.
    began: Option<Instant>,
    /// The number of tokens that each sub-step of the current step reads, and the number of sub-steps. `None` if the step also reads a prompt.
    size: Option<(usize, u32)>,
    n_drafted: u64,
    n_accepted: u64,
}

impl Default for Guesses {
    fn default() -> Guesses {
        Guesses { proposers: free_proposers(), pace: Pace::default(), began: None, size: None, n_drafted: 0, n_accepted: 0 }
    }
}

/// The guesses that a step could check for one text.
struct Candidate {
    /// Index of the text.
    text: usize,
    /// Index of the proposer.
    by: usize,
    /// The guesses; empty if the proposer takes time and has not been asked yet.
    guesses: Vec<u32>,
    offer: Offer,
    /// True if the caller has set the number of guesses.
    is_fixed: bool,
    /// The number of guesses that the step checks.
    n: usize,
}

impl Guesses {
    /// Begins to measure the time of a step. Call this function after the guessing, because a proposer's own time counts separately.
    pub fn begin_step(&mut self) {
        (self.began, self.size) = (Some(Instant::now()), None);
    }

    /// Sets the size of the current step: `n_steps` sub-steps of `n_rows` tokens each, without tokens of a prompt. Several sub-steps mean that the
    /// device samples between them.
    pub fn set_size(&mut self, n_rows: usize, n_steps: usize) {
        self.size = Some((n_rows, n_steps.max(1) as u32));
    }

    /// Records the time of the current step. It includes sampling on the host.
    pub fn end_step(&mut self) {
        if let (Some(began), Some((n_rows, n_steps))) = (self.began.take(), self.size.take()) {
            self.pace.learn(n_rows, began.elapsed() / n_steps);
        }
    }

    /// Frees what the proposers have stored for a text.
    pub fn forget(&mut self, id: TextId) {
        self.proposers.iter_mut().for_each(|proposer| proposer.forget(id.index()));
    }

    /// Returns the guesses of the best proposer for text `i`, at most `room`. Returns `None` if no proposer has a guess.
    fn candidate(&mut self, i: usize, text: &mut Text, model: &Model, room: usize, n_rows: usize) -> Option<Candidate> {
        let (n_unread, settings, n_left) = (text.unread.len(), text.spec.speculation, text.n_left());
        text.guessing.as_mut()?.follow(&text.tokens);
        let most = settings.n_guesses.map_or(MOST_GUESSES, |n| n.min(MAX_GUESSES)).min(n_left - 1).min(room);
        if most == 0 {
            return None;
        }
        let mut best: Option<(f64, Candidate)> = None;
        let asked = |proposer: &dyn Proposer| settings.by.includes(proposer.kind()) && proposer.is_available();
        for (by, proposer) in self.proposers.iter_mut().enumerate().filter(|(_, proposer)| asked(proposer.as_ref())) {
            let guessing = text.guessing.as_mut()?;
            let right = guessing.right(by, proposer.expected());
            let mut offer = Offer { right, seconds: proposer.seconds().unwrap_or(0.0), most, n_unread };
            let mut guesses = Vec::new();
            if proposer.seconds().is_some() && settings.n_guesses.is_none() && !guessing.record(by).was_right {
                offer.most = most.min(FIRST);
            }
            if proposer.seconds().is_none() {
                let mut wish = [Wish { text, vocab: model.vocab(), most, guesses }];
                propose(proposer.as_mut(), &mut wish, model);
                [Wish { guesses, .. }] = wish;
                let Some(&first) = guesses.first() else { continue };
                text.guessing.as_mut()?.unchecked.push((by, first));
                offer.most = guesses.len().min(most);
            }
            let gain = self.pace.gain(&offer, n_rows);
            if best.as_ref().is_none_or(|(most, _)| gain > *most) {
                best = Some((gain, Candidate { text: i, by, guesses, offer, is_fixed: settings.n_guesses.is_some(), n: 0 }));
            }
        }
        best.map(|(_, candidate)| candidate)
    }

    /// Chooses how many guesses of each candidate the step checks.
    fn choose(&self, candidates: &mut [Candidate], texts: &mut [Text], base: Base) {
        let offers: Vec<Offer> = candidates.iter().map(|candidate| candidate.offer).collect();
        let counts = self.pace.choose(&offers, base);
        let mut left = base.room;
        for (candidate, count) in candidates.iter_mut().zip(counts) {
            let Some(guessing) = &mut texts[candidate.text].guessing else { continue };
            let record = guessing.record(candidate.by);
            record.n_idle = if count > 0 { 0 } else { record.n_idle + 1 };
            candidate.n = if candidate.is_fixed { candidate.offer.most } else { count };
            if candidate.offer.seconds > 0.0 && record.n_idle > TRY_AGAIN << record.n_tries.min(MOST_DOUBLINGS) {
                (record.n_idle, candidate.n) = (0, candidate.n.max(1));
                record.n_tries += 1;
            }
            candidate.n = candidate.n.min(left);
            left -= candidate.n;
        }
    }

    /// Asks the proposers that take time for the chosen numbers of guesses.
    fn ask(&mut self, candidates: &mut [Candidate], texts: &mut [Text], model: &Model) {
        for (by, proposer) in self.proposers.iter_mut().enumerate().filter(|(_, proposer)| proposer.seconds().is_some()) {
            // The candidates are in the order of their texts. The wishes get the same order, so that `zip` pairs them.
            let chosen: Vec<&mut Candidate> = candidates.iter_mut().filter(|candidate| candidate.by == by && candidate.n > 0).collect();
            let mut wishes = Vec::new();
            for (i, text) in texts.iter_mut().enumerate() {
                if let Some(candidate) = chosen.iter().find(|candidate| candidate.text == i && text.guessing.is_some()) {
                    wishes.push(Wish { text, vocab: model.vocab(), most: candidate.n, guesses: Vec::new() });
                }
            }
            if !wishes.is_empty() {
                propose(proposer.as_mut(), &mut wishes, model);
            }
            chosen.into_iter().zip(wishes).for_each(|(candidate, wish)| candidate.guesses = wish.guesses);
        }
    }
}

/// Asks a proposer. Cuts its guesses before the first id that the model does not know. Drops all guesses if the proposer panics.
fn propose(proposer: &mut dyn Proposer, wishes: &mut [Wish<'_>], model: &Model) {
    let proposed = caught(|| {
        proposer.propose(wishes);
        Ok(())
    });
    for wish in wishes {
        let is_token = |guess: &u32| (*guess as usize) < model.facts().n_vocab;
        let n = wish.guesses.iter().take(wish.most).take_while(|guess| is_token(guess)).count();
        wish.guesses.truncate(if proposed.is_ok() { n } else { 0 });
    }
    proposed.unwrap_or_else(|e| log::warn!("a proposer of guesses failed: {e}"));
}

impl<S: BorrowMut<Session>> Batcher<S> {
    /// Lets a smaller model with the same vocabulary guess for the texts that take its guesses ([`TextSpec::speculation`](crate::session::TextSpec)).
    /// `n_texts` is the largest number of texts that run at once.
    ///
    /// # Errors
    /// `Model` if the draft has another vocabulary or predicts no tokens; the errors of [`Session::new`]; `Device` in a browser.
    pub fn set_draft(&mut self, draft: &Model, n_texts: usize) -> Result<()> {
        if !MAY_BLOCK {
            return Err(would_block().hint("leave the draft model out"));
        }
        let draft = Draft::new(draft, self.session().model(), n_texts)?;
        self.guesses.proposers.retain(|proposer| proposer.kind() != Some(Speculate::Draft));
        self.add_proposer(Box::new(draft));
        Ok(())
    }

    /// Lets `proposer` guess for the texts that take its guesses, besides the proposers that the batcher has.
    pub fn add_proposer(&mut self, proposer: Box<dyn Proposer>) {
        self.guesses.proposers.push(proposer);
    }

    /// Returns how many guesses the steps have checked so far, and how many of them were right.
    pub(crate) fn n_guessed(&self) -> (u64, u64) {
        (self.guesses.n_drafted, self.guesses.n_accepted)
    }

    /// Adds guesses to the unread tokens of the texts in `order`, if they should save time. Returns whether any guess was added.
    pub(super) fn guess(&mut self) -> bool {
        let Batcher { session, texts, order, guesses, .. } = self;
        let is_wanted = order.iter().any(|&i| texts[i].guessing.is_some());
        // No guesses in a step that reads a prompt: it is long already.
        if !is_wanted || !order.iter().all(|&i| texts[i].is_decoding()) {
            return false;
        }
        let session: &Session = Borrow::borrow(session);
        let n_rows = order.iter().map(|&i| texts[i].next().len()).sum();
        let room = session.room_for_guesses(n_rows);
        let model = session.model().clone();
        let mut candidates = Vec::new();
        for &i in order.iter().filter(|_| room > 0) {
            let text = &mut texts[i];
            if text.may_guess() {
                let context = session.n_left(text.slot).ok().flatten().unwrap_or(usize::MAX);
                let room = room.min(context.saturating_sub(text.unread.len()));
                candidates.extend(guesses.candidate(i, text, &model, room, n_rows));
            }
        }
        guesses.choose(&mut candidates, texts, Base { n_texts: order.len(), n_rows, room, replays: !model.can_rewind() });
        guesses.ask(&mut candidates, texts, &model);
        let mut is_any = false;
        for Candidate { text, by, guesses, n, .. } in candidates {
            let text = &mut texts[text];
            let guesses = &guesses[..n.min(guesses.len())];
            text.unread.extend_from_slice(guesses);
            text.n_guesses = guesses.len();
            is_any |= !guesses.is_empty();
            if let Some(guessing) = text.guessing.as_mut().filter(|_| !guesses.is_empty()) {
                guessing.by = by;
                guessing.unchecked.retain(|(other, _)| *other != by);
            }
        }
        is_any
    }

    /// Samples after each guess of the finished step, as long as the guesses are right. Adds the sampled tokens to the texts.
    pub(super) fn check_guesses(&mut self, hear: &mut Hear<'_>) -> Result<()> {
        let Batcher { session, texts, order, threads, guesses: all, .. } = self;
        let session: &mut Session = session.borrow_mut();
        let model = session.model().clone();
        let mut sink = EventSink { vocab: model.vocab(), hear, is_broken: false };
        for (k, &i) in order.iter().enumerate() {
            let text = &mut texts[i];
            let n_guesses = std::mem::take(&mut text.n_guesses);
            if n_guesses == 0 {
                continue;
            }
            let n_unread = text.unread.len() - n_guesses;
            let guesses = text.unread.split_off(n_unread);
            let mut n_right = 0;
            for t in 0..=n_guesses {
                if !text.is_live() || text.error.is_some() || text.is_broken {
                    break;
                }
                let row = session.row(k, n_unread - 1 + t);
                let row = row.ok_or_else(|| Error::device("the step returned no logits after a guessed token"))?;
                // A panic in a constraint or a processor ends this text alone.
                let drawn = caught(|| text.draw(row));
                let in_time = threads.as_ref().map_or(Ok(()), |threads| threads.check_time(text));
                let drawn = in_time.and(drawn);
                let is_right = matches!((&drawn, guesses.get(t)), (Ok(Some(token)), Some(guess)) if token == guess);
                sink.drawn(i, text, drawn);
                if let Some(guessing) = text.guessing.as_deref_mut().filter(|_| t < n_guesses) {
                    guessing.learn(guessing.by, is_right);
                }
                // A stop id adds no token to `unread` and ends the text.
                if !is_right || text.unread.len() == n_unread + n_right {
                    break;
                }
                n_right += 1;
            }
            if let Some(guessing) = &text.guessing {
                all.proposers[guessing.by].learn(text.id.index(), n_right, n_guesses.min(n_right + 1));
            }
            text.drafted += n_guesses;
            text.accepted += n_right;
            (all.n_drafted, all.n_accepted) = (all.n_drafted + n_guesses as u64, all.n_accepted + n_right as u64);
            let n_read = session.settle(k, &text.unread, n_unread + n_right)?;
            text.unread.drain(..n_read);
            text.is_behind = text.unread.len() > 1;
        }
        Ok(())
    }
}
