//! Pinned states: a caller holds such a state until it drops the handle. Pinned states share the device's slots with the entries of the cache. When
//! slots are short, a pinned state moves to host memory and continues from there with the same bits.

use super::{Entry, EntryLocation, PrefixCache, PrefixHit};
use crate::error::Result;
use crate::session::{Session, Slot, Snapshot};

impl PrefixCache {
    /// Pins the state of `slot` and takes the slot. Returns the key of the state.
    ///
    /// # Errors
    /// `Memory` or `Device` if another state cannot be moved to make room. The state is pinned in any case.
    pub fn pin(&mut self, slot: Slot, session: &mut Session) -> (u64, Result<()>) {
        self.clock += 1;
        let id = self.clock;
        let (namespace, tokens, held) = (String::new(), Vec::new(), EntryLocation::Device(slot));
        self.entries.insert(id, Entry { namespace, tokens, has_logits: false, held, is_pinned: true, last_used: id });
        (id, self.trim(self.idle.slots, session))
    }

    /// Frees a pinned state.
    ///
    /// # Errors
    /// `Input` if its slot cannot be closed.
    pub fn unpin(&mut self, id: u64, session: &mut Session) -> Result<()> {
        self.remove(id, session)
    }

    /// Returns the number of pinned states.
    pub fn n_pinned(&self) -> usize {
        self.entries.values().filter(|entry| entry.is_pinned).count()
    }

    /// Opens a slot with a pinned state of `n_tokens` tokens, and makes room for `n` further slots. The caller must close the returned slot.
    /// Returns `None` if the state is no longer pinned.
    ///
    /// # Errors
    /// The errors of [`Session::restore`] and [`Session::fork`].
    pub fn open_pinned(&mut self, id: u64, n_tokens: usize, n: usize, session: &mut Session) -> Result<Option<Slot>> {
        let found = PrefixHit { entry: id, n_tokens };
        self.touch(found);
        self.make_room(n + 1, session);
        self.open(found, session)
    }

    /// Returns the state after the longest prefix of `tokens` that an entry of the namespace covers, and the length of this prefix. Without
    /// such an entry, returns the empty state.
    ///
    /// # Errors
    /// The errors of [`Session::snapshot`] and [`Session::restore`].
    pub fn snapshot(&mut self, namespace: &str, tokens: &[u32], session: &mut Session) -> Result<(Snapshot, usize)> {
        self.make_room(1, session);
        let opened = self.find(namespace, tokens, true, 1).map(|found| Ok((self.open(found, session)?, found.n_tokens))).transpose()?;
        let (slot, n_tokens) = match opened {
            Some((Some(slot), n_tokens)) => (slot, n_tokens),
            _ => (session.open()?, 0),
        };
        let snapshot = session.snapshot(slot);
        session.close(slot)?;
        Ok((snapshot?, n_tokens))
    }

    /// Removes all entries of a namespace.
    ///
    /// # Errors
    /// `Input` if a slot cannot be closed.
    pub fn forget(&mut self, namespace: &str, session: &mut Session) -> Result<()> {
        let namespace = super::hashed(namespace);
        let ids: Vec<u64> = self.entries.iter().filter(|(_, entry)| entry.namespace == namespace).map(|(id, _)| *id).collect();
        ids.into_iter().try_for_each(|id| self.remove(id, session))?;
        self.trees.remove(&namespace);
        Ok(())
    }

    /// Lets entries use `tokens` more tokens of the KV cache than `idle.tokens`, because no continuation needs this room now. If `tokens` is less
    /// than in the last call, moves entries off the device until the remaining entries fit.
    ///
    /// # Errors
    /// `Memory` or `Device` if an entry cannot be moved.
    pub fn lend(&mut self, tokens: usize, session: &mut Session) -> Result<()> {
        let before = std::mem::replace(&mut self.lent, tokens);
        if tokens < before { self.trim(self.idle.slots, session) } else { Ok(()) }
    }
}
