//! Who gets a slot and what is handed out: the engine's own thread.

use super::event::Event;
use super::handle::Shared;
use super::prefix::PrefixCache;
use super::prepare::Prepared;
use super::request::{Input, Request};
use super::sequence::{Running, Sequence};
use super::states::State;
use crate::error::Result;
use crate::sample::{Sampler, Sampling};
use crate::session::{self, Batcher, Done, Job, JobId, Keeps, KeptSlot, Model, Slot};
use crate::vocab::Utf8Stream;
use async_channel::{Receiver, Sender};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use web_time::Instant;

pub(super) enum Command {
    Submit(Box<Submission>),
    /// Answers when there is nothing left to do.
    Drain(SyncSender<()>),
}

/// A request in the queue.
pub(super) struct Submission {
    pub prepared: Prepared,
    pub events: Sender<Event>,
    pub request: Request,
    /// Where the prompt begins.
    pub state: Option<Arc<State>>,
    pub at: Instant,
}

/// A slot that a job goes on from, closed when the job has a fork of it.
#[derive(Default)]
struct Beginning {
    slot: Option<Slot>,
    /// Tokens of the prompt that the slot holds.
    n_tokens: usize,
    /// Bytes of a character that these tokens leave incomplete.
    pending: Vec<u8>,
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
    /// Slots of the session beside those of continuations.
    n_idle: usize,
    running: HashMap<u64, Running>,
    sequences: HashMap<JobId, Sequence>,
    draining: Vec<SyncSender<()>>,
    n_requests: u64,
    /// Tokens since the beginning.
    n_drawn: u64,
}

impl Scheduler {
    /// Over a session of `slots`, and the idle ones of the cache.
    pub fn new(batcher: Batcher, inbox: Receiver<Command>, shared: Arc<Shared>, slots: usize, cache: PrefixCache) -> Scheduler {
        let (running, sequences) = (HashMap::new(), HashMap::new());
        let n_idle = batcher.n_free() + cache.n_on_device() - slots;
        Scheduler {
            n_idle,
            batcher,
            inbox,
            shared,
            waiting: Vec::new(),
            slots,
            cache,
            running,
            sequences,
            draining: Vec::new(),
            n_requests: 0,
            n_drawn: 0,
        }
    }

    /// Works until all handles are dropped and nothing is left to do.
    pub async fn run(mut self) {
        loop {
            if self.is_idle() {
                if !self.draining.is_empty() {
                    self.flush();
                }
                for done in self.draining.drain(..) {
                    // The caller may have gone.
                    let _ = done.try_send(());
                }
                match self.inbox.recv().await {
                    Ok(command) => self.take(command),
                    Err(_) => return self.flush(),
                }
            }
            while let Ok(command) = self.inbox.try_recv() {
                self.take(command);
            }
            self.drop_cancelled();
            self.admit();
            self.report();
            if !self.sequences.is_empty() {
                self.step().await;
            }
            self.report();
            #[cfg(target_arch = "wasm32")]
            let_others_run().await;
        }
    }

    /// There is no folder in a browser.
    #[cfg(target_arch = "wasm32")]
    fn flush(&mut self) {}

    /// Writes the prefix cache to its folder, for the next engine.
    #[cfg(not(target_arch = "wasm32"))]
    fn flush(&mut self) {
        self.cache.flush(self.batcher.session_mut()).unwrap_or_else(|e| log::warn!("prefix cache: {e}"));
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.sequences.is_empty()
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Submit(submission) => {
                let at = self.waiting.partition_point(|other| other.request.priority >= submission.request.priority);
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
        while self.waiting.first().is_some_and(|next| self.sequences.len() + next.request.n <= self.slots) {
            let submission = self.waiting.remove(0);
            let events = submission.events.clone();
            if let Err(e) = self.begin(submission) {
                let _ = events.try_send(Event::Failed(e));
            }
        }
    }

    fn begin(&mut self, submission: Submission) -> Result<()> {
        let began = Instant::now();
        let Submission { prepared, events, request, state, at } = submission;
        let Prepared { prompt, ends, sampling, limits, constraint, question } = prepared;
        let constraints = (0..request.n).map(|_| constraint.as_ref().map(|make| make()).transpose()).collect::<Result<Vec<_>>>()?;
        let uses_cache = !request.no_cache && state.is_none();
        let scores_prompt = request.echo && request.logprobs.is_some();
        let from = match &state {
            Some(state) => self.after_state(state, request.n)?,
            // Tokens that an entry spares have no logits.
            None if uses_cache && !scores_prompt => self.cached(&request.namespace, &prompt, request.n)?,
            None => Beginning::default(),
        };
        let mut seeds: Vec<u64> = (0..request.n as u64).map(|i| sampling.seed.wrapping_add(i)).collect();
        let mut jobs = Vec::with_capacity(request.n);
        for ((index, seed), constraint) in seeds.iter_mut().enumerate().zip(constraints) {
            let mut sampler = Sampler::new(Sampling { seed: *seed, ..sampling.clone() });
            if let Some(state) = &state {
                // A request that names no seed goes on with the state's own random stream.
                state.begin(&mut sampler, Some(*seed).filter(|_| request.sets("seed") || request.n > 1));
                *seed = sampler.memory().seed;
            }
            sampler.read(&prompt[..from.n_tokens]);
            let mut job = Job::new(prompt[from.n_tokens..].to_vec(), sampler, limits.clone());
            job.n_logprobs = request.logprobs;
            job.n_prompt_logprobs = request.logprobs.filter(|_| scores_prompt);
            job.constraint = constraint;
            job.from = from.slot;
            job.pending.clone_from(&from.pending);
            let is_kept = uses_cache && self.cache.is_on();
            let at = if is_kept && index == 0 { self.cache.marks(&prompt, &ends, from.n_tokens) } else { Vec::new() };
            let at = at.into_iter().map(|at| at - from.n_tokens).collect();
            job.keeps = Keeps { at, end: is_kept || request.save_state.is_some(), pending: request.save_state.is_some() };
            jobs.push(job);
        }
        self.cache.make_room(request.n, self.batcher.session_mut());
        let added = self.batcher.add_alike(jobs);
        if let Some(slot) = from.slot {
            // The job has a fork of its own.
            self.batcher.session_mut().close(slot)?;
        }
        if added.is_err() {
            self.close_kept();
        }
        let ids = added?;
        let _ = events.try_send(Event::Started { prompt_tokens: prompt.len(), cached_tokens: from.n_tokens });
        let echoed = match &request.input {
            Input::Text(text) => text.clone(),
            _ => text_of(&self.shared.model, &prompt),
        };
        let id = self.n_requests;
        self.n_requests += 1;
        for (index, (job, seed)) in ids.into_iter().zip(seeds).enumerate() {
            let vocab = self.shared.model.vocab();
            let reader = question.as_ref().zip(vocab).map(|(question, vocab)| question.reader(vocab, limits.stop_texts.clone()));
            let mut sequence = Sequence::new(id, index, seed, reader);
            sequence.leaves_forks = index == 0 && uses_cache && self.cache.is_on();
            if request.echo {
                sequence.echo(&echoed, &events);
            }
            self.sequences.insert(job, sequence);
        }
        let namespace = uses_cache.then(|| request.namespace.clone());
        let saves = request.save_state.map(|name| (request.namespace, name));
        let queue_ms = (began - at).as_secs_f64() * 1e3;
        let (cached_tokens, n_left) = (from.n_tokens, request.n);
        self.running.insert(
            id,
            Running { events, prompt, cached_tokens, namespace, state, saves, queue_ms, began, prompt_logprobs: Vec::new(), n_left },
        );
        Ok(())
    }

    /// A slot that goes on from a named state.
    fn after_state(&mut self, state: &State, n: usize) -> Result<Beginning> {
        self.cache.make_room(n + 1, self.batcher.session_mut());
        let slot = self.batcher.session_mut().restore(&state.snapshot)?;
        Ok(Beginning { slot: Some(slot), n_tokens: 0, pending: state.pending().to_vec() })
    }

    /// A slot that holds the beginning of a prompt, if the cache has one.
    fn cached(&mut self, namespace: &str, prompt: &[u32], n: usize) -> Result<Beginning> {
        let model = self.shared.model.clone();
        let pending = |n: usize| Utf8Stream::after_tokens(&[], &prompt[..n], model.vocab()).pending().to_vec();
        let Some(found) = self.cache.find(namespace, prompt, pending(prompt.len()).is_empty()) else { return Ok(Beginning::default()) };
        self.cache.touch(found);
        self.cache.make_room(n + 1, self.batcher.session_mut());
        let slot = self.cache.open(found, self.batcher.session_mut())?;
        Ok(slot.map_or_else(Beginning::default, |slot| Beginning {
            slot: Some(slot),
            n_tokens: found.n_tokens,
            pending: pending(found.n_tokens),
        }))
    }

    /// Takes over the slots that jobs left: for named states, and for the cache.
    fn keep(&mut self, done: &[Done]) {
        for kept in self.batcher.take_kept() {
            self.keep_slot(kept, done).unwrap_or_else(|e| log::warn!("prefix cache: {e}"));
        }
    }

    fn keep_slot(&mut self, KeptSlot { job, slot, is_end }: KeptSlot, done: &[Done]) -> Result<()> {
        let output = done.iter().find(|done| done.job == job).and_then(|done| done.output.as_ref().ok()).filter(|_| is_end);
        let session = self.batcher.session_mut();
        let request = self.sequences.get_mut(&job).and_then(|sequence| Some((self.running.get(&sequence.request)?, sequence)));
        let (Some((request, sequence)), true) = (request, output.is_some() || !is_end) else {
            return session.close(slot);
        };
        let mut tokens = request.prompt.clone();
        tokens.extend(output.iter().flat_map(|output| &output.tokens));
        let n_before = request.state.as_ref().map_or(0, |state| state.snapshot.n_tokens());
        let n_read = session.n_tokens(slot)? - n_before;
        if let (Some((namespace, name)), Some(output)) = (&request.saves, output) {
            // The text's last tokens may not be read yet.
            let rest = &tokens[n_read.min(tokens.len())..];
            if let Err(e) = session.prefill(slot, rest) {
                // What the slot holds is not known any more.
                sequence.state = Some(Err(e.field("save_state")));
                return session.close(slot);
            }
            let saved = session.snapshot(slot).and_then(|snapshot| {
                let state = State::new(snapshot, output.sampler.memory(), output.pending.clone(), request.tokens_before(&tokens));
                self.shared.states.put(namespace, name, state)
            });
            sequence.state = Some(saved.map_err(|e| e.field("save_state")));
        }
        match &request.namespace {
            // A slot that has read something else would be found for these tokens.
            Some(namespace) if n_read <= tokens.len() => {
                tokens.truncate(session.n_tokens(slot)?);
                self.cache.insert(namespace, tokens, slot, session)
            }
            _ => session.close(slot),
        }
    }

    async fn step(&mut self) {
        // Prompts that are read in this step may leave slots. The session is not touched without need: the device then draws on.
        let n_reading = self.sequences.values().filter(|sequence| sequence.leaves_forks && sequence.first_token.is_none()).count();
        if n_reading > self.batcher.n_free() {
            self.cache.make_room(n_reading, self.batcher.session_mut());
        }
        let Scheduler { batcher, sequences, running, n_drawn, .. } = self;
        let begun = batcher.begin_step();
        // What goes wrong meanwhile, the end of the step says.
        let _ = batcher.ready().await;
        let mut hear = |job, event: session::Event<'_>| {
            let Some(sequence) = sequences.get_mut(&job) else { return };
            let Some(request) = running.get(&sequence.request) else { return };
            if event.token.is_some() {
                *n_drawn += 1;
                sequence.first_token.get_or_insert_with(Instant::now);
            }
            if let Some(logprobs) = event.logprobs {
                sequence.on_logprobs(logprobs, &request.events);
            }
            sequence.on_token(event.token, event.piece, &request.events);
        };
        let stepped = begun.and_then(|()| batcher.finish_step(&mut hear));
        for (job, logprobs) in batcher.take_prompt_logprobs() {
            if let Some(request) = sequences.get(&job).and_then(|sequence| running.get_mut(&sequence.request)) {
                request.prompt_logprobs.clone_from(&logprobs);
                let _ = request.events.try_send(Event::Prompt { logprobs });
            }
        }
        match stepped {
            Ok(ended) => {
                self.keep(&ended);
                ended.into_iter().for_each(|done| self.end(done));
            }
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
        match done.output {
            Ok(output) => {
                sequence.finish(&request.events);
                let id = sequence.request;
                let completion = sequence.completion(output, request);
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
        // All that are free but those of the cache, as the session counts them.
        state.stats.free_slots = (self.batcher.n_free() + self.cache.n_on_device()).saturating_sub(self.n_idle);
        (state.stats.cached, state.stats.drawn) = (self.cache.len(), self.n_drawn);
    }
}

impl Drop for Scheduler {
    /// Requests that were never begun hear of the end.
    fn drop(&mut self) {
        self.inbox.close();
        while self.inbox.try_recv().is_ok() {}
    }
}

/// The text of tokens, as far as it is known.
fn text_of(model: &Model, tokens: &[u32]) -> String {
    model.vocab().map_or_else(String::new, |vocab| String::from_utf8_lossy(&vocab.decode(tokens)).into_owned())
}

/// Comes back after the browser's other tasks: those that take the events are among them.
#[cfg(target_arch = "wasm32")]
async fn let_others_run() {
    let mut has_asked = false;
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        if std::mem::replace(&mut has_asked, true) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
