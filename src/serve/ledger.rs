//! The list of requests that are being answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The requests that are being answered.
#[derive(Default)]
pub struct Ledger {
    n_entries: AtomicU64,
    entries: Mutex<HashMap<u64, Entry>>,
}

/// A request that is being answered.
#[derive(Debug, Clone)]
pub struct Entry {
    pub request_id: String,
    pub namespace: String,
    pub endpoint: &'static str,
    pub model: String,
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    /// The number of events with text that the engine has sent for the request.
    pub events: usize,
    pub began: Instant,
}

impl Ledger {
    /// Returns copies of all entries of a namespace, oldest first.
    pub fn of(&self, namespace: &str) -> Vec<Entry> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<(&u64, &Entry)> = entries.iter().filter(|(_, entry)| entry.namespace == namespace).collect();
        found.sort_by_key(|(id, _)| **id);
        found.into_iter().map(|(_, entry)| entry.clone()).collect()
    }

    pub fn len(&self) -> usize {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Owns one entry of the ledger. Dropping a line removes its entry.
pub struct Line {
    ledger: Arc<Ledger>,
    id: u64,
}

impl Line {
    pub fn open(ledger: &Arc<Ledger>, entry: Entry) -> Line {
        let id = ledger.n_entries.fetch_add(1, Ordering::Relaxed);
        ledger.entries.lock().unwrap_or_else(PoisonError::into_inner).insert(id, entry);
        Line { ledger: ledger.clone(), id }
    }

    pub fn update(&self, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.ledger.entries.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&self.id) {
            change(entry);
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.ledger.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
