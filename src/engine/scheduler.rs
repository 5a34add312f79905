//! Who gets a slot and what is handed out: the engine's own thread.

use super::event::{Call, Completion, Event, Timings, Usage};
use super::handle::Shared;
use super::prefix::{Found, PrefixCache};
use super::prepare::Prepared;
use super::request::Cache;
use crate::chat::{AnswerPart, AnswerReader};
use crate::error::Result;
use crate::sample::{Sampler, Sampling};
use crate::session::{Batcher, Done, Job, JobId, Keeps, KeptSlot, Logprobs, Made};
use crate::vocab::Utf8Stream;
use async_channel::{Receiver, Sender};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

pub(super) enum Command {
    Submit(Box<Submission>),
    /// Answers when there is nothing left to do.
    Drain(Sender<()>),
}

/// A request in the queue.
pub(super) struct Submission {
    pub prepared: Prepared,
    pub events: Sender<Event>,
    pub n: usize,
    pub n_logprobs: Option<usize>,
    pub priority: i32,
    pub cache: Cache,
    pub at: Instant,
}

/// A request that has slots.
struct Running {
    events: Sender<Event>,
    prompt: Vec<u32>,
    cached_tokens: usize,
    cache: Cache,
    queue_ms: f64,
    /// When it got its slots.
    began: Instant,
    /// Continuations that have not ended.
    n_left: usize,
}

/// One continuation.
#[derive(Default)]
struct Sequence {
    request: u64,
    index: usize,
    seed: u64,
    first_token: Option<Instant>,
    reader: Option<AnswerReader>,
    text: String,
    thought: String,
    calls: Vec<Call>,
    logprobs: Vec<Logprobs>,
}

pub(super) struct Scheduler {
    batcher: Batcher,
    inbox: Receiver<Command>,
    shared: Arc<Shared>,
    /// Those of higher priority first, then those that came first.
    waiting: Vec<Submission>,
    /// Continuations at once, at most. The session has more slots: those of the cache.
    slots: usize,
    cache: PrefixCache,
    running: HashMap<u64, Running>,
    sequences: HashMap<JobId, Sequence>,
    draining: Vec<Sender<()>>,
    n_requests: u64,
}

impl Scheduler {
    /// Over a session of `slots + cached` slots.
    pub fn new(batcher: Batcher, inbox: Receiver<Command>, shared: Arc<Shared>, slots: usize, cached: usize) -> Scheduler {
        let (running, sequences, cache) = (HashMap::new(), HashMap::new(), PrefixCache::new(cached));
        Scheduler { batcher, inbox, shared, waiting: Vec::new(), slots, cache, running, sequences, draining: Vec::new(), n_requests: 0 }
    }

    /// Works until all handles are dropped and nothing is left to do.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn run(mut self) {
        loop {
            if self.is_idle() {
                for done in self.draining.drain(..) {
                    // Who asked may have gone.
                    let _ = done.try_send(());
                }
                match self.inbox.recv_blocking() {
                    Ok(command) => self.take(command),
                    Err(_) => return,
                }
            }
            while let Ok(command) = self.inbox.try_recv() {
                self.take(command);
            }
            self.drop_cancelled();
            self.admit();
            self.report();
            if !self.sequences.is_empty() {
                self.step();
            }
            self.report();
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.sequences.is_empty()
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Submit(submission) => {
                let at = self.waiting.partition_point(|other| other.priority >= submission.priority);
                self.waiting.insert(at, *submission);
            }
            Command::Drain(done) => self.draining.push(done),
        }
    }

    /// Frees what nobody waits for any more.
    fn drop_cancelled(&mut self) {
        self.waiting.retain(|submission| !submission.events.is_closed());
        let gone: Vec<u64> = self.running.iter().filter(|(_, request)| request.events.is_closed()).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|request| self.cancel(request));
    }

    fn cancel(&mut self, request: u64) {
        self.running.remove(&request);
        let jobs: Vec<JobId> = self.sequences.iter().filter(|(_, sequence)| sequence.request == request).map(|(job, _)| *job).collect();
        for job in jobs {
            self.sequences.remove(&job);
            // What there is of its text is wanted by nobody. A slot that cannot be closed was not open.
            let _ = self.batcher.cancel(job);
        }
        self.close_kept();
    }

    /// Closes slots that jobs left and nobody wants.
    fn close_kept(&mut self) {
        for kept in self.batcher.take_kept() {
            let _ = self.batcher.session_mut().close(kept.slot);
        }
    }

    /// Gives free slots to those who wait. One that needs more slots than are free is not overtaken.
    fn admit(&mut self) {
        while self.waiting.first().is_some_and(|next| self.sequences.len() + next.n <= self.slots) {
            let submission = self.waiting.remove(0);
            let events = submission.events.clone();
            if let Err(e) = self.begin(submission) {
                let _ = events.try_send(Event::Failed(e));
            }
        }
    }

    fn begin(&mut self, submission: Submission) -> Result<()> {
        let Submission { prepared, events, n, n_logprobs, cache, at, .. } = submission;
        let Prepared { prompt, sampling, limits, constraint, question } = prepared;
        let request = self.n_requests;
        self.n_requests += 1;
        let began = Instant::now();
        let queue_ms = (began - at).as_secs_f64() * 1e3;
        let constraints = (0..n).map(|_| constraint.as_ref().map(|make| make()).transpose()).collect::<Result<Vec<_>>>()?;
        let (from, pending) = self.cached(&cache, &prompt, n)?;
        let cached_tokens = from.map_or(0, |found| found.n_tokens);
        let seeds: Vec<u64> = (0..n as u64).map(|i| sampling.seed.wrapping_add(i)).collect();
        let is_kept = self.cache.capacity() > 0 && cache != Cache::Off;
        let mut jobs = Vec::with_capacity(n);
        for ((index, &seed), constraint) in seeds.iter().enumerate().zip(constraints) {
            let mut sampler = Sampler::new(Sampling { seed, ..sampling.clone() });
            sampler.read(&prompt[..cached_tokens]);
            let mut job = Job::new(prompt[cached_tokens..].to_vec(), sampler, limits.clone());
            job.n_logprobs = n_logprobs;
            job.constraint = constraint;
            job.from = from.map(|found| found.slot);
            job.pending.clone_from(&pending);
            let at = if is_kept && index == 0 { vec![job.prompt.len()] } else { Vec::new() };
            job.keeps = Keeps { at, end: is_kept, pending: false };
            jobs.push(job);
        }
        let added = self.batcher.add_alike(jobs);
        if let Some(found) = from {
            // The job has a fork of its own.
            self.batcher.session_mut().close(found.slot)?;
        }
        if added.is_err() {
            self.close_kept();
        }
        let ids = added?;
        let _ = events.try_send(Event::Started { prompt_tokens: prompt.len(), cached_tokens });
        for (index, (job, seed)) in ids.into_iter().zip(seeds).enumerate() {
            let vocab = self.shared.model.vocab();
            let reader = question.as_ref().zip(vocab).map(|(question, vocab)| question.reader(vocab, limits.stop_texts.clone()));
            self.sequences.insert(job, Sequence { request, index, seed, reader, ..Sequence::default() });
        }
        self.running.insert(request, Running { events, prompt, cached_tokens, cache, queue_ms, began, n_left: n });
        Ok(())
    }

    /// A slot of its own that holds the beginning of a prompt, if the cache has one, and the bytes of a character that this beginning may
    /// leave incomplete. Leaves `n` slots free.
    fn cached(&mut self, cache: &Cache, prompt: &[u32], n: usize) -> Result<(Option<Found>, Vec<u8>)> {
        let Cache::Shared { namespace } = cache else { return Ok((None, Vec::new())) };
        let vocab = self.shared.model.vocab();
        let end = |n: usize| -> Vec<u8> {
            let last = &prompt[n.saturating_sub(char::MAX.len_utf8())..n];
            let bytes: Vec<u8> = last.iter().flat_map(|&id| vocab.map_or(&[] as &[u8], |v| v.token(id))).copied().collect();
            Utf8Stream::after(&bytes).pending().to_vec()
        };
        let may_end = end(prompt.len()).is_empty();
        let Some(found) = self.cache.find(namespace, prompt, self.batcher.session(), may_end) else { return Ok((None, Vec::new())) };
        let session = self.batcher.session_mut();
        if session.n_free() <= n {
            // Not the one that was found: it was used last.
            self.cache.trim(self.cache.len().saturating_sub(1).max(1), session)?;
        }
        if session.n_free() <= n {
            return Ok((None, Vec::new()));
        }
        let slot = session.fork(found.slot)?;
        if found.n_tokens < session.n_tokens(slot)?
            && let Err(e) = session.rewind(slot, found.n_tokens)
        {
            session.close(slot)?;
            return Err(e);
        }
        Ok((Some(Found { slot, ..found }), end(found.n_tokens)))
    }

    /// Takes over the slots that jobs left.
    fn keep(&mut self, done: &[Done]) -> Result<()> {
        for KeptSlot { job, slot, is_end } in self.batcher.take_kept() {
            let request = self.sequences.get(&job).and_then(|sequence| self.running.get(&sequence.request));
            let made = done.iter().find(|done| done.job == job).and_then(|done| done.made.as_ref().ok());
            let session = self.batcher.session_mut();
            match (request, made) {
                (Some(Running { prompt, cache: Cache::Shared { namespace }, .. }), made) if !is_end || made.is_some() => {
                    let mut tokens = prompt.clone();
                    tokens.extend(made.iter().filter(|_| is_end).flat_map(|made| &made.tokens));
                    let n_read = session.n_tokens(slot)?;
                    // A slot that has read something else would be found for these tokens.
                    if n_read > tokens.len() {
                        session.close(slot)?;
                        continue;
                    }
                    tokens.truncate(n_read);
                    self.cache.insert(namespace, tokens, slot, session)?;
                }
                _ => session.close(slot)?,
            }
        }
        Ok(())
    }

    fn step(&mut self) {
        // A prompt that is read in this step may leave a slot.
        if self.batcher.n_free() == 0 && self.sequences.values().any(|sequence| sequence.first_token.is_none()) {
            let room = self.cache.capacity().saturating_sub(1);
            // A slot that cannot be closed was not open.
            let _ = self.cache.trim(room, self.batcher.session_mut());
        }
        let Scheduler { batcher, sequences, running, .. } = self;
        let stepped = batcher.step(&mut |job, event| {
            let Some(sequence) = sequences.get_mut(&job) else { return };
            let Some(request) = running.get(&sequence.request) else { return };
            if event.token.is_some() {
                sequence.first_token.get_or_insert_with(Instant::now);
            }
            if let Some(logprobs) = event.logprobs {
                sequence.logprobs.push(logprobs.clone());
                let _ = request.events.try_send(Event::Logprobs { index: sequence.index, logprobs: logprobs.clone() });
            }
            sequence.on_token(event.token, event.piece, &request.events);
        });
        match stepped.and_then(|ended| self.keep(&ended).map(|()| ended)) {
            Ok(ended) => ended.into_iter().for_each(|done| self.end(done)),
            // None of them can go on: what their slots hold is not known any more.
            Err(e) => {
                for (request, Running { events, .. }) in std::mem::take(&mut self.running) {
                    let _ = events.try_send(Event::Failed(e.clone()));
                    self.cancel(request);
                }
            }
        }
    }

    fn end(&mut self, done: Done) {
        let Some(mut sequence) = self.sequences.remove(&done.job) else { return };
        let Some(request) = self.running.get_mut(&sequence.request) else { return };
        match done.made {
            Ok(made) => {
                sequence.finish(&request.events);
                let id = sequence.request;
                let completion = sequence.completion(made, request);
                let _ = request.events.try_send(Event::Done(Box::new(completion)));
                request.n_left -= 1;
                if request.n_left == 0 {
                    self.running.remove(&id);
                }
            }
            Err(e) => {
                let _ = request.events.try_send(Event::Failed(e));
                self.cancel(sequence.request);
            }
        }
    }

    fn report(&self) {
        let mut state = self.shared.lock();
        // What is in the inbox waits, too.
        state.stats.waiting = self.waiting.len() + self.inbox.len();
        state.stats.running = self.running.len();
        state.stats.free_slots = self.slots - self.sequences.len();
        state.stats.cached = self.cache.len();
    }
}

impl Sequence {
    /// Hands out what a token brought.
    fn on_token(&mut self, token: Option<u32>, piece: &str, events: &Sender<Event>) {
        match self.reader.take() {
            Some(mut reader) => {
                reader.push(token, piece, &mut |part| self.emit(part, events));
                self.reader = Some(reader);
            }
            None if !piece.is_empty() => self.emit(AnswerPart::Text(piece), events),
            None => {}
        }
    }

    /// Hands out what was held back to the end.
    fn finish(&mut self, events: &Sender<Event>) {
        if let Some(reader) = self.reader.take() {
            reader.finish(&mut |part| self.emit(part, events));
        }
    }

    fn emit(&mut self, part: AnswerPart<'_>, events: &Sender<Event>) {
        let index = self.index;
        let event = match part {
            AnswerPart::Text(text) => {
                self.text.push_str(text);
                Event::Text { index, text: text.into() }
            }
            AnswerPart::Thought(text) => {
                self.thought.push_str(text);
                Event::Thought { index, text: text.into() }
            }
            AnswerPart::Call(name) => {
                self.calls.push(Call { name: name.into(), arguments: String::new() });
                Event::Call { index, call: self.calls.len() - 1, name: name.into() }
            }
            AnswerPart::Arguments(text) => {
                let Some(last) = self.calls.last_mut() else { return };
                last.arguments.push_str(text);
                Event::Arguments { index, call: self.calls.len() - 1, text: text.into() }
            }
        };
        let _ = events.try_send(event);
    }

    fn completion(self, made: Made, request: &Running) -> Completion {
        let first = self.first_token.unwrap_or_else(Instant::now);
        let timings = Timings {
            queue_ms: request.queue_ms,
            prefill_ms: (first - request.began).as_secs_f64() * 1e3,
            decode_ms: first.elapsed().as_secs_f64() * 1e3,
        };
        let usage =
            Usage { prompt_tokens: request.prompt.len(), cached_tokens: request.cached_tokens, completion_tokens: made.tokens.len() };
        Completion {
            index: self.index,
            text: self.text,
            thought: Some(self.thought).filter(|thought| !thought.is_empty()),
            calls: self.calls,
            tokens: made.tokens,
            logprobs: self.logprobs,
            finish: made.finish,
            complete: made.complete,
            seed: self.seed,
            usage,
            timings,
        }
    }
}
