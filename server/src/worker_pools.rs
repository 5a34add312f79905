//! Threads for the work of requests: parsing, tokenizing, compiling grammars. A bound per key keeps one caller from taking all threads.

use super::failure::blocking;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;
use wingbeat::error::Error;

/// The maximum size of a request whose work counts as quick, in bytes.
pub const QUICK_BYTES: usize = 64 << 10;

/// Two pools: one for quick work, and one for the work of large requests, so that quick work never waits behind large requests.
pub struct WorkerPools {
    quick: WorkerPool,
    large: WorkerPool,
}

struct WorkerPool {
    all: Arc<Semaphore>,
    per_key: usize,
    /// One semaphore for each namespace.
    of: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl WorkerPool {
    /// Returns a pool that does at most `n` pieces of work at once. With several keys, each key has at most half of these pieces.
    fn new(n: usize, n_keys: usize) -> WorkerPool {
        WorkerPool { all: Arc::new(Semaphore::new(n)), per_key: if n_keys > 1 { n / 2 } else { n }, of: Mutex::default() }
    }

    fn of(&self, namespace: &str) -> Arc<Semaphore> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        of.entry(namespace.into()).or_insert_with(|| Arc::new(Semaphore::new(self.per_key))).clone()
    }
}

impl WorkerPools {
    pub fn new(n_keys: usize) -> WorkerPools {
        WorkerPools { quick: WorkerPool::new(4, n_keys), large: WorkerPool::new(2, n_keys) }
    }

    /// Runs work for a request of `n_bytes` on a thread that may block. First waits until the pool has room, for this namespace and for all callers
    /// together.
    pub async fn run<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        namespace: &str,
        n_bytes: usize,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let pool = if n_bytes <= QUICK_BYTES { &self.quick } else { &self.large };
        // The permits move into the work, so a client that leaves does not free them early. Acquiring a permit fails only if the semaphore is closed, and no
        // code closes it.
        let own = pool.of(namespace).acquire_owned().await;
        let any = pool.all.clone().acquire_owned().await;
        blocking(move || {
            let _permits = (own, any);
            work()
        })
        .await
    }
}
