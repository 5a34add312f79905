//! The models of a server: loading, ready, or failed.

use super::failure::{Answer, Failure};
use crate::engine::Engine;
use crate::error::{Error, Result};
use serde::Serialize;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use utoipa::ToSchema;

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

/// If the device is lost twice within this time, the server ends. Otherwise, a lost device is opened again.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);

/// A model of a running server.
pub struct Hosted {
    pub name: String,
    pub task: ServedTask,
    /// The time when the server started, in seconds since 1970.
    pub created: u64,
    load: LoadEngine,
    phase: Mutex<Phase>,
    n_loads: AtomicU32,
    pub losses: Losses,
}

enum Phase {
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

    pub fn new(ServedModel { name, task, load }: ServedModel) -> Hosted {
        Hosted {
            name,
            task,
            created: super::ids::now(),
            load,
            phase: Mutex::new(Phase::Loading),
            n_loads: AtomicU32::new(0),
            losses: Losses::default(),
        }
    }

    /// Loads the model. Blocks until the model is ready.
    ///
    /// # Errors
    /// The errors of the function that loads the model.
    pub fn load(&self) -> Result<()> {
        let loaded = (self.load)();
        let n_before = self.n_loads.fetch_add(1, Ordering::Relaxed);
        let (phase, result) = match loaded {
            Ok(engine) => (Phase::Ready(engine, n_before), Ok(())),
            Err(e) => (Phase::Failed(e.clone()), Err(e)),
        };
        *self.lock() = phase;
        result
    }

    /// Returns the engine and its number. If the device of the engine fails, pass this number to [`lose`](Self::lose).
    ///
    /// # Errors
    /// 503 if the model is not ready.
    pub fn engine(&self) -> Answer<(Engine, u32)> {
        match &*self.lock() {
            Phase::Ready(engine, number) => Ok((engine.clone(), *number)),
            Phase::Loading => Err(Failure::unavailable("model_loading", format!("the model {} is being loaded", self.name))),
            Phase::Failed(e) => {
                Err(Failure { retry_after: None, ..Failure::from(Error::device(format!("the model could not be loaded: {e}"))) })
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

    fn lock(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Remembers when the device was last lost. A lost device is opened again, but a second loss within ten minutes ends the server.
#[derive(Default)]
pub struct Losses(Mutex<Option<Instant>>);

impl Losses {
    /// Records a loss. Returns whether the device may be opened again.
    pub fn may_reopen(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = last.is_none_or(|at| at.elapsed() > FORGIVEN_AFTER);
        *last = Some(Instant::now());
        is_first
    }
}

#[cfg(all(test, feature = "embedded-model"))]
mod tests {
    use super::*;
    use crate::engine::EngineOptions;
    use crate::session::{Model, ModelSource, Options};

    #[test]
    fn a_lost_engine_is_loaded_again() {
        let options = Options { device: "cpu".parse().unwrap(), ..Options::default() };
        let model = Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap();
        let load: LoadEngine = Box::new(move || Engine::start(&model, EngineOptions::default()));
        let hosted = Hosted::new(ServedModel { name: "x".into(), task: ServedTask::Text, load });
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
