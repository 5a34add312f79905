//! A step of all jobs. The host begins the step, and finishes it when the device is done.

use super::{Batcher, Done, JobId, Sequence};
use crate::error::{Error, Result};
use crate::session::ahead::Live;
use crate::session::caught;
use crate::session::embed::scaled;
use crate::session::generate::{Batch, Event};
use crate::session::logprobs::Logprobs;
use crate::session::slots::Slot;
use crate::session::stream::Finish;
use crate::session::work::Wanted;
use std::ops::ControlFlow;

/// Callback for events. An event has text as soon as later tokens can no longer change this text.
pub(super) type OnEvent<'a> = dyn FnMut(JobId, Event<'_>) + 'a;

/// A step that was begun and is not finished.
pub enum Flight {
    /// The device computes logits for tokens that the slots read. Then the host samples for each sequence without unread tokens.
    Reading {
        /// Indices of the sequences that take part in the step. Decoding sequences come first, then sequences that prefill.
        order: Vec<usize>,
        /// The number of decoding sequences, which come first in `order`.
        n_first: usize,
        /// The number of decoding sequences that have a token to read in this step. The remaining decoding sequences have no unread token: for these
        /// sequences, the host only samples.
        n_decoding: usize,
        /// True if the device has work. False if no sequence had tokens to read.
        has_begun: bool,
    },
    /// The device samples several tokens for each sequence.
    Drawing(Vec<Live>),
}

impl Batcher {
    /// Runs one step of all jobs: decodes one token per job, and prefills waiting prompts up to the size of a chunk. If no prompt waits and the
    /// device can sample for all jobs, decodes several tokens per job instead. Calls `on_event` with new text as soon as later tokens can no longer
    /// change this text. In an event, `stream` is the job's index among the running jobs. Returns the jobs that ended.
    ///
    /// Blocks until the device is done. [`begin_step`](Self::begin_step) and [`finish_step`](Self::finish_step) are the two halves of this
    /// function.
    ///
    /// # Errors
    /// The errors of [`Session::decode_many`](crate::session::Session::decode_many). After an error the next step ends all jobs with that error.
    pub fn step(&mut self, on_event: &mut OnEvent<'_>) -> Result<Vec<Done>> {
        self.begin_step()?;
        self.finish_step(on_event)
    }

    /// Begins a step and returns while the device works. Does nothing if the last step is not finished yet. Jobs may be added and cancelled before
    /// the step is finished. Added jobs take part in the next step.
    ///
    /// # Errors
    /// The errors of [`step`](Self::step).
    pub fn begin_step(&mut self) -> Result<()> {
        if self.flight.is_some() {
            return Ok(());
        }
        let is_running = |i: &usize| {
            let sequence = &self.sequences[*i];
            !sequence.is_paused && sequence.error.is_none() && (self.streams[*i].finish.is_none() || sequence.has_to_read())
        };
        let running: Vec<usize> = (0..self.streams.len()).filter(is_running).collect();
        let draws_on_device = |i: &usize| {
            let sequence = &self.sequences[*i];
            let is_shared = !sequence.continuations.is_empty() || !sequence.marks.is_empty() || sequence.has_to_read();
            // A slot that will be forked must end a step exactly at a position in `marks` or at the end of its prompt. A pool needs hidden states,
            // which a step that samples does not return. Only a step that reads notes that a prompt has been read.
            sequence.unread.len() == 1 && !sequence.is_stuck && !is_shared && !self.streams[*i].needs_host()
        };
        let flight = if !running.is_empty() && self.session.draws_ahead && running.iter().all(draws_on_device) {
            self.begin_drawing(running)
        } else {
            self.begin_reading(running)
        };
        self.flight = Some(flight.inspect_err(|e| self.fail(e))?);
        Ok(())
    }

    /// Returns whether [`finish_step`](Self::finish_step) would return without blocking.
    ///
    /// # Errors
    /// `Device` if the device failed.
    pub fn is_ready(&mut self) -> Result<bool> {
        if self.flight.is_none() { Ok(true) } else { self.session.is_ready() }
    }

    /// Waits until [`finish_step`](Self::finish_step) would not block. In a browser, the future awaits the device. Elsewhere, polling the future
    /// blocks the thread. Dropping the future does not cancel the step.
    ///
    /// # Errors
    /// `Device` if the device failed.
    pub async fn ready(&mut self) -> Result<()> {
        if self.flight.is_none() { Ok(()) } else { self.session.ready().await }
    }

    /// Finishes the step that was begun: blocks until the device is done, samples, and returns the jobs that ended, as [`step`](Self::step)
    /// does. Returns no jobs if no step was begun.
    ///
    /// # Errors
    /// The errors of [`step`](Self::step). In a browser, returns a `Device` error if the device is not done yet, so await
    /// [`ready`](Self::ready) first.
    pub fn finish_step(&mut self, on_event: &mut OnEvent<'_>) -> Result<Vec<Done>> {
        let Some(flight) = self.flight.take() else { return Ok(Vec::new()) };
        self.land(flight, on_event).inspect_err(|e| self.fail(e))?;
        self.retire()
    }

    fn land(&mut self, flight: Flight, on_event: &mut OnEvent<'_>) -> Result<()> {
        match flight {
            Flight::Reading { order, n_first, n_decoding, has_begun } => {
                if has_begun {
                    self.finish_reading(&order, n_first, n_decoding)?;
                }
                self.draw(order, on_event)
            }
            Flight::Drawing(live) => self.finish_drawing(live, on_event),
        }
    }

    /// Makes all jobs end with the error `e` in the next step, because the content of their slots is undefined after a failed step.
    fn fail(&mut self, e: &Error) {
        for sequence in &mut self.sequences {
            sequence.error.get_or_insert_with(|| e.clone());
        }
    }

    fn begin_reading(&mut self, running: Vec<usize>) -> Result<Flight> {
        // Decoding sequences come first, with one token each, so that no decoding sequence waits for a prompt.
        let (mut order, mut prompts): (Vec<usize>, Vec<usize>) = running.into_iter().partition(|&i| self.sequences[i].is_decoding());
        // A step returns either all logits or the last logits of each prompt. Prompts that need all logits are read first.
        let mut wanted = Wanted::Last;
        if prompts.iter().any(|&i| self.sequences[i].needs_all_rows()) {
            prompts.retain(|&i| self.sequences[i].needs_all_rows());
            wanted = Wanted::All;
        }
        let n_first = order.len();
        let n_decoding = order.iter().filter(|&&i| !self.sequences[i].unread.is_empty()).count();
        let most = match &mut self.prefill {
            Some(bound) if n_decoding > 0 && !prompts.is_empty() => n_first.saturating_add(bound.tokens(n_decoding)),
            _ => usize::MAX,
        };
        if most > n_first {
            order.extend(prompts);
        }
        let work: Vec<(Slot, &[u32])> = order.iter().map(|&i| (self.streams[i].slot, self.sequences[i].next())).collect();
        let has_begun = self.session.begin_some(work.as_slice(), most, wanted)? > 0;
        self.has_samplers = false;
        Ok(Flight::Reading { order, n_first, n_decoding, has_begun })
    }

    fn finish_reading(&mut self, order: &[usize], n_first: usize, n_decoding: usize) -> Result<()> {
        self.session.finish_read()?;
        let n_prompt = self.session.n_read()[n_first..].iter().sum();
        let took = self.session.clock.stop();
        if let Some(bound) = self.prefill.as_mut().filter(|_| n_decoding > 0) {
            bound.learn(n_prompt, n_decoding, took);
        }
        self.pool(order)?;
        let Batcher { session, sequences, .. } = self;
        session.each_row(&mut |k, t, row| {
            let sequence = &mut sequences[order[k]];
            if let (Some(n), Some(&next)) = (sequence.n_prompt_logprobs, sequence.unread.get(t + 1)) {
                sequence.prompt_logprobs.push(Logprobs::of(row, next, n));
            }
            Ok(())
        })?;
        for (k, &i) in order.iter().enumerate() {
            let sequence = &mut self.sequences[i];
            sequence.unread.drain(..self.session.n_read()[k]);
            sequence.reads_prompt &= !sequence.unread.is_empty();
            if sequence.unread.is_empty() && sequence.n_prompt_logprobs.take().is_some() {
                self.prompt_logprobs.push((sequence.job, std::mem::take(&mut sequence.prompt_logprobs)));
            }
            // A pool that is still here lacks a hidden state. Without this error, the job would wait for the vector for ever.
            if sequence.unread.is_empty() && sequence.pool.take().is_some() {
                sequence.error = Some(Error::device("the step returned no hidden state after the last token of the prompt"));
            }
            self.keep_marked(i)?;
        }
        Ok(())
    }

    /// Adds the hidden states of the finished step to the pools of the sequences in `order`. If a pool has the hidden state after the last prompt
    /// token, moves the vector to `pooled`.
    fn pool(&mut self, order: &[usize]) -> Result<()> {
        if order.iter().all(|&i| self.sequences[i].pool.is_none()) {
            return Ok(());
        }
        let hidden = self.session.hidden_rows()?;
        let width = self.session.model().facts().n_embd;
        let Batcher { session, sequences, pooled, .. } = self;
        session.each_of(&hidden, width, &mut |k, t, row| {
            let sequence = &mut sequences[order[k]];
            let is_last = t + 1 == sequence.unread.len();
            if let Some(pool) = &mut sequence.pool {
                pool.add(row, is_last);
            }
            if let Some(pool) = if is_last { sequence.pool.take() } else { None } {
                match scaled(&pool.vector()) {
                    Ok(vector) => pooled.push((sequence.job, vector)),
                    Err(e) => sequence.error = Some(e),
                }
            }
            Ok(())
        })
    }

    /// Samples one token on the host for each sequence of `order` that has no unread tokens. Also samples one token for each job that waited for
    /// the prompt of one of these sequences.
    fn draw(&mut self, mut order: Vec<usize>, on_event: &mut OnEvent<'_>) -> Result<()> {
        order.retain(|&i| self.sequences[i].unread.is_empty());
        for i in order.clone() {
            let before = self.streams.len();
            self.fork_continuations(i)?;
            order.extend(before..self.streams.len());
        }
        let Batcher { session, streams, sequences, .. } = self;
        let (model, jobs) = (session.model().clone(), jobs(sequences));
        let mut hear = hear(&jobs, on_event);
        let mut batch = Batch::new(streams, model.vocab(), &mut hear);
        for i in order {
            // A cancelled job, and a job with a limit of 0 tokens, have already ended.
            if !batch.is_live(i) {
                continue;
            }
            let stream = &mut batch.streams[i];
            sequences[i].is_stuck = false;
            let logits = session.logits(stream.slot)?;
            // A panic in a constraint or a processor ends this job alone.
            match caught(|| stream.draw(logits)) {
                Ok(Some(token)) => {
                    batch.take(i, token, 1);
                    sequences[i].unread.push(token);
                }
                Ok(None) => batch.end(i, Finish::Eos),
                Err(e) => sequences[i].error = Some(e),
            }
        }
        Ok(())
    }

    fn begin_drawing(&mut self, running: Vec<usize>) -> Result<Flight> {
        let Batcher { session, streams, sequences, ahead, has_samplers, .. } = self;
        let mut live: Vec<Live> = Vec::with_capacity(running.len());
        for i in running {
            live.push(Live::new(i, streams[i].slot, std::mem::take(&mut sequences[i].unread)));
        }
        let begun = if *has_samplers { Ok(()) } else { session.begin_draws(streams, &live) };
        let begun = begun.and_then(|()| session.begin_drawing(streams, &live, ahead));
        *has_samplers = begun.is_ok();
        if let Err(e) = begun {
            live.into_iter().for_each(|l| sequences[l.stream].unread = l.unread);
            return Err(e);
        }
        Ok(Flight::Drawing(live))
    }

    fn finish_drawing(&mut self, mut live: Vec<Live>, on_event: &mut OnEvent<'_>) -> Result<()> {
        let Batcher { session, streams, sequences, ahead, prefill, has_samplers, .. } = self;
        let (model, jobs) = (session.model().clone(), jobs(sequences));
        let mut hear = hear(&jobs, on_event);
        let mut batch = Batch::new(streams, model.vocab(), &mut hear);
        let took = session.finish_drawing(&mut batch, &mut live, ahead).inspect_err(|_| *has_samplers = false)?;
        if let Some(bound) = prefill {
            bound.learn(0, live.len(), took);
        }
        for l in live {
            *has_samplers &= !l.is_stuck;
            let sequence = &mut sequences[l.stream];
            (sequence.unread, sequence.is_stuck) = (l.unread, l.is_stuck);
        }
        Ok(())
    }
}

fn jobs(sequences: &[Sequence]) -> Vec<JobId> {
    sequences.iter().map(|sequence| sequence.job).collect()
}

/// Returns a callback for the session's events. The callback passes each event and the event's job to `on_event`.
fn hear<'a>(jobs: &'a [JobId], on_event: &'a mut OnEvent<'_>) -> impl FnMut(Event<'_>) -> ControlFlow<()> {
    |event| {
        on_event(jobs[event.stream], event);
        ControlFlow::Continue(())
    }
}
