//! Who gets a slot and what is handed out: the engine's own thread.

use super::event::{Call, Completion, Event, Timings, Usage};
use super::handle::Shared;
use super::prepare::Prepared;
use crate::chat::{AnswerPart, AnswerReader};
use crate::error::Result;
use crate::sample::Sampler;
use crate::session::{Batcher, Done, Job, JobId, Logprobs, Made};
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
    pub at: Instant,
}

/// A request that has slots.
struct Running {
    events: Sender<Event>,
    prompt_tokens: usize,
    queue_ms: f64,
    /// When it got its slots.
    began: Instant,
    /// Continuations that have not ended.
    n_left: usize,
}

/// One continuation.
#[derive(Default)]
struct Voice {
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
    running: HashMap<u64, Running>,
    voices: HashMap<JobId, Voice>,
    draining: Vec<Sender<()>>,
    n_requests: u64,
}

impl Scheduler {
    pub fn new(batcher: Batcher, inbox: Receiver<Command>, shared: Arc<Shared>) -> Scheduler {
        let (running, voices) = (HashMap::new(), HashMap::new());
        Scheduler { batcher, inbox, shared, waiting: Vec::new(), running, voices, draining: Vec::new(), n_requests: 0 }
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
            self.leave();
            self.admit();
            if !self.voices.is_empty() {
                self.step();
            }
            self.report();
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.voices.is_empty()
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
    fn leave(&mut self) {
        self.waiting.retain(|submission| !submission.events.is_closed());
        let gone: Vec<u64> = self.running.iter().filter(|(_, request)| request.events.is_closed()).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|request| self.cancel(request));
    }

    fn cancel(&mut self, request: u64) {
        self.running.remove(&request);
        let jobs: Vec<JobId> = self.voices.iter().filter(|(_, voice)| voice.request == request).map(|(job, _)| *job).collect();
        for job in jobs {
            self.voices.remove(&job);
            // What there is of its text is wanted by nobody. A slot that cannot be closed was not open.
            let _ = self.batcher.cancel(job);
        }
    }

    /// Gives free slots to those who wait. One that needs more slots than are free is not overtaken.
    fn admit(&mut self) {
        while self.waiting.first().is_some_and(|next| next.n <= self.batcher.n_free()) {
            let submission = self.waiting.remove(0);
            let events = submission.events.clone();
            if let Err(e) = self.begin(submission) {
                let _ = events.try_send(Event::Failed(e));
            }
        }
    }

    fn begin(&mut self, submission: Submission) -> Result<()> {
        let Submission { prepared, events, n, n_logprobs, at, .. } = submission;
        let Prepared { prompt, sampling, limits, constraint, question } = prepared;
        let request = self.n_requests;
        self.n_requests += 1;
        let (prompt_tokens, began) = (prompt.len(), Instant::now());
        let queue_ms = (began - at).as_secs_f64() * 1e3;
        let seeds: Vec<u64> = (0..n as u64).map(|i| sampling.seed.wrapping_add(i)).collect();
        let mut jobs = Vec::with_capacity(n);
        for &seed in &seeds {
            let mut settings = sampling.clone();
            settings.seed = seed;
            let mut job = Job::new(prompt.clone(), Sampler::new(settings), limits.clone());
            job.n_logprobs = n_logprobs;
            job.constraint = constraint.as_ref().map(|make| make()).transpose()?;
            jobs.push(job);
        }
        let ids = self.batcher.add_alike(jobs)?;
        let _ = events.try_send(Event::Started { prompt_tokens, cached_tokens: 0 });
        for (index, (job, seed)) in ids.into_iter().zip(seeds).enumerate() {
            let vocab = self.shared.model.vocab();
            let reader = question.as_ref().zip(vocab).map(|(question, vocab)| question.reader(vocab, limits.stop_texts.clone()));
            self.voices.insert(job, Voice { request, index, seed, reader, ..Voice::default() });
        }
        self.running.insert(request, Running { events, prompt_tokens, queue_ms, began, n_left: n });
        Ok(())
    }

    fn step(&mut self) {
        let Scheduler { batcher, voices, running, .. } = self;
        let stepped = batcher.step(&mut |job, event| {
            let Some(voice) = voices.get_mut(&job) else { return };
            let Some(request) = running.get(&voice.request) else { return };
            if event.token.is_some() {
                voice.first_token.get_or_insert_with(Instant::now);
            }
            if let Some(logprobs) = event.logprobs {
                voice.logprobs.push(logprobs.clone());
                let _ = request.events.try_send(Event::Logprobs { index: voice.index, logprobs: logprobs.clone() });
            }
            voice.hear(event.token, event.piece, &request.events);
        });
        match stepped {
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
        let Some(mut voice) = self.voices.remove(&done.job) else { return };
        let Some(request) = self.running.get_mut(&voice.request) else { return };
        match done.made {
            Ok(made) => {
                voice.finish(&request.events);
                let id = voice.request;
                let completion = voice.completion(made, request);
                let _ = request.events.try_send(Event::Done(Box::new(completion)));
                request.n_left -= 1;
                if request.n_left == 0 {
                    self.running.remove(&id);
                }
            }
            Err(e) => {
                let _ = request.events.try_send(Event::Failed(e));
                self.cancel(voice.request);
            }
        }
    }

    fn report(&self) {
        let mut state = self.shared.lock();
        // What is in the inbox waits, too.
        state.stats.waiting = self.waiting.len() + self.inbox.len();
        state.stats.running = self.running.len();
        state.stats.free_slots = self.batcher.n_free();
    }
}

impl Voice {
    /// Hands out what a token brought.
    fn hear(&mut self, token: Option<u32>, piece: &str, events: &Sender<Event>) {
        match self.reader.take() {
            Some(mut reader) => {
                reader.push(token, piece, &mut |part| self.tell(part, events));
                self.reader = Some(reader);
            }
            None if !piece.is_empty() => self.tell(AnswerPart::Text(piece), events),
            None => {}
        }
    }

    /// Hands out what was held back to the end.
    fn finish(&mut self, events: &Sender<Event>) {
        if let Some(reader) = self.reader.take() {
            reader.finish(&mut |part| self.tell(part, events));
        }
    }

    fn tell(&mut self, part: AnswerPart<'_>, events: &Sender<Event>) {
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
        let usage = Usage { prompt_tokens: request.prompt_tokens, cached_tokens: 0, completion_tokens: made.tokens.len() };
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
