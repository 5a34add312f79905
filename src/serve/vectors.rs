//! Models that compute vectors and scores. Such a model handles one request after the other.

use super::failure::{Answer, Failure};
use crate::error::Result;
use crate::session::{Embedder, Embedding, Reranker};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

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
}

impl HostedVectors {
    pub fn new(ServedVectors { name, load }: ServedVectors) -> HostedVectors {
        let created = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
        HostedVectors { name, created, load, vectors: Mutex::default(), is_ready: Default::default() }
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
