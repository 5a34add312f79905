//! The models of a server: loading, ready, or failed.

use super::failure::{Answer, Failure};
use serde::Serialize;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use utoipa::ToSchema;
use wingbeat::engine::Engine;
use wingbeat::error::{Error, Kind, Result};

/// A function that loads a model and starts its engine. The server calls the function on a separate thread: at the start, and again after the
/// device was lost.
pub type LoadEngine = Box<dyn Fn() -> Result<Engine> + Send + Sync>;

/// The task of a model in a server: texts, or vectors and scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServedTask {
    /// Generates texts. Also computes vectors if the server has no embedding model.
    Text,
    /// Computes vectors. Also computes scores if the engine has a reranker.
    Embedding,
}

/// A model that a server offers.
pub struct ServedModel {
    /// The name that requests use.
    pub name: String,
    /// The task of the model.
    pub task: ServedTask,
    /// Loads the model.
    pub load: LoadEngine,
}

/// Keeps a model in memory while a request uses it.
pub struct Lease(Arc<Hosted>);

impl Lease {
    /// Returns a lease of the model that has the engine.
    pub fn of(model: &Arc<Hosted>) -> Lease {
        let model = model.root().clone();
        model.n_leases.fetch_add(1, Ordering::SeqCst);
        Lease(model)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.touch();
        self.0.n_leases.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Calls `load`. A panic becomes an error, so that a model that cannot be loaded does not stay in the stage of loading.
fn caught(load: &(dyn Fn() -> Result<Engine> + Send + Sync)) -> Result<Engine> {
    let loaded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(load));
    loaded.unwrap_or_else(|_| Err(Error::device("the model could not be loaded, because of a fault of wingbeat")))
}

/// If the device is lost twice within this time, the server ends. Otherwise, a lost device is opened again.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);

/// A model of a running server.
pub struct Hosted {
    pub name: String,
    pub task: ServedTask,
    /// The model whose engine this model shares: this model then only adds a tuned initial state, which has this model's name in the engine. `None`
    /// if this model has its own engine.
    pub base: Option<Arc<Hosted>>,
    /// The time when the server started, in seconds since 1970.
    pub created: u64,
    load: LoadEngine,
    /// True if the model loads on its first use. After a load that failed, the next use tries again.
    is_lazy: bool,
    phase: Mutex<Phase>,
    /// Signals that the phase has changed.
    pub changed: Notify,
    /// The time at which a request last asked for the model, or ended.
    used: Mutex<Instant>,
    /// The number of requests that need the model in memory.
    n_leases: AtomicU32,
    n_loads: AtomicU32,
    pub losses: Losses,
}

/// The stage of a model's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Unloaded,
    Loading,
    Ready,
    Failed,
}

enum Phase {
    /// The model loads on its first use: see `ServeOptions::keep_alive`.
    Unloaded,
    Loading,
    /// The engine and its number: how many attempts to load the model came before.
    Ready(Engine, u32),
    Failed(Error),
}

impl Hosted {
    /// Returns the time when the server started, in the format of RFC 3339.
    pub fn started(&self) -> String {
        jiff::Timestamp::from_second(self.created as i64).unwrap_or_default().to_string()
    }

    /// Returns a model that is not loaded yet. If `is_lazy` is true, the model loads on its first use.
    pub fn new(ServedModel { name, task, load }: ServedModel, is_lazy: bool) -> Hosted {
        Hosted {
            name,
            task,
            base: None,
            created: super::ids::now(),
            load,
            is_lazy,
            phase: Mutex::new(if is_lazy { Phase::Unloaded } else { Phase::Loading }),
            changed: Notify::new(),
            used: Mutex::new(Instant::now()),
            n_leases: AtomicU32::new(0),
            n_loads: AtomicU32::new(0),
            losses: Losses::default(),
        }
    }

    /// Returns a model with this name that begins texts of `base` in a tuned initial state.
    pub fn tuned(name: &str, base: &Arc<Hosted>) -> Hosted {
        let load: LoadEngine = Box::new(|| Err(Error::input("a model with an initial state has no engine of its own")));
        Hosted { base: Some(base.clone()), ..Hosted::new(ServedModel { name: name.into(), task: ServedTask::Text, load }, false) }
    }

    /// Returns the model that has the engine: the base of a model with a tuned initial state, or else this model.
    pub fn root(self: &Arc<Self>) -> &Arc<Hosted> {
        self.base.as_ref().unwrap_or(self)
    }

    /// Returns the name of the tuned initial state in which texts begin, or `None` for a model with its own engine.
    pub fn initial(&self) -> Option<String> {
        self.base.is_some().then(|| self.name.clone())
    }

    /// Loads the model. Blocks until the model is ready.
    ///
    /// # Errors
    /// The errors of the function that loads the model.
    pub fn load(&self) -> Result<()> {
        self.load_with(|| false)
    }

    /// Loads the model as [`load`](Self::load) does. If memory is short and `make_room` returns true, tries once more.
    ///
    /// # Errors
    /// The errors of the function that loads the model.
    pub fn load_with(&self, make_room: impl FnOnce() -> bool) -> Result<()> {
        let mut loaded = caught(&*self.load);
        if loaded.as_ref().is_err_and(|e| e.kind == Kind::Memory) && make_room() {
            loaded = caught(&*self.load);
        }
        let n_before = self.n_loads.fetch_add(1, Ordering::Relaxed);
        let (phase, result) = match loaded {
            Ok(engine) => {
                self.note_context(&engine);
                (Phase::Ready(engine, n_before), Ok(()))
            }
            Err(e) => (Phase::Failed(e.clone()), Err(e)),
        };
        *self.lock() = phase;
        self.touch();
        self.changed.notify_waiters();
        result
    }

    /// Logs a warning if the model was trained for a longer context than the server gives it.
    fn note_context(&self, engine: &Engine) {
        let model = engine.model();
        if let (Some(served), Some(trained)) = (model.context(), model.facts().context)
            && served < trained
        {
            log::warn!(
                "model {}: the context has {served} tokens; the model was trained for {trained}; the option `context` sets it",
                self.name
            );
        }
    }

    /// Records that a request uses the model now.
    pub fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns whether the model can answer a request: it is ready, or loads on its first use.
    pub fn takes_requests(&self) -> bool {
        self.base.as_ref().map_or(self.is_lazy, |base| base.is_lazy) || self.stage() == Stage::Ready
    }

    pub fn stage(&self) -> Stage {
        match &*self.lock() {
            Phase::Unloaded => Stage::Unloaded,
            Phase::Loading => Stage::Loading,
            Phase::Ready(..) => Stage::Ready,
            Phase::Failed(_) => Stage::Failed,
        }
    }

    /// Begins to load a model that is unloaded or could not be loaded. If the result is true, the caller must call [`load_with`](Self::load_with). Returns
    /// false if the model is in another stage.
    pub fn begin_load(&self) -> bool {
        let mut phase = self.lock();
        let begins = matches!(*phase, Phase::Unloaded | Phase::Failed(_));
        if begins {
            *phase = Phase::Loading;
        }
        begins
    }

    /// Unloads the model if it has no requests and no request has used it for `time`. Returns its engine: dropping it frees the memory.
    pub fn unload_if_idle(&self, time: Duration) -> Option<Engine> {
        let mut phase = self.lock();
        let Phase::Ready(engine, _) = &*phase else { return None };
        let stats = engine.stats();
        let is_idle = stats.running == 0 && stats.waiting == 0 && self.n_leases.load(Ordering::SeqCst) == 0;
        if !is_idle || self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < time {
            return None;
        }
        match std::mem::replace(&mut *phase, Phase::Unloaded) {
            Phase::Ready(engine, _) => Some(engine),
            _ => None,
        }
    }

    /// Returns the engine and its number. If the device of the engine fails, pass this number to [`lose`](Self::lose).
    ///
    /// # Errors
    /// 503 if the model is not ready.
    pub fn engine(&self) -> Answer<(Engine, u32)> {
        match &*self.lock() {
            Phase::Ready(engine, number) => Ok((engine.clone(), *number)),
            Phase::Unloaded => Err(Failure::unavailable("model_loading", format!("the model {} is not loaded", self.name))),
            Phase::Loading => Err(Failure::unavailable("model_loading", format!("the model {} is being loaded", self.name))),
            Phase::Failed(e) => {
                // Leaves out the place, because callers must not learn paths of the server. The log has the whole error.
                let text = format!("the model {} could not be loaded: {}", self.name, e.message);
                Err(Failure { retry_after: None, ..Failure::from(Error::device(text)) })
            }
        }
    }

    /// Returns the engine if the model is ready.
    pub fn ready(&self) -> Option<Engine> {
        self.engine().ok().map(|(engine, _)| engine)
    }

    /// Takes the engine with this number out of service, because its device has failed. Returns the engine, or `None` if the engine is already out of
    /// service. Dropping the last handle of an engine waits for its thread, so drop the result where blocking is allowed.
    pub fn lose(&self, number: u32) -> Option<Engine> {
        let mut phase = self.lock();
        match std::mem::replace(&mut *phase, Phase::Loading) {
            Phase::Ready(engine, current) if current == number => Some(engine),
            other => {
                *phase = other;
                None
            }
        }
    }

    /// Locks and returns the phase of the model that has the engine.
    fn lock(&self) -> MutexGuard<'_, Phase> {
        if let Some(base) = &self.base {
            return base.lock();
        }
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Remembers when the device was last lost. A lost device is opened again, but a second loss within ten minutes ends the server.
#[derive(Default)]
pub struct Losses(Mutex<Option<Instant>>);

impl Losses {
    /// Records a loss of the device. Returns whether the device may be opened again.
    pub fn may_reopen(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = last.is_none_or(|at| at.elapsed() > FORGIVEN_AFTER);
        *last = Some(Instant::now());
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wingbeat::engine::EngineOptions;
    use wingbeat::low_level::session::{Model, ModelSource, Options};

    #[test]
    fn a_lost_engine_is_loaded_again() {
        let options = Options { device: "cpu".parse().unwrap(), ..Options::default() };
        let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap();
        let load: LoadEngine = Box::new(move || Engine::start(&model, EngineOptions::default()));
        let hosted = Hosted::new(ServedModel { name: "x".into(), task: ServedTask::Text, load }, false);
        assert_eq!(hosted.engine().unwrap_err().code, Some("model_loading"));
        hosted.load().unwrap();
        let (_, number) = hosted.engine().unwrap();
        // Several requests report the same loss.
        assert!(hosted.lose(number).is_some() && hosted.lose(number).is_none());
        assert!(hosted.ready().is_none());
        hosted.load().unwrap();
        let (_, next) = hosted.engine().unwrap();
        // A late report of the old engine's loss does not end the new engine.
        assert!(next != number && hosted.lose(number).is_none() && hosted.ready().is_some());
        let losses = Losses::default();
        assert!(losses.may_reopen() && !losses.may_reopen());
    }
}
