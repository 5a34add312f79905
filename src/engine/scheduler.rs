//! The engine's thread. Gives slots to requests, runs steps and sends events. A request has one or several continuations, and each continuation is
//! one text of the batcher.

mod admit;
mod keep;
mod passages;
mod shares;
mod texts;

use super::answer::AnswerProgress;
use super::event::Event;
use super::passage::{Line, Passage, Visit};
use super::prefix::PrefixCache;
use super::shared::{Shared, gone};
use super::submission::Submission;
use crate::error::Error;
use crate::exec::wait;
use crate::session::{self, Batcher, Done, Scorer, TextId};
use async_channel::{Receiver, Sender};
use futures_core::Stream;
use keep::Saving;
use passages::Passages;
use std::collections::HashMap;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use web_time::Instant;

pub(super) enum Command {
    Submit(Box<Submission>),
    /// Queues the passage of a conversation.
    Pass(Box<Passage>, Line),
    /// Runs work on the cache and the session between two steps.
    Visit(Visit),
    /// Asks to end all requests.
    Interrupt,
    /// Calls this function when all requests are complete.
    Drain(Box<dyn FnOnce() + Send>),
}

/// Channels that wake the engine's thread.
pub(super) struct Inbox {
    pub commands: Receiver<Command>,
    /// Receives a message when a paused request can resume because its reader has taken events, and when a reader is dropped. Also receives one when
    /// a file has been written, or when another thread has sampled a token under rules.
    pub woken: Receiver<()>,
    /// Keeps the channel `woken` open.
    pub _wake: Sender<()>,
}

pub(super) struct Scheduler {
    batcher: Batcher,
    inbox: Inbox,
    shared: Arc<Shared>,
    /// All requests, from `submit` to their last event.
    requests: HashMap<u64, Submission>,
    /// The requests that need slots, from high to low priority. Requests with the same priority are in the order of arrival.
    waiting: Vec<u64>,
    /// The namespaces of requests that have left `waiting` but still count as waiting, until [`report`](Self::report) corrects the counts.
    left: Vec<String>,
    cache: PrefixCache,
    /// Scores documents. `None` if the engine has no reranker.
    scorer: Option<Scorer>,
    /// The number of slots that the session has in addition to the slots for continuations.
    n_idle: usize,
    sequences: HashMap<TextId, AnswerProgress>,
    passages: Passages,
    saving: Vec<Saving>,
    /// True if a continuation is paused.
    has_paused: bool,
    draining: Vec<Box<dyn FnOnce() + Send>>,
    n_requests: u64,
    n_admitted: u64,
    /// For each namespace, the number of the request that last got slots.
    last_admitted: HashMap<String, u64>,
    /// The number of tokens sampled since the engine started.
    n_drawn: u64,
}

impl Scheduler {
    /// Returns the scheduler of an engine. The session in `batcher` has slots for continuations and additional slots for the cache.
    pub fn new(batcher: Batcher, inbox: Inbox, shared: Arc<Shared>, cache: PrefixCache, scorer: Option<Scorer>) -> Scheduler {
        let n_idle = batcher.n_free() + cache.n_on_device() - shared.options.slots;
        Scheduler {
            n_idle,
            batcher,
            inbox,
            shared,
            requests: HashMap::new(),
            waiting: Vec::new(),
            left: Vec::new(),
            cache,
            scorer,
            sequences: HashMap::new(),
            passages: Passages::default(),
            saving: Vec::new(),
            has_paused: false,
            draining: Vec::new(),
            n_requests: 0,
            n_admitted: 0,
            last_admitted: HashMap::new(),
            n_drawn: 0,
        }
    }

    /// Runs the engine until all handles are dropped and all requests are complete.
    pub async fn run(mut self) {
        loop {
            if self.is_idle() {
                if !self.draining.is_empty() {
                    self.flush();
                }
                self.draining.drain(..).for_each(|done| done());
                match self.inbox.commands.recv().await {
                    Ok(command) => self.take(command).await,
                    Err(_) => return self.flush(),
                }
            }
            while let Ok(command) = self.inbox.commands.try_recv() {
                self.take(command).await;
            }
            self.report_saved();
            self.drop_cancelled();
            self.pause_slow();
            self.admit_passages();
            self.admit();
            self.report();
            match self.can_step() {
                true => self.step().await,
                // No continuation can step: each is paused or swapped out, or waits for its next token from another thread or for its state file.
                false if !self.is_idle() => self.wait().await,
                false => {}
            }
            self.report();
            wait::let_others_run().await;
        }
    }

    /// Writes the prefix cache to its folder for later engines.
    fn flush(&mut self) {
        self.cache.flush(self.batcher.session_mut()).unwrap_or_else(|e| log::warn!("prefix cache: {e}"));
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.sequences.is_empty() && self.passages.is_empty() && self.saving.is_empty()
    }

    /// Pauses requests whose readers are slow, and resumes the other requests.
    fn pause_slow(&mut self) {
        // The thread that waits in `drain` may be the slow reader, and would then wait for ever for the paused request. So no request pauses during a
        // drain.
        let is_bounded = self.draining.is_empty();
        let mut is_any = false;
        for request in self.requests.values_mut().filter(|request| request.began.is_some()) {
            request.is_paused = is_bounded && request.events.should_pause(request.is_paused);
            is_any |= request.is_paused;
        }
        if is_any || self.has_paused {
            let Scheduler { batcher, sequences, requests, .. } = self;
            let request = |job: TextId| sequences.get(&job).and_then(|sequence| requests.get(&sequence.request));
            batcher.pause(|job| request(job).is_some_and(|request| request.is_paused));
        }
        self.has_paused = is_any;
    }

    /// Returns whether any continuation can step.
    fn can_step(&self) -> bool {
        let can_step = |sequence: &AnswerProgress| self.requests.get(&sequence.request).is_none_or(|request| !request.is_paused);
        (self.passages.n_running() > 0 || self.sequences.values().any(can_step)) && self.batcher.can_step()
    }

    /// Waits for the next command or message of the [`Inbox`], and executes a command.
    async fn wait(&mut self) {
        let command = {
            let (mut commands, mut woken) = (pin!(self.inbox.commands.clone()), pin!(self.inbox.woken.clone()));
            let next = poll_fn(|context| match commands.as_mut().poll_next(context) {
                Poll::Ready(Some(command)) => Poll::Ready(Some(command)),
                // After the last handle is dropped, readers and files still wake the thread.
                Poll::Ready(None) | Poll::Pending => woken.as_mut().poll_next(context).map(|_| None),
            });
            next.await
        };
        if let Some(command) = command {
            self.take(command).await;
        }
    }

    /// Executes a command.
    async fn take(&mut self, command: Command) {
        match command {
            Command::Submit(submission) => {
                self.n_requests += 1;
                self.requests.insert(self.n_requests, *submission);
                self.enqueue(self.n_requests);
            }
            Command::Pass(passage, line) => self.passages.waiting.push_back((*passage, line)),
            Command::Visit(work) => work(&mut self.cache, self.batcher.session_mut()),
            Command::Interrupt => self.interrupt().await,
            Command::Drain(done) => self.draining.push(done),
        }
    }

    /// Adds a request to the waiting requests, after the requests of the same priority.
    fn enqueue(&mut self, id: u64) {
        let priority = |id: &u64| self.requests.get(id).map(|submission| submission.request.priority);
        let own = priority(&id);
        let at = self.waiting.partition_point(|other| priority(other) >= own);
        self.waiting.insert(at, id);
    }

    /// Returns the requests that have or had slots.
    fn begun(&self) -> impl Iterator<Item = (u64, &Submission)> {
        self.requests.iter().filter(|(_, request)| request.began.is_some()).map(|(id, request)| (*id, request))
    }

    /// Ends all continuations with their texts so far. Requests without slots fail, and so do requests for vectors and scores.
    async fn interrupt(&mut self) {
        let ends = |request: &Submission| request.began.is_none() || request.texts_left > 0;
        let ended: Vec<u64> = self.requests.iter().filter(|(_, request)| ends(request)).map(|(id, _)| *id).collect();
        ended.into_iter().for_each(|request| self.fail(request, gone()));
        self.passages.fail(&gone(), &mut self.batcher);
        self.close_kept();
        let jobs: Vec<TextId> = self.sequences.keys().copied().collect();
        for job in jobs {
            let Scheduler { batcher, sequences, requests, .. } = self;
            let output = batcher.cancel(job, &mut |job, event| on_event(sequences, requests, job, &event));
            let Some(output) = output.transpose() else { continue };
            let mut done = Done { id: job, output };
            self.keep(std::slice::from_mut(&mut done)).await;
            self.end(done);
        }
    }

    /// Removes requests whose generations were dropped, and frees their slots.
    fn drop_cancelled(&mut self) {
        let gone: Vec<u64> = self.requests.iter().filter(|(_, request)| request.events.is_closed()).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|request| self.cancel(request));
    }

    /// Ends all continuations of a request and sends no event.
    fn cancel(&mut self, request: u64) {
        let Some(cancelled) = self.requests.remove(&request) else { return };
        if let Some(at) = self.waiting.iter().position(|id| *id == request) {
            self.waiting.remove(at);
            self.left.push(cancelled.request.namespace);
        }
        let jobs: Vec<TextId> = self.sequences.iter().filter(|(_, sequence)| sequence.request == request).map(|(job, _)| *job).collect();
        for job in jobs {
            self.sequences.remove(&job);
            // The text is not needed. The error is not needed either: a slot that cannot be closed was not open.
            let _ = self.batcher.cancel(job, &mut |_, _| ());
        }
        self.close_kept();
    }

    /// Ends a request with an error.
    fn fail(&mut self, request: u64, e: Error) {
        if let Some(failed) = self.requests.get(&request) {
            failed.events.fail(e);
            self.cancel(request);
        }
    }

    /// Closes the slots that the batcher kept for cancelled texts.
    fn close_kept(&mut self) {
        for kept in self.batcher.take_kept() {
            let _ = self.batcher.session_mut().close(kept.slot);
        }
    }

    /// Runs one step of all continuations that are not paused, and sends the events.
    async fn step(&mut self) {
        // Prompts in this step can leave forks for the cache, and each fork needs a free slot. `session_mut` is called only if slots are missing,
        // because after each call the batcher must send its samplers to the device again.
        let n_reading = self.sequences.values().filter(|sequence| sequence.leaves_forks && sequence.first_token.is_none()).count();
        let n_reading = n_reading + self.passages.n_forking();
        if n_reading > self.batcher.n_free() {
            self.cache.make_room(n_reading, self.batcher.session_mut());
        }
        let Scheduler { batcher, sequences, requests, passages, n_drawn, .. } = self;
        let begun = batcher.begin_step();
        // `finish_step` reports the errors of this wait.
        let _ = batcher.ready().await;
        let stepped = {
            let mut hear = |job, event: session::TokenEvent<'_>| {
                *n_drawn += u64::from(event.token.is_some());
                passages.hear(job, &event).unwrap_or_else(|| {
                    on_event(sequences, requests, job, &event);
                    ControlFlow::Continue(())
                })
            };
            begun.and_then(|()| batcher.finish_step_with(&mut hear))
        };
        for (job, logprobs) in batcher.take_prompt_logprobs() {
            if let Some(request) = sequences.get(&job).and_then(|sequence| requests.get_mut(&sequence.request)) {
                request.prompt_logprobs.clone_from(&logprobs);
                request.events.send(Event::Prompt { first: request.prepared.prompt.first().copied(), logprobs });
            }
        }
        for (job, vector) in batcher.take_pooled() {
            let Some(sequence) = sequences.get(&job) else { continue };
            if let Some(request) = requests.get_mut(&sequence.request) {
                request.vector = Some(vector.clone()).filter(|_| request.texts_left == 0);
                request.events.send(Event::Vector { index: sequence.index, vector });
            }
        }
        match stepped {
            Ok(mut ended) => {
                self.report_prefills();
                self.keep(&mut ended).await;
                let ended: Vec<Done> = ended.into_iter().filter_map(|done| self.end_passage(done)).collect();
                ended.into_iter().for_each(|done| self.end(done));
                self.report_passages().await;
                self.report_saved();
            }
            // After an error, the contents of all slots are unknown, so no text can continue.
            Err(e) => {
                self.passages.fail(&e, &mut self.batcher);
                self.close_kept();
                let begun: Vec<u64> = self.begun().map(|(id, _)| id).collect();
                begun.into_iter().for_each(|request| self.fail(request, e.clone()));
            }
        }
    }

    /// Reports the progress of prefills to the readers of requests that set `return_progress`.
    fn report_prefills(&mut self) {
        let Scheduler { batcher, sequences, requests, .. } = self;
        for (id, request) in requests.iter_mut().filter(|(_, request)| request.request.return_progress && request.began.is_some()) {
            let texts = request.prepared.texts.as_ref();
            let is_reading = |text: &&AnswerProgress| text.first_token.is_none() && (texts.is_some() || text.index == 0);
            let of_request = sequences.iter().filter(|(_, text)| text.request == *id && is_reading(text));
            let unread: Vec<usize> = of_request.filter_map(|(text, _)| batcher.n_unread(*text)).collect();
            if unread.is_empty() && texts.is_none() {
                continue;
            }
            let n_waiting = texts.map_or(0, |texts| texts.n_unread);
            let (prompt_tokens, cached_tokens) = (request.prompt_tokens(), request.cached_tokens);
            let processed_tokens = prompt_tokens.saturating_sub(n_waiting + unread.iter().sum::<usize>());
            if request.n_told != processed_tokens {
                request.n_told = processed_tokens;
                request.events.send(Event::Progress { processed_tokens, prompt_tokens, cached_tokens });
            }
        }
    }

    /// Ends a continuation. Sends the event `Done` at once, or after the continuation's named state has been saved. An error ends the whole
    /// request.
    fn end(&mut self, done: Done) {
        let Some(mut sequence) = self.sequences.remove(&done.id) else { return };
        let Some(request) = self.requests.get_mut(&sequence.request) else { return };
        if request.texts_left > 0 && done.output.is_ok() {
            request.texts_left -= 1;
            if request.texts_left > 0 {
                return;
            }
            // A request for vectors or scores ends with one `Done` event. Its completion has no text, and its index is 0.
            sequence.index = 0;
        }
        match done.output {
            Ok(output) => {
                sequence.finish(&request.events);
                let (id, saved) = (sequence.request, sequence.saved.take());
                let completion = sequence.completion(output, request);
                match saved {
                    Some(saved) => self.saving.push(Saving { completion, events: request.events.clone(), saved }),
                    None => request.events.send(Event::Done(Box::new(completion))),
                }
                request.n_left -= 1;
                if request.n_left == 0 {
                    self.requests.remove(&id);
                }
            }
            Err(e) => self.fail(sequence.request, e),
        }
    }

    /// Updates the counts that `Engine::stats` returns.
    fn report(&mut self) {
        let mut state = self.shared.lock();
        // Requests in `left` are subtracted only here, because the bounds of the queue also depend on the number of free slots, which is set below.
        self.left.drain(..).for_each(|namespace| state.queue.leave(&namespace));
        // A request whose first texts have slots counts as running here. Such a request still counts in the queue, so that a caller's requests cannot
        // all run at once.
        let n_begun = self.waiting.iter().filter(|id| self.requests.get(id).is_some_and(|request| request.began.is_some())).count();
        state.stats.waiting = state.queue.len().saturating_sub(n_begun);
        state.stats.running = self.begun().count() + self.saving.len();
        state.stats.paused = self.begun().filter(|(_, request)| request.is_paused).count();
        state.stats.swapped = self.batcher.swapped().map(|(_, n_slots)| n_slots).sum();
        // A slot with a cache entry counts as free, because it runs no continuation. The `n_idle` additional slots do not count: `stats.slots` does
        // not contain them, either.
        state.stats.free_slots = (self.batcher.n_free() + self.cache.n_on_device()).saturating_sub(self.n_idle);
        (state.stats.cached, state.stats.pinned, state.stats.drawn) = (self.cache.len(), self.cache.n_pinned(), self.n_drawn);
        (state.stats.drafted, state.stats.accepted) = self.batcher.n_guessed();
    }
}

/// Adds an event to the continuation of the text `job`, and sends the event to the request's reader.
fn on_event(
    sequences: &mut HashMap<TextId, AnswerProgress>,
    requests: &HashMap<u64, Submission>,
    job: TextId,
    event: &session::TokenEvent<'_>,
) {
    let Some(sequence) = sequences.get_mut(&job) else { return };
    let Some(request) = requests.get(&sequence.request) else { return };
    if event.token.is_some() {
        sequence.first_token.get_or_insert_with(Instant::now);
    }
    if let Some(logprobs) = event.logprobs {
        sequence.on_logprobs(logprobs, &request.events);
    }
    sequence.on_token(event.token, event.piece, &request.events);
}

impl Drop for Scheduler {
    /// Drops the requests in the inbox, so that their generations end with an error.
    fn drop(&mut self) {
        self.inbox.commands.close();
        while self.inbox.commands.try_recv().is_ok() {}
    }
}
