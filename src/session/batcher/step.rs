//! A step of all texts. The host begins the step, and finishes it when the device is done.

use super::swap::Swapped;
use super::{Batcher, Done};
use crate::error::{Error, Result};
use crate::session::logprobs::Logprobs;
use crate::session::slots::Slot;
use crate::session::text::{Finish, Text, TextId, TokenEvent};
use crate::session::work::{LogitRows, ReadList};
use crate::session::{Session, caught};
use crate::vocab::Vocab;
use std::borrow::{Borrow, BorrowMut};
use std::ops::ControlFlow;

/// Callback for events. An event has text as soon as later tokens can no longer change this text.
pub(super) type OnEvent<'a> = dyn FnMut(TextId, TokenEvent<'_>) + 'a;

/// Callback for events that can end texts: `Break` ends the text of the event, and drops the tokens that the device has sampled in advance.
pub(in crate::session) type Hear<'a> = dyn FnMut(TextId, TokenEvent<'_>) -> ControlFlow<()> + 'a;

/// A step that was begun and is not finished. [`Batcher::order`] lists the texts that take part.
#[derive(Clone, Copy)]
pub enum PendingStep {
    /// The device computes logits for tokens that the slots read. Then the host samples for each text without unread tokens.
    Reading {
        /// The number of decoding texts, which come first in `order`. Texts that prefill follow.
        n_first: usize,
        /// The number of decoding texts that have a token to read. For the other decoding texts, the host only samples.
        n_decoding: usize,
        /// True if the device has work. False if no text had tokens to read.
        has_begun: bool,
    },
    /// The device samples several tokens for each text.
    Drawing,
}

/// The tokens that the texts in `order` read in one step.
struct Reads<'a> {
    order: &'a [usize],
    texts: &'a [Text],
}

impl ReadList for Reads<'_> {
    fn len(&self) -> usize {
        self.order.len()
    }
    fn slot(&self, i: usize) -> Slot {
        self.texts[self.order[i]].slot
    }
    fn tokens(&self, i: usize) -> &[u32] {
        self.texts[self.order[i]].next()
    }
    fn n_guesses(&self, i: usize) -> usize {
        self.texts[self.order[i]].n_guesses
    }
}

/// Adds sampled tokens to texts, and passes the new text to the caller's callback.
pub(super) struct EventSink<'a, 'b> {
    pub vocab: Option<&'a Vocab>,
    pub hear: &'a mut Hear<'b>,
    /// True after the callback has returned `Break`.
    pub is_broken: bool,
}

impl EventSink<'_, '_> {
    /// Appends a token to `text`, which has index `at`. `n_together` becomes [`TokenEvent::n_together`]. Returns whether the token
    /// belongs to the text; a stop id does not.
    pub fn take(&mut self, at: usize, text: &mut Text, token: u32, n_together: usize) -> bool {
        let (id, is_text) = (text.id, text.take(token, self.vocab));
        let logprobs = if is_text { text.logprobs.take() } else { None };
        let event =
            TokenEvent { text: at, token: is_text.then_some(token), piece: text.new_text(), n_together, logprobs: logprobs.as_ref() };
        let is_broken = (self.hear)(id, event).is_break();
        text.is_broken |= is_broken;
        self.is_broken |= text.is_broken;
        is_text
    }

    /// Adds what was drawn for `text`, which has index `at`: a token, the end of the text, or an error.
    pub fn drawn(&mut self, at: usize, text: &mut Text, drawn: Result<Option<u32>>) {
        match drawn {
            Ok(Some(token)) => {
                if self.take(at, text, token, 1) {
                    text.unread.push(token);
                }
            }
            Ok(None) => self.end(at, text, Finish::Eos),
            Err(e) => text.error = Some(e),
        }
    }

    /// Ends `text`, and passes on the text that was held back.
    pub fn end(&mut self, at: usize, text: &mut Text, finish: Finish) {
        text.end(finish);
        self.tell(at, text);
    }

    /// Passes on new text of `text`, without a token.
    pub fn tell(&mut self, at: usize, text: &mut Text) {
        let id = text.id;
        let event = TokenEvent { text: at, token: None, piece: text.new_text(), n_together: 0, logprobs: None };
        self.is_broken |= (self.hear)(id, event).is_break();
    }
}

impl<S: BorrowMut<Session>> Batcher<S> {
    /// Runs one step of all texts: decodes one token per text, and prefills waiting prompts up to the size of a chunk. If no prompt waits and the
    /// device can sample for all texts, decodes several tokens per text instead. Calls `on_event` with new text as soon as later tokens can no longer
    /// change this text. In an event, `text` is the text's index among the running texts. Returns the texts that ended.
    ///
    /// Blocks until the device is done. [`begin_step`](Self::begin_step) and [`finish_step`](Self::finish_step) are the two halves of this
    /// function.
    ///
    /// # Errors
    /// The errors of [`Session::decode_many`]. After an error the next step ends all texts with that error.
    pub fn step(&mut self, on_event: &mut OnEvent<'_>) -> Result<Vec<Done>> {
        self.begin_step()?;
        self.finish_step(on_event)
    }

    /// Begins a step and returns while the device works. Does nothing if the last step is not finished yet. Texts may be added and cancelled before
    /// the step is finished. Added texts take part in the next step.
    ///
    /// # Errors
    /// The errors of [`step`](Self::step).
    pub fn begin_step(&mut self) -> Result<()> {
        if self.pending_step.is_some() {
            return Ok(());
        }
        self.order.clear();
        self.order.extend((0..self.texts.len()).filter(|&i| self.texts[i].is_running()));
        let has_guesses = self.guess();
        self.guesses.begin_step();
        let texts = &self.texts;
        let samples_ahead = self.session().draws_ahead && !has_guesses && !self.order.is_empty();
        let begun = match samples_ahead && self.order.iter().all(|&i| texts[i].samples_on_device()) {
            true => self.begin_drawing(),
            false => self.begin_reading(),
        };
        self.pending_step = Some(begun.inspect_err(|e| self.fail(e))?);
        Ok(())
    }

    /// Returns whether [`finish_step`](Self::finish_step) would return without blocking.
    ///
    /// # Errors
    /// `Device` if the device failed.
    pub fn is_ready(&mut self) -> Result<bool> {
        if self.pending_step.is_none() { Ok(true) } else { self.session.borrow_mut().is_ready() }
    }

    /// Waits until [`finish_step`](Self::finish_step) would not block. In a browser, the future awaits the device. Elsewhere, polling the future
    /// blocks the thread. Dropping the future does not cancel the step.
    ///
    /// # Errors
    /// `Device` if the device failed.
    pub async fn ready(&mut self) -> Result<()> {
        let has_begun = matches!(self.pending_step, Some(PendingStep::Reading { has_begun: true, .. }));
        let is_pooled = has_begun && self.order.iter().any(|&i| self.texts[i].pool.as_ref().is_some_and(|pool| !pool.takes_logits()));
        let session: &mut Session = self.session.borrow_mut();
        match &self.pending_step {
            None => Ok(()),
            Some(_) if is_pooled => session.hidden_ready().await,
            Some(_) => session.ready().await,
        }
    }

    /// Finishes the step that was begun: blocks until the device is done, samples, and returns the texts that ended, as [`step`](Self::step)
    /// does. Returns no texts if no step was begun.
    ///
    /// # Errors
    /// The errors of [`step`](Self::step). In a browser, returns a `Device` error if the device is not done yet, so await
    /// [`ready`](Self::ready) first.
    pub fn finish_step(&mut self, on_event: &mut OnEvent<'_>) -> Result<Vec<Done>> {
        self.finish_step_with(&mut |id, event| {
            on_event(id, event);
            ControlFlow::Continue(())
        })
    }

    /// Does what [`finish_step`](Self::finish_step) does. `hear` can return `Break` to end the text of an event at exactly this event.
    pub(crate) fn finish_step_with(&mut self, hear: &mut dyn FnMut(TextId, TokenEvent<'_>) -> ControlFlow<()>) -> Result<Vec<Done>> {
        let done = |mut text: Text| Done { id: text.id, output: text.error.take().map_or(Ok(text), Err) };
        Ok(self.finish_texts(hear)?.into_iter().map(done).collect())
    }

    /// Finishes the step that was begun. Returns the texts that ended, without cancelled texts.
    pub(in crate::session) fn finish_texts(&mut self, hear: &mut Hear<'_>) -> Result<Vec<Text>> {
        let Some(pending_step) = self.pending_step.take() else { return Ok(Vec::new()) };
        let landed = match pending_step {
            PendingStep::Reading { n_first, n_decoding, has_begun } => {
                let read = if has_begun { self.finish_reading(n_first, n_decoding) } else { Ok(()) };
                read.and_then(|()| self.check_guesses(hear)).and_then(|()| self.draw(hear))
            }
            PendingStep::Drawing => self.finish_drawing(hear),
        };
        landed.inspect_err(|e| {
            self.session.borrow_mut().drop_guesses();
            self.fail(e);
        })?;
        self.guesses.end_step();
        self.interrupt(|text| text.is_broken, hear);
        self.retire()
    }

    /// Makes all texts end with the error `e` in the next step, because the content of their slots is undefined after a failed step.
    fn fail(&mut self, e: &Error) {
        for text in &mut self.texts {
            text.error.get_or_insert_with(|| e.clone());
        }
    }

    fn begin_reading(&mut self) -> Result<PendingStep> {
        let Batcher { session, texts, order, prefill, .. } = self;
        // Decoding texts are first, so that none of them waits for a prompt. The stable sort keeps the order of the prompts.
        order.sort_by_key(|&i| !texts[i].is_decoding());
        let n_first = order.partition_point(|&i| texts[i].is_decoding());
        let mut wanted = LogitRows::Last;
        // A step returns either all logits or the last logits of each prompt. Prompts that need all logits are read first.
        if order[n_first..].iter().any(|&i| texts[i].needs_all_rows()) {
            let mut at = 0;
            order.retain(|&i| {
                at += 1;
                at <= n_first || texts[i].needs_all_rows()
            });
            wanted = LogitRows::All;
        }
        let n_rows = order[..n_first].iter().map(|&i| texts[i].next().len()).sum::<usize>().max(n_first);
        let n_decoding = order[..n_first].iter().filter(|&&i| !texts[i].unread.is_empty()).count();
        let most = match prefill {
            Some(bound) if n_decoding > 0 && order.len() > n_first => n_rows.saturating_add(bound.tokens(n_decoding)),
            _ => usize::MAX,
        };
        if most <= n_rows {
            order.truncate(n_first);
        }
        let has_begun = session.borrow_mut().begin_some(&Reads { order, texts }, most, wanted)? > 0;
        self.has_samplers = false;
        Ok(PendingStep::Reading { n_first, n_decoding, has_begun })
    }

    fn finish_reading(&mut self, n_first: usize, n_decoding: usize) -> Result<()> {
        let session: &mut Session = self.session.borrow_mut();
        session.finish_read()?;
        let n_prompt = session.n_read()[n_first..].iter().sum();
        let took = session.clock.stop();
        let n_rows: usize = session.n_read().iter().sum();
        // Steps with guesses do not count, because they take longer than steps that only decode.
        if let Some(bound) = self.prefill.as_mut().filter(|_| n_decoding > 0 && (n_prompt > 0 || n_rows == n_decoding)) {
            bound.learn(n_prompt, n_decoding, took);
        }
        if n_prompt == 0 {
            self.guesses.set_size(n_rows, 1);
        }
        self.pool()?;
        let Batcher { session, texts, order, .. } = self;
        session.borrow_mut().each_row(&mut |k, t, row| {
            let text = &mut texts[order[k]];
            if let (Some(n), Some(&next)) = (text.spec.n_prompt_logprobs, text.unread.get(t + 1)) {
                text.prompt_logprobs.push(Logprobs::of(row, next, n));
            }
            Ok(())
        })?;
        for k in 0..self.order.len() {
            let (i, n_read) = (self.order[k], self.session().n_read()[k]);
            let text = &mut self.texts[i];
            if text.n_guesses > 0 {
                continue;
            }
            text.unread.drain(..n_read);
            text.is_behind &= text.unread.len() > 1;
            if text.unread.is_empty() && text.spec.n_prompt_logprobs.take().is_some() {
                self.prompt_logprobs.push((text.id, std::mem::take(&mut text.prompt_logprobs)));
            }
            // All tokens are read, so a pool that remains never received the last hidden state. Without an error, the text would wait for its vector
            // forever.
            if text.unread.is_empty() && text.pool.take().is_some() {
                text.error = Some(Error::device("the step returned no hidden state after the last token of the prompt"));
            }
            self.keep_marked(i)?;
        }
        Ok(())
    }

    /// Adds the hidden states and the logits of the finished step to the pools of its texts. If a pool has the row after the last prompt token, moves
    /// the vector to `pooled`.
    fn pool(&mut self) -> Result<()> {
        self.pool_rows(true)?;
        self.pool_rows(false)
    }

    /// Adds the logits of the finished step to the pools that take logits, or its hidden states to the other pools.
    fn pool_rows(&mut self, of_logits: bool) -> Result<()> {
        let Batcher { session, texts, order, pooled, .. } = self;
        let takes = |text: &Text| text.pool.as_ref().is_some_and(|pool| pool.takes_logits() == of_logits);
        if !order.iter().any(|&i| takes(&texts[i])) {
            return Ok(());
        }
        let session: &mut Session = session.borrow_mut();
        let mut add = |k: usize, t: usize, row: &[f32]| {
            let text = &mut texts[order[k]];
            if !takes(text) {
                return Ok(());
            }
            let is_last = t + 1 == text.unread.len();
            if let Some(pool) = &mut text.pool {
                pool.add(row, text.unread[t], is_last);
            }
            if let Some(pool) = if is_last { text.pool.take() } else { None } {
                // A panic in the layers of a task ends this text alone.
                match caught(|| pool.vector()) {
                    Ok(vector) => pooled.push((text.id, vector)),
                    Err(e) => text.error = Some(e),
                }
            }
            Ok(())
        };
        if of_logits { session.each_row(&mut add) } else { session.each_hidden(&mut add) }
    }

    /// Samples one token on the host for each text without unread tokens, and for each of its followers. A draw under a constraint may run on another
    /// thread: this function begins such draws, and takes the results of draws that have ended.
    fn draw(&mut self, hear: &mut Hear<'_>) -> Result<()> {
        let texts = &self.texts;
        self.order.retain(|&i| texts[i].unread.is_empty());
        for k in 0..self.order.len() {
            let before = self.texts.len();
            self.fork_followers(self.order[k])?;
            self.order.extend(before..self.texts.len());
        }
        let Batcher { session, texts, order, swapped, .. } = self;
        let session: &Session = Borrow::borrow(session);
        let mut sink = EventSink { vocab: session.model().vocab(), hear, is_broken: false };
        for &i in order.iter() {
            let text = &mut texts[i];
            // A cancelled text, and a text with a limit of 0 tokens, have already ended, so nothing is sampled for them.
            if !text.is_live() || text.error.is_some() {
                continue;
            }
            text.is_stuck = false;
            let logits = session.logits(text.slot)?;
            if let Some(threads) = &self.threads {
                text.drawing = threads.begin(text, logits);
                if text.drawing.is_some() {
                    continue;
                }
            }
            // A panic in a constraint or a processor ends this text alone.
            let drawn = caught(|| text.draw(logits));
            sink.drawn(i, text, drawn);
        }
        if let Some(threads) = &mut self.threads {
            let in_slots = texts.iter_mut().map(|text| (text, None));
            let swapped = swapped.iter_mut().map(|Swapped { text, snapshot }| (text, Some(snapshot)));
            for (i, (text, snapshot)) in in_slots.chain(swapped).enumerate() {
                let Some(drawing) = text.drawing.take() else { continue };
                let logits = snapshot.map_or_else(|| session.logits(text.slot), |snapshot| Ok(&snapshot.logits))?;
                let Some(drawn) = threads.take(&drawing, text, logits) else {
                    text.drawing = Some(drawing);
                    continue;
                };
                if text.is_live() {
                    sink.drawn(i, text, drawn);
                }
            }
        }
        Ok(())
    }
}
