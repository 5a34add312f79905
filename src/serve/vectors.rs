//! Models that compute vectors and scores. Such a model handles one request after the other.

use super::failure::{Answer, Failure};
use crate::error::{Error, Kind, Result};
use crate::session::{Embedder, Embedding, Reranker};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// A model that computes vectors, with its reranker.
pub struct Vectors {
    /// Computes the vectors of texts.
    pub embedder: Embedder,
    /// Scores documents. `None` if the model has no reranker.
    pub reranker: Option<Reranker>,
}

/// A function that loads a model for vectors.
pub type LoadVectors = Box<dyn Fn() -> Result<Vectors> + Send + Sync>;

/// A model for vectors that a server offers.
pub struct ServedVectors {
    /// The name that requests use.
    pub name: String,
    /// Loads the model.
    pub load: LoadVectors,
}

/// A model for vectors of a running server.
pub struct HostedVectors {
    pub name: String,
    /// The time when the server started, in seconds since 1970.
    pub created: u64,
    load: LoadVectors,
    /// `None` while the model is being loaded.
    vectors: Mutex<Option<Vectors>>,
    is_ready: std::sync::atomic::AtomicBool,
    /// Requests take turns. A request waits without a thread.
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
    pub fn new(ServedVectors { name, load }: ServedVectors) -> HostedVectors {
        HostedVectors {
            name,
            created: super::ids::now(),
            load,
            vectors: Mutex::default(),
            is_ready: Default::default(),
            turn: Arc::new(Semaphore::new(1)),
            n_waiting: AtomicUsize::new(0),
        }
    }

    /// Loads the model.
    ///
    /// # Errors
    /// The errors of the function that loads the model.
    pub fn load(&self) -> Result<()> {
        let vectors = (self.load)()?;
        *self.vectors.lock().unwrap_or_else(PoisonError::into_inner) = Some(vectors);
        self.is_ready.store(true, std::sync::atomic::Ordering::SeqCst);
        Ok(())
    }

    pub fn is_ready(&self) -> bool {
        self.is_ready.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Runs work on a thread that may block, when it is this request's turn. A client that leaves stops waiting.
    ///
    /// # Errors
    /// 429 if too many requests wait; the errors of `work`.
    pub async fn in_turn<T: Send + 'static>(self: &Arc<Self>, work: impl FnOnce(&Self) -> Answer<T> + Send + 'static) -> Answer<T> {
        let waiting = Waiting(&self.n_waiting);
        if self.n_waiting.fetch_add(1, Ordering::SeqCst) >= MAX_WAITING {
            return Err(Error::new(Kind::Busy, format!("{MAX_WAITING} requests are waiting for the model {}", self.name)).into());
        }
        let turn = self.turn.clone().acquire_owned().await;
        drop(waiting);
        let model = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(&model)
        });
        done.await.unwrap_or_else(|_| Err(Error::device("computing the vectors panicked").into()))
    }

    /// Computes the vectors of texts. Blocks.
    ///
    /// # Errors
    /// 400 if a text is empty or too long; 503 if the model is not ready.
    pub fn embed(&self, texts: &[String], field: &str) -> Answer<Vec<Embedding>> {
        self.with(|vectors| {
            let encoded =
                texts.iter().enumerate().map(|(i, text)| vectors.embedder.encode(text).map_err(|e| e.field(&format!("{field}[{i}]"))));
            let encoded = encoded.collect::<Result<Vec<Vec<u32>>>>()?;
            let mut all = Vec::with_capacity(encoded.len());
            for group in encoded.chunks(vectors.embedder.n_slots()) {
                let tokens: Vec<&[u32]> = group.iter().map(Vec::as_slice).collect();
                let found = vectors.embedder.embed_tokens(&tokens, &mut |_, _| ())?;
                all.extend(found.into_iter().zip(group).map(|(vector, tokens)| Embedding { vector, n_tokens: tokens.len() }));
            }
            Ok(all)
        })
    }

    /// Computes a logit for each document. Blocks.
    ///
    /// # Errors
    /// 400 if the model has no reranker, or a text is empty; 503 if the model is not ready.
    pub fn score(&self, query: &str, documents: &[&str]) -> Answer<Vec<f32>> {
        self.with(|vectors| match &mut vectors.reranker {
            Some(reranker) => Ok(reranker.score(query, documents, &mut |_, _| ())?),
            None => Err(Failure::field("model", "this model has no reranker")),
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Vectors) -> Answer<T>) -> Answer<T> {
        // Other requests wait for this lock until the work is done.
        let mut vectors = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        match vectors.as_mut() {
            Some(vectors) => work(vectors),
            None => Err(Failure::unavailable("model_loading", format!("the model {} is being loaded", self.name))),
        }
    }
}
