//! The list of requests that are being answered.

use super::guard::Caller;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use utoipa::ToSchema;

/// The requests that are being answered.
#[derive(Default)]
pub struct Ledger {
    n_entries: AtomicU64,
    entries: Mutex<HashMap<u64, LedgerEntry>>,
}

struct LedgerEntry {
    namespace: String,
    model: String,
    began: Instant,
    request: OpenRequest,
}

/// A request that is being answered.
#[derive(Clone, Serialize, ToSchema)]
pub struct OpenRequest {
    id: String,
    endpoint: &'static str,
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    /// The number of events with text, thoughts or arguments that the engine has sent for the request.
    pub events: usize,
    /// The time since the request began, in seconds.
    seconds: f64,
}

impl Ledger {
    /// Returns the open requests that the callers of a namespace have sent to a model, oldest first.
    pub fn of(&self, namespace: &str, model: &str) -> Vec<OpenRequest> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<(&u64, &LedgerEntry)> =
            entries.iter().filter(|(_, entry)| entry.namespace == namespace && entry.model == model).collect();
        found.sort_by_key(|(id, _)| **id);
        let request =
            |entry: &LedgerEntry| OpenRequest { seconds: entry.began.elapsed().as_millis() as f64 / 1e3, ..entry.request.clone() };
        found.into_iter().map(|(_, entry)| request(entry)).collect()
    }

    pub fn len(&self) -> usize {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Owns one entry of the ledger. Dropping the guard removes the entry.
pub struct OpenRequestGuard {
    ledger: Arc<Ledger>,
    id: u64,
}

impl OpenRequestGuard {
    /// Adds a request of a caller to the ledger.
    pub fn open(ledger: &Arc<Ledger>, caller: &Caller, endpoint: &'static str, model: &str) -> OpenRequestGuard {
        let id = caller.request_id.clone();
        let request = OpenRequest { id, endpoint, prompt_tokens: 0, cached_tokens: 0, events: 0, seconds: 0.0 };
        let entry = LedgerEntry { namespace: caller.namespace.clone(), model: model.into(), began: Instant::now(), request };
        let id = ledger.n_entries.fetch_add(1, Ordering::Relaxed);
        ledger.entries.lock().unwrap_or_else(PoisonError::into_inner).insert(id, entry);
        OpenRequestGuard { ledger: ledger.clone(), id }
    }

    pub fn update(&self, change: impl FnOnce(&mut OpenRequest)) {
        if let Some(entry) = self.ledger.entries.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&self.id) {
            change(&mut entry.request);
        }
    }
}

impl Drop for OpenRequestGuard {
    fn drop(&mut self) {
        self.ledger.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
