//! The handle through which callers use an engine.

use super::generation::Generation;
use super::outbox;
use super::prefix::{self, PrefixCache};
use super::prepare::Prepared;
use super::request::{Input, Request};
use super::scheduler::{Command, Inbox, Scheduler};
use super::shared::{EngineStats, Shared, gone};
use super::states::{State as NamedState, StateInfo, States};
use super::submission::Submission;
use super::thread::EngineThread;
use super::{CacheOptions, Completion, EngineOptions};
#[cfg(doc)]
use crate::error::Kind;
use crate::error::{Error, Result};
use crate::exec::wait::{MAY_BLOCK, block_on, would_block};
use crate::files::Files;
use crate::sample::Sampling;
use crate::session::{Batcher, Idle, Model, Scorer, Session};
use crate::session::{LoadedState, Snapshot};
use async_channel::Sender;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// Runs requests with one model on a separate thread. Clones are handles of the same engine. After the last handle is dropped, the engine
/// completes its requests and ends. Dropping the last of the handles and [`Generation`]s waits until the engine has ended and freed its device memory.
///
/// ```
/// # #[cfg(feature = "embedded-model")]
/// # fn main() -> wingbeat::error::Result<()> {
/// use wingbeat::{DeviceChoice, Engine, EngineOptions, Event, ModelSource, Options, Request};
///
/// let model = Options::new().device(DeviceChoice::Cpu).open(ModelSource::Embedded)?;
/// let engine = Engine::start(&model, EngineOptions::default())?;
/// let request = Request::text("Once upon a time").max_tokens(8).set("temperature", 0);
/// for event in engine.submit(request)? {
///     match event? {
///         Event::Text { text, .. } => print!("{text}"),
///         Event::Done(done) => println!(" ({} tokens)", done.usage.completion_tokens),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "embedded-model"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
pub struct Engine {
    pub(super) commands: Sender<Command>,
    /// Wakes the engine's thread after a reader has taken events or was dropped.
    wake: Sender<()>,
    pub(super) shared: Arc<Shared>,
    /// Dropped last, because the thread ends only when no handle can send it another command.
    thread: Arc<EngineThread>,
}

impl Engine {
    /// Starts an engine: opens its slots and starts its thread.
    ///
    /// # Errors
    /// The errors of [`start_task`](Self::start_task); `Memory` if no thread can be started; `Device` in a browser, which cannot start a thread.
    pub fn start(model: &Model, options: EngineOptions) -> Result<Engine> {
        if !MAY_BLOCK {
            return Err(would_block().hint("use `Engine::start_task`, and run its future as a task"));
        }
        let (engine, scheduler) = Self::open(model, options)?;
        let work = async {
            scheduler.run().await;
            Ok(())
        };
        engine.thread.start(move || block_on(work).unwrap_or_else(|e| log::error!("the engine has ended: {e}")))?;
        Ok(engine)
    }

    /// Opens the slots of an engine without a thread of its own. Returns the engine and a future. The engine works only while the future is polled,
    /// so run the future as a task. In a browser, use `wasm_bindgen_futures::spawn_local`: the future awaits the device and yields to other tasks
    /// after each step. Elsewhere, polling the future blocks the thread for a step. The future ends when all handles are dropped and all requests
    /// are complete.
    ///
    /// # Errors
    /// `Input` if `options` have too few or too many slots, or an initial state that contains tokens; errors of [`Session::new`]; `Model` if a
    /// reranker does not belong to the model; `File` if a folder of `options` cannot be made, as in a browser.
    pub fn start_task(model: &Model, options: EngineOptions) -> Result<(Engine, impl Future<Output = ()> + Send + 'static)> {
        let (engine, scheduler) = Self::open(model, options)?;
        Ok((engine, scheduler.run()))
    }

    fn open(model: &Model, mut options: EngineOptions) -> Result<(Engine, Scheduler)> {
        options.check()?;
        if model.check_speaks().is_err() && options.reranker.is_none() {
            // Only requests that generate text, and documents for a reranker, use the cache.
            options.cache = CacheOptions::off();
        }
        for (name, snapshot) in &options.initial {
            let n = snapshot.n_tokens();
            if n > 0 {
                let e = Error::input(format!("expected an initial state without tokens, found a saved state of {n} tokens"));
                return Err(e.at(name).hint("upload a saved state with PUT /v1/states/NAME/content, or name it in `state`"));
            }
        }
        let scorer = options.reranker.as_ref().map(|reranker| Scorer::new(model, reranker, options.slots)).transpose()?;
        let idle = prefix::idle(model, options.slots, &options.cache);
        let guesses = options.speculation.is_on() || options.draft.is_some();
        let mut batcher = Batcher::new(Session::with_idle(model, options.slots, Idle { guesses, ..spare(idle) })?);
        if let Some(draft) = &options.draft {
            batcher.set_draft(draft, options.slots)?;
        }
        batcher.bound_prefill(options.prefill_slowdown);
        let cache = PrefixCache::new(model, &options.cache, idle)?;
        let (commands, inbox) = async_channel::unbounded();
        let stats = EngineStats { slots: options.slots, free_slots: options.slots, cached: cache.len(), ..EngineStats::default() };
        // One unread message is enough to wake the thread.
        let (wake, woken) = async_channel::bounded(1);
        let woken_by = wake.clone();
        let wake_up = move || {
            let _ = woken_by.try_send(());
        };
        batcher.draw_on_threads(Arc::new(wake_up), options.rules_time);
        let states = States::new(model, &options.states, wake.clone())?;
        let may_guess = batcher.session().may_guess();
        let shared = Arc::new(Shared::new(model, options, states, stats, may_guess)?);
        let scheduler = Scheduler::new(batcher, Inbox { commands: inbox, woken, _wake: wake.clone() }, shared.clone(), cache, scorer);
        Ok((Engine { commands, wake, shared, thread: Arc::default() }, scheduler))
    }

    /// Returns the model with which the engine runs requests.
    pub fn model(&self) -> &Model {
        &self.shared.model
    }

    /// Returns 12 hexadecimal digits that identify the content of the tuned initial state with this name. `None` if the engine has no such state.
    pub fn initial_digest(&self, name: &str) -> Option<&str> {
        self.shared.initial_digest(name).ok()
    }

    /// Returns whether the engine scores documents: see [`EngineOptions::reranker`].
    pub fn has_reranker(&self) -> bool {
        self.shared.options.reranker.is_some()
    }

    /// Checks a request and queues it. Compiles templates and grammars and tokenizes text on the caller's thread, so the call can take a while.
    ///
    /// # Errors
    /// An `Input` or `Usage` error that names the invalid field of the request. [`Kind::Busy`] if the queue is full, for all callers or for the
    /// request's namespace: see [`EngineOptions::queue_per_namespace`]. `Device` if [`drain`](Self::drain) was called or the engine has ended. If
    /// the named state must be read from its file: errors of [`Snapshot::load`].
    pub fn submit(&self, mut request: Request) -> Result<Generation> {
        drop(self.shared.check_room(&request.namespace)?);
        if request.n > self.shared.options.slots {
            let text = format!("expected at most {} continuations, one per slot, found {}", self.shared.options.slots, request.n);
            return Err(Error::input(text).field("n"));
        }
        request.initial.as_deref().map(|name| self.shared.initial(name)).transpose()?;
        let state = request.state.as_ref().map(|name| self.shared.states.get(&request.namespace, name).map_err(|e| e.field("state")));
        let (mut prepared, state) = match request.state_is_prefix {
            true => {
                request.state = None;
                self.shared.prepare_after(&request, state.and_then(Result::ok))?
            }
            false => {
                let state = state.transpose()?;
                (self.shared.prepare(&request, state.as_deref())?, state)
            }
        };
        if request.max_tokens.is_none() {
            prepared.limits.max_tokens = prepared.limits.max_tokens.min(self.shared.options.max_tokens);
        }
        // `prepared` has the tokens, so the queue need not hold the input, except for a text that the answer repeats.
        if !request.echo || !matches!(request.input, Input::Text(_)) {
            request.input = Input::Tokens(Vec::new());
        }
        self.queue(prepared, request, state)
    }

    /// Submits a request, and blocks until its text is complete. For a request with one continuation.
    ///
    /// # Errors
    /// The errors of [`submit`](Self::submit); `Input` if `n` is not 1; the error with which the request failed.
    pub fn run(&self, request: Request) -> Result<Completion> {
        if request.n != 1 {
            return Err(Error::input(format!("expected 1 continuation, found {}", request.n)).field("n").hint("use `submit`"));
        }
        let mut all = self.submit(request)?.wait()?;
        all.pop().ok_or_else(gone)
    }

    /// Checks a request as [`submit`](Self::submit) does, but does not queue it. Returns the token ids of the request's prompt, tokenized as if the
    /// request began with an empty state.
    ///
    /// # Errors
    /// An `Input` or `Usage` error that names the invalid field of the request.
    pub fn tokens(&self, request: &Request) -> Result<Vec<u32>> {
        self.shared.prepare(request, None).map(|prepared| prepared.prompt.to_vec())
    }

    /// Checks a request as [`submit`](Self::submit) does, but does not queue it. Returns the sampler settings and the maximum number of tokens with which
    /// the request would run.
    ///
    /// # Errors
    /// An `Input` or `Usage` error that names the invalid field of the request.
    pub fn settings(&self, request: &Request) -> Result<(Sampling, usize)> {
        let prepared = self.shared.prepare(request, None)?;
        let most = if request.max_tokens.is_none() { self.shared.options.max_tokens } else { usize::MAX };
        Ok((prepared.sampling, prepared.limits.max_tokens.min(most)))
    }

    /// Queues a prepared request and returns the handle of its events.
    ///
    /// # Errors
    /// [`Kind::Busy`] if the queue is full; `Device` if [`drain`](Self::drain) was called or the engine has ended.
    pub(super) fn queue(&self, prepared: Prepared, request: Request, state: Option<Arc<NamedState>>) -> Result<Generation> {
        let (events, reader) = outbox::queue(self.shared.options.event_bytes, self.wake.clone());
        let (n, namespace) = (request.n, request.namespace.clone());
        let n_tokens = prepared.texts.as_ref().map_or(prepared.prompt.len(), |texts| texts.n_tokens);
        let sampling = prepared.sampling.clone();
        let submission = Submission::new(request, prepared, state, events);
        // The counts stay locked until the request is sent and counted. So no other request takes the place of this one in the queue, and no request
        // enters the queue after a drain has begun.
        let mut state = self.shared.check_room(&namespace)?;
        self.commands.try_send(Command::Submit(Box::new(submission))).map_err(|_| gone())?;
        state.queue.enter(&namespace);
        state.stats.waiting += 1;
        Ok(Generation { events: reader, n_left: n, n_tokens, sampling, _thread: self.thread.clone() })
    }

    /// Checks that a request of a namespace may enter the queue now.
    ///
    /// # Errors
    /// [`Kind::Busy`] if the queue is full, for all callers or for this namespace; `Device` if [`drain`](Self::drain) was called.
    pub fn check_room(&self, namespace: &str) -> Result<()> {
        self.shared.check_room(namespace).map(drop)
    }

    /// Lists the named states of a namespace.
    ///
    /// # Errors
    /// `File` if the folder of states cannot be read.
    pub fn states(&self, namespace: &str) -> Result<Vec<StateInfo>> {
        self.shared.states.list(namespace)
    }

    /// Returns the number of requests with `n` continuations each that one caller can submit at once while no other request runs or waits. The
    /// slots take the first of these requests, and the others wait.
    pub fn most_at_once(&self, n: usize) -> usize {
        (self.shared.options.slots / n.max(1)).saturating_add(self.shared.bounds().per_namespace)
    }

    /// Returns a number that differs between all engines that exist at the same time.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.shared) as usize
    }

    /// Returns whether a named state is in memory.
    pub fn has_state(&self, namespace: &str, name: &str) -> bool {
        self.shared.states.holds(namespace, name)
    }

    /// Copies the named state `name` to the name `new`. Replaces an older state with the name `new`. Returns the name and the size of the copy.
    ///
    /// # Errors
    /// `Input` if `name` is unknown or `new` is invalid; `Memory` if the copy has no room; `File` if a file cannot be read or written.
    pub fn fork_state(&self, namespace: &str, name: &str, new: &str) -> Result<StateInfo> {
        self.shared.states.fork(namespace, name, new)
    }

    /// Gives the named state `name` the name `new`, without a copy, in an engine whose states have no files. Returns false if no state has the name
    /// `name`.
    pub fn rename_state(&self, namespace: &str, name: &str, new: &str) -> bool {
        self.shared.states.rename(namespace, name, new)
    }

    /// Deletes a named state and its file. Requests that began from the state continue.
    ///
    /// # Errors
    /// `Input` if `name` is unknown or invalid; `File` if the file cannot be removed.
    pub fn delete_state(&self, namespace: &str, name: &str) -> Result<()> {
        self.shared.states.delete(namespace, name)
    }

    /// Reads a state file, or a checkpoint with a tuned state, and saves the state under a name. A tuned state is a trained state in which a text
    /// begins. Replaces an older state of that name.
    ///
    /// # Errors
    /// `Input` if the name is invalid; `File` if the file is not a state, or its copy cannot be written; `Model` if the state belongs to other
    /// weights; `Memory` if the state has no room.
    pub fn load_state(&self, namespace: &str, name: &str, path: &Path) -> Result<StateInfo> {
        self.shared.states.load(namespace, name, path)
    }

    /// Saves a state under a name. Replaces an older state of that name. [`Snapshot::load`] returns both `snapshot` and `loaded`.
    ///
    /// # Errors
    /// `Input` if the name is invalid; `Model` if the state belongs to other weights; `Memory` if the state has no room; `File` if its file cannot
    /// be written.
    pub fn keep_state(&self, namespace: &str, name: &str, snapshot: Snapshot, loaded: LoadedState) -> Result<StateInfo> {
        self.shared.states.put(namespace, name, NamedState { snapshot, loaded })
    }

    /// Writes a named state to a file. Any engine with the same weights can load the file.
    ///
    /// # Errors
    /// `Input` if the name is unknown, or if `path` is an existing file that is not a state; `File` if a file cannot be read or written.
    pub fn export_state(&self, namespace: &str, name: &str, path: &Path) -> Result<()> {
        self.shared.states.save(namespace, name, path)
    }

    /// Calls `look` with a named state and the data saved with it: tokens, sampler and metadata.
    ///
    /// # Errors
    /// `Input` if the name is unknown; `File` if a file cannot be read.
    pub fn with_state<T>(&self, namespace: &str, name: &str, look: impl FnOnce(&Snapshot, &LoadedState) -> T) -> Result<T> {
        let state = self.shared.states.get(namespace, name)?;
        Ok(look(&state.snapshot, &state.loaded))
    }

    /// Loads a named state like [`load_state`](Self::load_state), but from the bytes of a state file.
    ///
    /// # Errors
    /// The errors of [`load_state`](Self::load_state).
    pub fn import_state(&self, namespace: &str, name: &str, file: impl Into<Vec<u8>>) -> Result<StateInfo> {
        let files = Files::new("state");
        files.add(name, file).map_err(|e| e.field("name"))?;
        let path = files.path(name);
        // The path exists only in `files`, so errors do not show it.
        self.shared.states.load(namespace, name, &path).map_err(|e| {
            let place =
                e.place.as_ref().map(|place| place.trim_start_matches(&path.display().to_string()).trim_start_matches(": ").to_owned());
            Error { place: place.filter(|place| !place.is_empty()), ..e }.field("state")
        })
    }

    /// Returns the bytes of the file that [`export_state`](Self::export_state) writes.
    ///
    /// # Errors
    /// The errors of [`export_state`](Self::export_state).
    pub fn state_bytes(&self, namespace: &str, name: &str) -> Result<Vec<u8>> {
        self.shared.states.bytes(namespace, name)
    }

    /// Returns the engine's current numbers of slots, requests, cache entries and sampled tokens.
    pub fn stats(&self) -> EngineStats {
        self.shared.lock().stats
    }

    /// Refuses new requests from now on, and blocks until all accepted requests are complete. If the prefix cache has a folder, this call also writes
    /// all cache entries to files. In a browser, returns at once: await [`drain_async`](Self::drain_async) there.
    pub fn drain(&self) {
        self.drain_within(Duration::MAX);
    }

    /// Ends all running continuations after the current step, with [`Finish::Interrupted`](crate::session::Finish). Each continuation returns its
    /// text so far and its state as a complete result. If the prompt is not completely prefilled yet, the state has only the prefilled tokens.
    /// Requests without slots fail, and so do requests for vectors and scores. New requests are refused.
    pub fn interrupt(&self) {
        let mut state = self.shared.lock();
        state.is_draining = true;
        // An engine that has ended has no requests.
        let _ = self.commands.try_send(Command::Interrupt);
    }

    /// Does what [`drain`](Self::drain) does, but blocks for at most `time`. Returns true if all requests are complete, or false if some requests
    /// still run. Requests that still run continue after the call.
    pub fn drain_within(&self, time: Duration) -> bool {
        let (done, is_done) = std::sync::mpsc::sync_channel(1);
        // The caller may have stopped waiting.
        let is_running = self.begin_drain(move || _ = done.try_send(()));
        // A browser must not block, and it lacks the clock of the standard library.
        let ended = if MAY_BLOCK { is_done.recv_timeout(time) } else { Err(RecvTimeoutError::Timeout) };
        !is_running || ended != Err(RecvTimeoutError::Timeout)
    }

    /// Does what [`drain`](Self::drain) does, and awaits the end of the requests.
    pub async fn drain_async(&self) {
        let (done, is_done) = async_channel::bounded(1);
        if self.begin_drain(move || _ = done.try_send(())) {
            let _ = is_done.recv().await;
        }
    }

    /// Refuses new requests from now on. Calls `done` when all accepted requests are complete. Returns false if the engine has ended. Then
    /// no request is left, and `done` is not called.
    fn begin_drain(&self, done: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.shared.lock();
        state.is_draining = true;
        self.commands.try_send(Command::Drain(Box::new(done))).is_ok()
    }
}

/// Returns `idle`, the session's extra slots, with one slot more. A request that begins with a named state or a cache entry opens this slot with the
/// state, and each of its continuations forks the slot.
fn spare(idle: Idle) -> Idle {
    Idle { slots: idle.slots + 1, ..idle }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("model", &self.shared.model.name()).field("stats", &self.stats()).finish()
    }
}

const fn is_shared<T: Clone + Send + Sync>() {}
const fn is_sent<T: Send>() {}
const _: () = is_shared::<Engine>();
const _: () = is_sent::<Generation>();
