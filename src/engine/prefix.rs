//! The prefix cache: slots that have read prompts and texts, kept for requests that begin with the same tokens.
//!
//! A recurrent state can only go on, so an entry serves a prompt that begins with all of its tokens. A model with attention goes back to
//! any of them, so an entry serves every prompt that begins with some.

use crate::error::Result;
use crate::session::{Session, Slot};

/// Prompts and entries of fewer tokens are not cached: reading them costs next to nothing.
const FEWEST: usize = 4;

/// A slot, and the tokens that it has read.
#[derive(Debug)]
struct Entry {
    namespace: String,
    tokens: Vec<u32>,
    slot: Slot,
    last_used: u64,
}

/// Kept slots, those that were used last. Entries of different namespaces never serve each other.
#[derive(Debug, Default)]
pub(super) struct PrefixCache {
    entries: Vec<Entry>,
    /// At most so many.
    capacity: usize,
    clock: u64,
}

/// An entry that serves a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub slot: Slot,
    /// Tokens of the prompt that the slot holds; those behind them, if any, are not the prompt's.
    pub n_tokens: usize,
}

impl PrefixCache {
    pub fn new(capacity: usize) -> PrefixCache {
        PrefixCache { capacity, ..PrefixCache::default() }
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry that spares most of a prompt. `may_end` says whether all of the prompt may be spared, if the entry has logits.
    pub fn find(&mut self, namespace: &str, prompt: &[u32], session: &Session, may_end: bool) -> Option<Found> {
        let goes_back = session.model().context().is_some();
        let spares = |entry: &Entry| -> usize {
            if entry.namespace != namespace {
                return 0;
            }
            let common = entry.tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count();
            let is_whole = common == prompt.len() && common == entry.tokens.len();
            if is_whole && may_end && session.logits(entry.slot).is_ok_and(|logits| !logits.is_empty()) {
                return common;
            }
            if goes_back {
                // The last one is read again, for its logits.
                common.min(prompt.len().saturating_sub(1))
            } else if common == entry.tokens.len() && common < prompt.len() {
                common
            } else {
                0
            }
        };
        let (entry, n_tokens) = self.entries.iter_mut().map(|entry| (spares(entry), entry)).map(|(n, e)| (e, n)).max_by_key(|(_, n)| *n)?;
        if n_tokens < FEWEST {
            return None;
        }
        self.clock += 1;
        entry.last_used = self.clock;
        Some(Found { slot: entry.slot, n_tokens })
    }

    /// Takes a slot that stands after these tokens. Closes what it replaces, and what was used longest ago beyond the capacity.
    pub fn insert(&mut self, namespace: &str, tokens: Vec<u32>, slot: Slot, session: &mut Session) -> Result<()> {
        if tokens.len() < FEWEST || self.capacity == 0 {
            return session.close(slot);
        }
        let goes_back = session.model().context().is_some();
        let is_served =
            |old: &Entry| old.namespace == namespace && if goes_back { tokens.starts_with(&old.tokens) } else { tokens == old.tokens };
        for old in self.entries.extract_if(.., |old| is_served(old)) {
            session.close(old.slot)?;
        }
        self.clock += 1;
        self.entries.push(Entry { namespace: namespace.into(), tokens, slot, last_used: self.clock });
        self.trim(self.capacity, session)
    }

    /// Closes what was used longest ago, until no more than `n` are left.
    pub fn trim(&mut self, n: usize, session: &mut Session) -> Result<()> {
        while self.entries.len() > n {
            let oldest = (0..self.entries.len()).min_by_key(|&i| self.entries[i].last_used).expect("there is one");
            session.close(self.entries.swap_remove(oldest).slot)?;
        }
        Ok(())
    }
}
