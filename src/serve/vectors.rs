//! Models that compute vectors and scores. Such a model handles one request after the other.

use super::failure::{Answer, Failure};
use super::hosted::{Hosted, Load, Runs, Served};
use crate::engine::EngineStats;
use crate::error::{Error, Kind};
use crate::session::{Embedder, Model, Reranker};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A model that computes vectors, with its reranker.
pub struct Vectors {
    /// Computes the vectors of texts.
    pub embedder: Embedder,
    /// Scores documents. `None` if the model has no reranker.
    pub reranker: Option<Reranker>,
}

/// A function that loads a model for vectors.
pub type LoadVectors = Load<Vectors>;

/// A model for vectors that a server offers.
pub type ServedVectors = Served<Vectors>;

/// A model for vectors of a running server.
pub type HostedVectors = Hosted<VectorEngine>;

/// Runs requests for vectors and scores, one after the other. Clones are handles of the same model.
#[derive(Clone)]
pub struct VectorEngine(Arc<Inner>);

struct Inner {
    model: Model,
    n_slots: usize,
    /// The request that has its turn locks the model.
    vectors: Mutex<Vectors>,
    /// The flags that interrupt the embedder and the reranker between two steps.
    stops: Vec<Arc<AtomicBool>>,
    /// Requests take turns. A request waits without a thread. The semaphore is closed when the server ends.
    turn: Arc<Semaphore>,
    n_waiting: AtomicUsize,
}

/// The most requests that wait for their turn.
const MAX_WAITING: usize = 256;

/// Counts a waiting request until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl HostedVectors {
    /// Returns a model for vectors that is not loaded yet.
    pub fn of_vectors(Served { name, load }: ServedVectors) -> HostedVectors {
        Hosted::new(Served { name, load: Box::new(move || load().map(VectorEngine::new)) })
    }
}

impl Runs for VectorEngine {
    const TASK: &'static str = "embedding";

    fn model(&self) -> &Model {
        &self.0.model
    }

    fn stats(&self) -> EngineStats {
        let Inner { n_slots, turn, n_waiting, .. } = &*self.0;
        let running = 1 - turn.available_permits().min(1);
        let free_slots = if running == 0 { *n_slots } else { 0 };
        EngineStats { slots: *n_slots, free_slots, running, waiting: n_waiting.load(Ordering::SeqCst), ..EngineStats::default() }
    }

    fn interrupt(&self) {
        self.0.turn.close();
    }
}

impl VectorEngine {
    fn new(vectors: Vectors) -> VectorEngine {
        let stops = [Some(vectors.embedder.stop_flag()), vectors.reranker.as_ref().map(Reranker::stop_flag)];
        VectorEngine(Arc::new(Inner {
            model: vectors.embedder.model().clone(),
            n_slots: vectors.embedder.n_slots(),
            vectors: Mutex::new(vectors),
            stops: stops.into_iter().flatten().collect(),
            turn: Arc::new(Semaphore::new(1)),
            n_waiting: AtomicUsize::new(0),
        }))
    }

    /// Locks the model. Only the request that has its turn may do this.
    pub fn lock(&self) -> MutexGuard<'_, Vectors> {
        self.0.vectors.lock().unwrap_or_else(|poisoned| {
            // An earlier request panicked and left its slots open.
            let mut vectors = poisoned.into_inner();
            vectors.embedder.recover();
            vectors.reranker.iter_mut().for_each(Reranker::recover);
            self.0.vectors.clear_poison();
            vectors
        })
    }

    /// Returns whether the server ends.
    pub fn is_ending(&self) -> bool {
        self.0.turn.is_closed()
    }

    /// Sets the flags that interrupt the embedder and the reranker.
    pub fn set_stop(&self, value: bool) {
        self.0.stops.iter().for_each(|flag| flag.store(value, Ordering::SeqCst));
    }

    /// Waits for the turn of a request. The turn ends when the permit is dropped.
    ///
    /// # Errors
    /// 429 if too many requests wait; 503 if the server ends.
    pub async fn turn(&self) -> Answer<OwnedSemaphorePermit> {
        let _waiting = Waiting(&self.0.n_waiting);
        if self.0.n_waiting.fetch_add(1, Ordering::SeqCst) >= MAX_WAITING {
            return Err(Error::new(Kind::Busy, format!("the queue is full: {MAX_WAITING} requests are waiting")).into());
        }
        self.0.turn.clone().acquire_owned().await.map_err(|_| Failure::stopping())
    }
}
