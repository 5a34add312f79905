//! The engine as its callers hold it.

use super::EngineOptions;
use super::generation::Generation;
use super::outbox;
use super::prefix::{self, PrefixCache};
use super::prepare::Prepared;
use super::request::Request;
use super::scheduler::{Command, Inbox, Scheduler, Submission};
use super::shared::{EngineStats, Shared, gone};
use super::states::{State as NamedState, StateInfo, States};
#[cfg(doc)]
use crate::error::Kind;
use crate::error::{Error, Result};
use crate::session::{Batcher, Idle, LoadedState, Model, Session, Snapshot};
use async_channel::Sender;
use std::path::Path;
use std::sync::Arc;
#[cfg(not(target_arch = "wasm32"))]
use std::sync::mpsc::RecvTimeoutError;
#[cfg(not(target_arch = "wasm32"))]
use std::time::Duration;
use web_time::Instant;

/// A model at work on a thread of its own. Clones are handles of the same engine. When the last one is dropped, the engine finishes the
/// requests that it has and ends.
///
/// ```
/// # #[cfg(feature = "embedded-model")]
/// # fn main() -> wingbeat::error::Result<()> {
/// use wingbeat::engine::{Engine, EngineOptions, Event, Request};
/// use wingbeat::session::{Model, ModelSource, Options};
///
/// let mut options = Options::default();
/// options.device = "cpu".parse()?; // default: the fastest GPU
/// let model = Model::load(&ModelSource::Embedded, &options, &mut |_done, _total| ())?;
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
    /// Wakes the engine's thread: a reader has taken events, or a file has been written.
    wake: Sender<()>,
    shared: Arc<Shared>,
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
        // One message stands for any number of them.
        let (wake, woken) = async_channel::bounded(1);
        let states = States::new(model, &options.states, wake.clone())?;
        let shared = Arc::new(Shared::new(model, options, states, stats));
        let scheduler = Scheduler::new(batcher, Inbox { commands: inbox, woken, _wake: wake.clone() }, shared.clone(), cache);
        Ok((Engine { commands, wake, shared }, scheduler))
    }

    /// Returns the model.
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
        self.queue(prepared, request.clone(), state)
    }

    /// Queues a request that is prepared.
    pub(super) fn queue(&self, prepared: Prepared, request: Request, state: Option<Arc<NamedState>>) -> Result<Generation> {
        let (events, reader) = outbox::queue(self.shared.options.event_bytes, self.wake.clone());
        let n = request.n;
        let submission = Submission { prepared, events, request, state, at: Instant::now() };
        // Under the lock, so that nobody is counted twice and nobody comes after a drain.
        let mut state = self.shared.check_room()?;
        self.commands.try_send(Command::Submit(Box::new(submission))).map_err(|_| gone())?;
        state.stats.waiting += 1;
        Ok(Generation::new(reader, n))
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

/// One more: a request that goes on from a state or an entry needs a slot for it, for a moment.
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
