//! The engine as its callers hold it.

use super::generation::Generation;
use super::prepare::Preparer;
use super::request::Request;
use super::scheduler::{Command, Scheduler, Submission};
use crate::chat::Format;
use crate::error::{Error, Kind, Result};
use crate::session::{Batcher, Idle, MAX_SLOTS, Model, Session};
use async_channel::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How an engine is started.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Generations that run at once, 1 to 1024.
    pub slots: usize,
    /// Requests that wait for a slot, at most; one more is refused with [`Kind::Busy`].
    pub queue: usize,
    /// How long a step may take while a prompt is read and others decode, as a multiple of a step without the prompt.
    pub prefill_slowdown: f64,
    /// Bytes of the device for slots that stand after earlier prompts and texts, so that a request that begins alike need not read them
    /// again. 0: no prefix cache.
    pub cache_bytes: u64,
    /// Tokens of a text whose request names no limit.
    pub max_tokens: usize,
    /// How messages are written; the model's own format if none.
    pub format: Option<Format>,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions { slots: 8, queue: 256, prefill_slowdown: 2.0, cache_bytes: 256 << 20, max_tokens: 4096, format: None }
    }
}

/// Slots that the prefix cache takes at most.
const MAX_CACHED: u64 = 256;

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
    /// Entries that the prefix cache has room for. A model with attention needs a whole context for each.
    pub cache_slots: usize,
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
    preparer: Mutex<Preparer>,
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
        let cached = (options.cache_bytes / model.slot_bytes().max(1)).min(MAX_CACHED) as usize;
        let cached = cached.min(MAX_SLOTS.saturating_sub(options.slots));
        let mut batcher =
            Batcher::new(Session::with_idle(model, options.slots, Idle { slots: cached, tokens: cached * model.context().unwrap_or(0) })?)?;
        batcher.bound_prefill(Some(options.prefill_slowdown));
        let (commands, inbox) = async_channel::unbounded();
        let stats = EngineStats { slots: options.slots, free_slots: options.slots, cache_slots: cached, ..EngineStats::default() };
        let preparer = Mutex::new(Preparer::new(model, options.format.clone()));
        let state = Mutex::new(State { stats, is_draining: false });
        let shared = Arc::new(Shared { model: model.clone(), preparer, state, options: options.clone() });
        let scheduler = Scheduler::new(batcher, inbox, shared.clone(), options.slots, cached);
        let thread = std::thread::Builder::new().name("engine".into()).spawn(move || scheduler.run());
        thread.map_err(|e| Error::memory(format!("the engine's thread could not be started: {e}")).caused_by(e))?;
        Ok(Engine { commands, shared })
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
        let mut prepared = self.shared.preparer.lock().unwrap_or_else(PoisonError::into_inner).prepare(request)?;
        if request.max_tokens.is_none() {
            prepared.limits.max_tokens = self.shared.options.max_tokens;
        }
        let (events, receiver) = async_channel::unbounded();
        let submission = Submission {
            prepared,
            events,
            n: request.n,
            n_logprobs: request.logprobs,
            priority: request.priority,
            cache: request.cache.clone(),
            at: Instant::now(),
        };
        // Under the lock, so that nobody is counted twice and nobody comes after a drain.
        let mut state = self.shared.check_room()?;
        self.commands.try_send(Command::Submit(Box::new(submission))).map_err(|_| gone())?;
        state.stats.waiting += 1;
        Ok(Generation::new(receiver, request.n))
    }

    /// What there is to do now.
    pub fn stats(&self) -> EngineStats {
        self.shared.lock().stats
    }

    /// Refuses new requests and waits until those are done that it has.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn drain(&self) {
        let (done, is_done) = async_channel::bounded(1);
        let sent = {
            let mut state = self.shared.lock();
            state.is_draining = true;
            self.commands.try_send(Command::Drain(done))
        };
        if sent.is_ok() {
            // An engine that has ended has nothing left to do.
            let _ = is_done.recv_blocking();
        }
    }
}

impl Shared {
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
