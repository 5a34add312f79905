//! The engine as its callers hold it.

use super::EngineOptions;
use super::generation::Generation;
use super::prefix::{self, PrefixCache};
use super::prepare::{Prepared, Preparer};
use super::request::Request;
use super::scheduler::{Command, Scheduler, Submission};
use super::states::{State as NamedState, StateInfo, States};
use crate::error::{Error, Kind, Result};
use crate::session::{Batcher, Idle, LoadedState, Model, Session, Snapshot, nothing_to_continue};
use crate::vocab::Vocab;
use async_channel::Sender;
use std::path::Path;
#[cfg(not(target_arch = "wasm32"))]
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
#[cfg(not(target_arch = "wasm32"))]
use std::time::Duration;
use web_time::Instant;

/// What an engine has to do at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineStats {
    pub slots: usize,
    /// Slots that no generation has.
    pub free_slots: usize,
    /// Requests that have slots.
    pub running: usize,
    /// Requests that wait for slots.
    pub waiting: usize,
    /// Prompts and texts in the prefix cache.
    pub cached: usize,
    /// Tokens that were drawn since the engine began.
    pub drawn: u64,
}

/// A model at work on a thread of its own. Clones are handles of the same engine. When the last one is dropped, the engine finishes the
/// requests that it has and ends.
///
/// ```
/// # #[cfg(feature = "embedded-model")]
/// # fn main() -> wingbeat::error::Result<()> {
/// use wingbeat::engine::{Engine, EngineOptions, Event, Request};
/// use wingbeat::session::{Model, ModelSource, Options};
///
/// let model = Model::load(&ModelSource::Embedded, &Options::default(), &mut |_done, _total| ())?;
/// let engine = Engine::start(&model, EngineOptions::default())?;
/// let request = Request::text("In the beginning").max_tokens(8).set("temperature", 0);
/// for event in engine.submit(&request)? {
///     match event {
///         Event::Text { text, .. } => print!("{text}"),
///         Event::Done(done) => println!(" ({} tokens)", done.usage.completion_tokens),
///         Event::Failed(e) => return Err(e),
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
    commands: Sender<Command>,
    shared: Arc<Shared>,
}

/// What the handles and the engine's thread both see.
pub(super) struct Shared {
    pub model: Model,
    /// Those that nobody uses. Each keeps grammars that it has read.
    preparers: Mutex<Vec<Preparer>>,
    pub states: States,
    pub state: Mutex<State>,
    options: EngineOptions,
}

#[derive(Default)]
pub(super) struct State {
    pub stats: EngineStats,
    pub is_draining: bool,
}

impl Engine {
    /// Opens the slots and starts the thread.
    ///
    /// # Errors
    /// As [`Session::new`] and [`Batcher::new`]; `Memory` where no thread can be started.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn start(model: &Model, options: EngineOptions) -> Result<Engine> {
        let (engine, scheduler) = Self::open(model, options)?;
        let work = move || crate::exec::wait::block_on(scheduler.run());
        let thread = std::thread::Builder::new().name("engine".into()).spawn(work);
        thread.map_err(|e| Error::memory(format!("the engine's thread could not be started: {e}")).caused_by(e))?;
        Ok(engine)
    }

    /// Opens the slots. The engine works while the future is polled: give it to the browser as a task, with
    /// `wasm_bindgen_futures::spawn_local`. The future ends when all handles are dropped and nothing is left to do.
    ///
    /// # Errors
    /// As [`Session::new`] and [`Batcher::new`].
    #[cfg(target_arch = "wasm32")]
    pub fn start(model: &Model, options: EngineOptions) -> Result<(Engine, impl Future<Output = ()> + 'static)> {
        let (engine, scheduler) = Self::open(model, options)?;
        Ok((engine, scheduler.run()))
    }

    fn open(model: &Model, options: EngineOptions) -> Result<(Engine, Scheduler)> {
        let idle = prefix::idle(model, options.slots, &options.cache);
        let mut batcher = Batcher::new(Session::with_idle(model, options.slots, spare(idle))?)?;
        batcher.bound_prefill(options.prefill_slowdown);
        let cache = PrefixCache::new(model, &options.cache, idle)?;
        let (commands, inbox) = async_channel::unbounded();
        let stats = EngineStats { slots: options.slots, free_slots: options.slots, cached: cache.len(), ..EngineStats::default() };
        let states = States::new(model, options.states.folder.clone(), options.states.bytes)?;
        let state = Mutex::new(State { stats, is_draining: false });
        let shared = Arc::new(Shared { model: model.clone(), preparers: Mutex::default(), states, state, options: options.clone() });
        let scheduler = Scheduler::new(batcher, inbox, shared.clone(), options.slots, cache);
        Ok((Engine { commands, shared }, scheduler))
    }

    pub fn model(&self) -> &Model {
        &self.shared.model
    }

    /// Checks a request and queues it. Reads templates, grammars and text on the caller's thread, which can take a while.
    ///
    /// # Errors
    /// Everything that is wrong with the request, at its field; [`Kind::Busy`] where the queue is full; `Device` where the engine has ended.
    pub fn submit(&self, request: &Request) -> Result<Generation> {
        drop(self.shared.check_room()?);
        if request.n > self.shared.options.slots {
            let text =
                format!("expected at most {} continuations, as many as there are slots, found {}", self.shared.options.slots, request.n);
            return Err(Error::input(text).field("n"));
        }
        let state = request.state.as_ref().map(|name| self.shared.states.get(&request.namespace, name).map_err(|e| e.field("state")));
        let state = state.transpose()?;
        let mut prepared = self.shared.prepare(request, state.as_deref())?;
        if request.max_tokens.is_none() {
            prepared.limits.max_tokens = self.shared.options.max_tokens;
        }
        let (events, receiver) = async_channel::unbounded();
        let submission = Submission { prepared, events, request: request.clone(), state, at: Instant::now() };
        // Under the lock, so that nobody is counted twice and nobody comes after a drain.
        let mut state = self.shared.check_room()?;
        self.commands.try_send(Command::Submit(Box::new(submission))).map_err(|_| gone())?;
        state.stats.waiting += 1;
        Ok(Generation::new(receiver, request.n))
    }

    /// The named states of a namespace.
    ///
    /// # Errors
    /// `File`: the folder of states cannot be read.
    pub fn states(&self, namespace: &str) -> Result<Vec<StateInfo>> {
        self.shared.states.list(namespace)
    }

    /// Gives a named state a second name. Both go on alone.
    ///
    /// # Errors
    /// `Input`: there is no such state, or the new name is none. `Memory`, `File`: there is no room for it.
    pub fn fork_state(&self, namespace: &str, name: &str, new: &str) -> Result<StateInfo> {
        self.shared.states.fork(namespace, name, new)
    }

    /// Forgets a named state, and removes its file. Requests that began from it go on.
    ///
    /// # Errors
    /// `Input`: there is no such state. `File`: its file cannot be removed.
    pub fn delete_state(&self, namespace: &str, name: &str) -> Result<()> {
        self.shared.states.delete(namespace, name)
    }

    /// Reads a state file, of this program or a tuned one, and keeps it under a name.
    ///
    /// # Errors
    /// `File`: it is no state. `Model`: it was made with other weights. `Memory`: there is no room for it.
    pub fn load_state(&self, namespace: &str, name: &str, path: &Path) -> Result<StateInfo> {
        self.shared.states.load(namespace, name, path)
    }

    /// Keeps a state under a name, such as [`Snapshot::load`] reads one.
    ///
    /// # Errors
    /// `Input`: the name is none. `Memory`, `File`: there is no room for it.
    pub fn keep_state(&self, namespace: &str, name: &str, snapshot: Snapshot, loaded: LoadedState) -> Result<StateInfo> {
        self.shared.states.put(namespace, name, NamedState { snapshot, loaded })
    }

    /// Writes a named state to a file, which any engine with these weights can load.
    ///
    /// # Errors
    /// `Input`: there is no such state, or another file has that name. `File`: the file cannot be written.
    pub fn export_state(&self, namespace: &str, name: &str, path: &Path) -> Result<()> {
        self.shared.states.save(namespace, name, path)
    }

    /// What there is to do now.
    pub fn stats(&self) -> EngineStats {
        self.shared.lock().stats
    }

    /// Refuses new requests and waits until those are done that it has.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn drain(&self) {
        self.drain_within(Duration::MAX);
    }

    /// The same, for so long at most. Returns whether all are done; those that are not go on.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn drain_within(&self, time: Duration) -> bool {
        let (done, is_done) = std::sync::mpsc::sync_channel(1);
        let sent = {
            let mut state = self.shared.lock();
            state.is_draining = true;
            self.commands.try_send(Command::Drain(done))
        };
        // An engine that has ended has nothing left to do.
        sent.is_err() || !matches!(is_done.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }
}

impl Shared {
    /// Prepares a request, after a state if there is one. Several callers prepare at once.
    fn prepare(&self, request: &Request, state: Option<&NamedState>) -> Result<Prepared> {
        let lock = || self.preparers.lock().unwrap_or_else(PoisonError::into_inner);
        let preparer = lock().pop();
        let mut preparer =
            preparer.unwrap_or_else(|| Preparer::new(&self.model, self.options.format.clone()).with_ends(self.options.cache.is_on()));
        let prepared = match state {
            None => preparer.prepare(request),
            Some(state) => {
                let is_begun = state.snapshot.n_tokens() > 0;
                let encode = if is_begun { Vocab::encode_further } else { Vocab::encode_prompt };
                preparer.prepare_with(request, encode).and_then(|prepared| check_after(state, prepared, request, self.model.context()))
            }
        };
        lock().push(preparer);
        prepared
    }

    /// Refuses a request that has no place in the queue. Requests that free slots will take at once do not count.
    fn check_room(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.is_draining {
            return Err(gone());
        }
        let waiting = state.stats.waiting.saturating_sub(state.stats.free_slots);
        if waiting >= self.options.queue.max(1) {
            return Err(Error::new(Kind::Busy, format!("{waiting} requests wait already")).hint("try again later"));
        }
        Ok(state)
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One more: a request that goes on from a state or an entry needs a slot for it, for a moment.
fn spare(idle: Idle) -> Idle {
    Idle { slots: idle.slots + 1, ..idle }
}

/// Whether a prompt can be read after a state.
fn check_after(state: &NamedState, prepared: Prepared, request: &Request, context: Option<usize>) -> Result<Prepared> {
    let n = prepared.prompt.len();
    let all = n + state.snapshot.n_tokens();
    if let Some(context) = context.filter(|context| all > *context) {
        let text = format!("expected at most {context} tokens with those of the state, the context, found {all}");
        return Err(Error::input(text).field(request.input.field()).hint("give a larger `context`, or a shorter prompt"));
    }
    if n == 0 && !state.snapshot.has_logits() {
        return Err(nothing_to_continue().field(request.input.field()));
    }
    Ok(prepared)
}

fn gone() -> Error {
    Error::device("the engine has ended and takes no more requests")
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
