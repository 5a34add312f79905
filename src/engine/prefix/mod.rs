//! The prefix cache: states after prompts and texts, kept for requests that begin with the same tokens.
//!
//! A recurrent state cannot be rewound, so its entry serves only prompts that begin with all of its tokens. A transformer's state can be rewound to
//! any token, so its entry serves every prompt that shares its first tokens.
//!
//! Entries are in three tiers: slots of the device, host memory, files. Each tier has a limit of bytes. When a tier is full, its least recently used
//! entry moves to the next tier; an entry that leaves the last tier is deleted.

mod folder;
mod pins;
mod tree;

use super::CacheOptions;
use crate::error::Result;
use crate::exec::wait::MAY_BLOCK;
use crate::session::{self, Idle, Model, Session, Slot, Snapshot};
pub(super) use folder::hashed;
use folder::{Folder, Written};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tree::Tree;

/// The fewest tokens that an entry may have. Prefilling fewer tokens costs almost nothing.
pub(super) const FEWEST: usize = 4;

/// The maximum number of device slots for entries.
const MAX_SLOTS: u64 = 256;

/// The maximum number of entries in all tiers together. The search for the least recently used entry visits every entry, so more entries would take
/// too long.
const MAX_ENTRIES: usize = 4096;

/// The maximum number of entries that one prompt leaves at regular distances: see [`CacheOptions::every`].
const MAX_MARKS: usize = 8;

/// The place of an entry's state.
#[derive(Debug)]
enum EntryLocation {
    Device(Slot),
    Host(Arc<Snapshot>),
    /// The file is being written. Until the file is complete, the entry is served from host memory.
    Writing {
        snapshot: Arc<Snapshot>,
        path: PathBuf,
    },
    File {
        path: PathBuf,
        bytes: u64,
    },
}

/// The kinds of memory for entries. An entry passes through the first three in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tier {
    Device,
    Host,
    Folder,
    /// Host memory, for pinned states. Pinned states do not count towards the limit of the host tier.
    Pinned,
}

#[derive(Debug)]
struct Entry {
    /// The hash of the namespace, from [`hashed`].
    namespace: String,
    tokens: Vec<u32>,
    /// True if the state has logits, so that the next token can be sampled at once.
    has_logits: bool,
    held: EntryLocation,
    /// True if a caller holds the state ([`pin`](PrefixCache::pin)). Such an entry serves no prompt and is never removed to make room.
    is_pinned: bool,
    last_used: u64,
}

impl Entry {
    fn tier(&self) -> Tier {
        match self.held {
            EntryLocation::Device(_) => Tier::Device,
            EntryLocation::Host(_) if self.is_pinned => Tier::Pinned,
            EntryLocation::Host(_) => Tier::Host,
            EntryLocation::Writing { .. } | EntryLocation::File { .. } => Tier::Folder,
        }
    }

    /// Returns how many bytes the entry takes in host memory or in its file; 0 on the device. While the file is being written, the entry's bytes in
    /// host memory count.
    fn n_bytes(&self) -> u64 {
        match &self.held {
            EntryLocation::Device(_) => 0,
            EntryLocation::Host(snapshot) | EntryLocation::Writing { snapshot, .. } => snapshot.n_bytes(),
            EntryLocation::File { bytes, .. } => *bytes,
        }
    }
}

/// An entry of the prefix cache from which a prompt can continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PrefixHit {
    entry: u64,
    /// The number of prompt tokens that the entry covers.
    pub n_tokens: usize,
}

/// The entries of all namespaces. An entry only serves prompts of its own namespace.
pub(super) struct PrefixCache {
    entries: HashMap<u64, Entry>,
    /// For each hashed namespace, a tree that finds an entry's key by its tokens.
    trees: HashMap<String, Tree<u64>>,
    idle: Idle,
    /// The number of tokens in the KV cache that entries may use beyond `idle.tokens`, because no continuation needs this room now.
    lent: usize,
    host_bytes: u64,
    folder: Option<Folder>,
    /// The number of tokens between the entries that one long prompt leaves: see [`CacheOptions::every`].
    every: usize,
    /// True if a slot can be rewound to any of its tokens: the model has attention and no recurrent state.
    can_rewind: bool,
    clock: u64,
}

/// Returns the number of slots that a session needs for the cache, besides `n_slots` for continuations. Also returns the maximum number of tokens
/// that these extra slots hold in the KV cache.
pub(super) fn idle(model: &Model, n_slots: usize, options: &CacheOptions) -> Idle {
    if !options.is_on() {
        return Idle::default();
    }
    let most = MAX_SLOTS.min((session::MAX_SLOTS - 1).saturating_sub(n_slots) as u64).max(1);
    // At least one slot is needed: a fork occupies a slot until its state is copied to the host.
    match model.context() {
        Some(context) => {
            let per_token = (model.slot_bytes() / context.max(1) as u64).max(1);
            // If the model also has recurrent states, the KV cache gets half of the memory and the recurrent states get the other half.
            let share = if model.can_rewind() { options.device_bytes } else { options.device_bytes / 2 };
            let tokens = share / per_token;
            let slots = if model.can_rewind() { tokens / 64 } else { share / model.state_bytes().max(1) };
            Idle { slots: slots.clamp(1, most) as usize, tokens: tokens as usize, ..Idle::default() }
        }
        None => Idle { slots: (options.device_bytes / model.slot_bytes().max(1)).clamp(1, most) as usize, ..Idle::default() },
    }
}

impl PrefixCache {
    /// Returns a cache that may use `idle`, the extra slots of a session. The cache begins with the entries whose files are in the folder.
    ///
    /// # Errors
    /// `File` if the folder cannot be made or read; `Memory` if the thread that writes files cannot be started.
    pub fn new(model: &Model, options: &CacheOptions, idle: Idle) -> Result<PrefixCache> {
        let is_on = idle.slots > 0;
        let (entries, trees) = (HashMap::new(), HashMap::new());
        let folder = options.folder.as_ref().filter(|_| is_on).map(|path| Folder::open(path, options.folder_bytes, model)).transpose()?;
        let (every, can_rewind) = (options.every, model.can_rewind());
        // A copy to the host blocks the thread, which a browser does not allow.
        let host_bytes = if MAY_BLOCK { options.host_bytes } else { 0 };
        let mut cache = PrefixCache { entries, trees, idle, lent: 0, host_bytes, folder, every, can_rewind, clock: 0 };
        if let Some(folder) = &mut cache.folder {
            for left in folder.take_left() {
                let held = EntryLocation::File { path: left.path, bytes: left.bytes };
                cache.add(left.namespace, left.tokens, left.has_logits, held);
            }
        }
        Ok(cache)
    }

    pub fn is_on(&self) -> bool {
        self.idle.slots > 0
    }

    /// Returns the number of entries in all tiers, without pinned states.
    pub fn len(&self) -> usize {
        self.entries.len() - self.n_pinned()
    }

    /// Returns the number of entries on the device.
    pub fn n_on_device(&self) -> usize {
        self.entries.values().filter(|entry| entry.tier() == Tier::Device).count()
    }

    /// Returns the entry that covers the most tokens of a prompt, or `None` if no entry covers `fewest` tokens. Only an entry with logits may cover the
    /// whole prompt, and only if `may_end` is true (the prompt ends with a whole character). Otherwise, the prompt's last token must be prefilled.
    pub fn find(&self, namespace: &str, prompt: &[u32], may_end: bool, fewest: usize) -> Option<PrefixHit> {
        let tree = self.trees.get(&hashed(namespace))?;
        let is_whole = |n: usize, id: u64| {
            let entry = &self.entries[&id];
            n == prompt.len() && entry.tokens.len() == n && entry.has_logits && may_end
        };
        let on_path = tree.on_path(prompt).into_iter().rev();
        let whole = on_path.clone().map(|(n, id)| (n, *id)).find(|(n, id)| is_whole(*n, *id));
        let further = || match self.can_rewind {
            // Rewinding drops the logits, so the prompt's last token is prefilled again.
            true => tree.nearest(prompt).map(|(n, id)| (n.min(prompt.len().saturating_sub(1)), *id)),
            false => on_path.map(|(n, id)| (n, *id)).find(|(n, _)| *n < prompt.len()),
        };
        let (n_tokens, entry) = whole.or_else(further)?;
        (n_tokens >= fewest).then_some(PrefixHit { entry, n_tokens })
    }

    /// Opens a slot with the state after the tokens that `found` covers. The caller must close this slot. Returns `None` if the entry no longer
    /// exists, or if the file of the entry is missing or damaged.
    pub fn open(&mut self, found: PrefixHit, session: &mut Session) -> Result<Option<Slot>> {
        let Some(entry) = self.entries.get(&found.entry) else { return Ok(None) };
        let slot = match &entry.held {
            EntryLocation::Device(slot) => session.fork(*slot)?,
            EntryLocation::Host(snapshot) | EntryLocation::Writing { snapshot, .. } => session.restore(snapshot)?,
            EntryLocation::File { path, .. } => match folder::load(session.model(), path, &entry.namespace, &entry.tokens) {
                Ok(snapshot) => session.restore(&snapshot)?,
                Err(e) => {
                    log::warn!("prefix cache: {e}");
                    self.remove(found.entry, session)?;
                    return Ok(None);
                }
            },
        };
        if found.n_tokens < session.n_tokens(slot)?
            && let Err(e) = session.rewind(slot, found.n_tokens)
        {
            session.close(slot)?;
            return Err(e);
        }
        Ok(Some(slot))
    }

    /// Makes an entry from `slot`, whose state is the state after `tokens`. Removes an older entry with the same tokens. If slots can be rewound, also
    /// removes entries whose tokens are a prefix of `tokens`. Closes the slot without an entry if the cache is off, if there are fewer than `FEWEST`
    /// tokens, or if a longer entry already serves these tokens.
    pub fn insert(&mut self, namespace: &str, tokens: Vec<u32>, slot: Slot, session: &mut Session) -> Result<()> {
        if tokens.len() < FEWEST || !self.is_on() {
            return session.close(slot);
        }
        let namespace = hashed(namespace);
        let tree = self.trees.entry(namespace.clone()).or_default();
        let is_served =
            self.can_rewind && tree.nearest(&tokens).is_some_and(|(n, id)| n == tokens.len() && self.entries[id].tokens.len() > n);
        if is_served {
            return session.close(slot);
        }
        let replaced = tree.on_path(&tokens).into_iter().filter(|(n, _)| self.can_rewind || *n == tokens.len());
        for id in replaced.map(|(_, id)| *id).collect::<Vec<_>>() {
            self.remove(id, session)?;
        }
        let has_logits = !session.logits(slot)?.is_empty();
        self.add(namespace, tokens, has_logits, EntryLocation::Device(slot));
        self.trim(self.idle.slots, session)
    }

    /// Adds an entry. An older entry with the same tokens is removed.
    fn add(&mut self, namespace: String, tokens: Vec<u32>, has_logits: bool, held: EntryLocation) {
        self.clock += 1;
        let id = self.clock;
        // If two files have the same tokens, the older file stays on the disk unused.
        if let Some(old) = self.trees.entry(namespace.clone()).or_default().insert(&tokens, id) {
            self.entries.remove(&old);
        }
        self.entries.insert(id, Entry { namespace, tokens, has_logits, held, is_pinned: false, last_used: id });
    }

    /// Removes an entry. Closes its slot or removes its file.
    fn remove(&mut self, id: u64, session: &mut Session) -> Result<()> {
        let Some(entry) = self.entries.remove(&id) else { return Ok(()) };
        if let Some(tree) = self.trees.get_mut(&entry.namespace) {
            tree.remove(&entry.tokens);
        }
        match entry.held {
            EntryLocation::Device(slot) => session.close(slot),
            EntryLocation::File { path, .. } => {
                folder::remove(&path);
                Ok(())
            }
            EntryLocation::Host(_) | EntryLocation::Writing { .. } => Ok(()),
        }
    }

    /// Returns the positions in a prompt, as numbers of tokens, at which a continuation forks its slot for the cache. All positions are above `from`,
    /// the number of tokens that the slot has read. `ends` are the positions from which the conversation's next prompts can continue. A recurrent
    /// model gets several positions, because its state cannot be rewound to other positions.
    pub fn marks(&self, prompt: &[u32], ends: &[usize], from: usize) -> Vec<usize> {
        if !self.is_on() {
            return Vec::new();
        }
        let mut marks = vec![prompt.len()];
        if !self.can_rewind {
            marks.extend(ends);
            // Multiples of `every`, so that prompts with the same beginning share positions. `every` doubles until there are at most `MAX_MARKS`
            // such positions.
            let mut every = self.every.max(1);
            while prompt.len() / every > MAX_MARKS {
                every *= 2;
            }
            marks.extend((1..=prompt.len() / every).map(|i| i * every));
        }
        marks.retain(|at| (FEWEST.max(from + 1)..=prompt.len()).contains(at));
        marks
    }

    /// Writes the entries on the device and in host memory to the folder. Blocks until the files are complete. Removes the least recently used files
    /// beyond the folder's limit of bytes.
    pub fn flush(&mut self, session: &mut Session) -> Result<()> {
        if self.folder.is_none() {
            return Ok(());
        }
        let mut unwritten: Vec<(u64, u64)> =
            self.entries.iter().filter(|(_, e)| e.tier() != Tier::Folder && !e.is_pinned).map(|(id, e)| (e.last_used, *id)).collect();
        unwritten.sort_unstable();
        self.wait_for_folder(session)?;
        for (_, id) in unwritten {
            self.leave_device(id, session)?;
            self.leave_host(id, session)?;
            self.wait_for_folder(session)?;
        }
        Ok(())
    }

    /// Blocks until no file is being written.
    fn wait_for_folder(&mut self, session: &mut Session) -> Result<()> {
        while self.entries.values().any(|entry| matches!(entry.held, EntryLocation::Writing { .. })) {
            let Some(written) = self.folder.as_ref().and_then(Folder::wait) else { break };
            self.settle(written);
        }
        self.trim(self.idle.slots, session)
    }

    /// Moves entries from the device to host memory, or removes them, until `n` slots of the session are free, or no entry is on the device.
    pub fn make_room(&mut self, n: usize, session: &mut Session) {
        let missing = n.saturating_sub(session.n_free());
        if missing > 0 {
            // After an error, fewer slots are free, so prompts leave fewer forks for the cache. Requests continue.
            let trimmed = self.trim(self.n_on_device().saturating_sub(missing), session);
            trimmed.unwrap_or_else(|e| log::warn!("prefix cache: {e}"));
        }
    }

    /// Marks an entry as the most recently used.
    pub fn touch(&mut self, found: PrefixHit) {
        self.clock += 1;
        if let Some(entry) = self.entries.get_mut(&found.entry) {
            entry.last_used = self.clock;
        }
    }

    /// Moves or removes the least recently used entries until at most `n_slots` entries are on the device and every tier is within its limits.
    fn trim(&mut self, n_slots: usize, session: &mut Session) -> Result<()> {
        self.settle_written();
        while let Some(id) = self.oldest(Tier::Device).filter(|_| self.n_on_device() > n_slots) {
            self.leave_device(id, session)?;
        }
        while session.model().context().is_some() && session.held_tokens(self.slots())? > self.idle.tokens + self.lent {
            let Some(id) = self.oldest(Tier::Device) else { break };
            self.leave_device(id, session)?;
        }
        while let Some(id) = self.oldest(Tier::Host).filter(|_| self.n_bytes(Tier::Host) > self.host_bytes) {
            self.leave_host(id, session)?;
        }
        let folder_bytes = self.folder.as_ref().map_or(0, |folder| folder.bytes);
        while let Some(id) = self.oldest(Tier::Folder).filter(|_| self.n_bytes(Tier::Folder) > folder_bytes) {
            self.remove(id, session)?;
        }
        while self.len() > MAX_ENTRIES {
            let unpinned = self.entries.iter().filter(|(_, entry)| !entry.is_pinned);
            let Some(id) = unpinned.min_by_key(|(_, entry)| entry.last_used).map(|(id, _)| *id) else { break };
            self.remove(id, session)?;
        }
        Ok(())
    }

    /// Copies an entry from the device to the host. Removes the entry if there is neither a host tier nor a folder, or if the copy fails. Never
    /// removes a pinned state.
    fn leave_device(&mut self, id: u64, session: &mut Session) -> Result<()> {
        let Some(Entry { held: EntryLocation::Device(slot), is_pinned, .. }) = self.entries.get(&id) else { return Ok(()) };
        let (slot, is_pinned) = (*slot, *is_pinned);
        if !is_pinned && self.host_bytes == 0 && self.folder.is_none() {
            return self.remove(id, session);
        }
        let snapshot = match session.snapshot(slot) {
            Ok(snapshot) => Arc::new(snapshot),
            Err(e) if is_pinned => return Err(e),
            Err(e) => {
                log::warn!("prefix cache: {e}");
                return self.remove(id, session);
            }
        };
        session.close(slot)?;
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.held = EntryLocation::Host(snapshot);
        }
        Ok(())
    }

    /// Moves an entry from host memory to the next tier: queues the entry to be written to its file. Removes the entry instead if there is no folder
    /// or the queue is full.
    fn leave_host(&mut self, id: u64, session: &mut Session) -> Result<()> {
        let (Some(folder), Some(entry)) = (&self.folder, self.entries.get_mut(&id)) else { return self.remove(id, session) };
        let EntryLocation::Host(snapshot) = &entry.held else { return Ok(()) };
        let snapshot = snapshot.clone();
        match folder.write(id, &entry.namespace, &entry.tokens, snapshot.clone()) {
            Some(path) => entry.held = EntryLocation::Writing { snapshot, path },
            // The queue is full, because the disk is too slow. Waiting would delay all requests, so the entry is lost instead.
            None => self.remove(id, session)?,
        }
        Ok(())
    }

    /// Records the results of the writes that have finished since the last call.
    fn settle_written(&mut self) {
        while let Some(written) = self.folder.as_ref().and_then(Folder::written) {
            self.settle(written);
        }
    }

    /// Records the result of a finished write in its entry. Removes the entry if the write failed, and the file if the entry no longer exists.
    fn settle(&mut self, (id, written): Written) {
        let is_anothers = written.as_ref().is_some_and(|(path, _)| self.has_file(path));
        match (self.entries.get_mut(&id), written) {
            (Some(entry), Some((path, bytes))) => entry.held = EntryLocation::File { path, bytes },
            (Some(_), None) => {
                // The write failed. The entry has no slot to close, because its state left the device earlier.
                let entry = self.entries.remove(&id).expect("it was found");
                if let Some(tree) = self.trees.get_mut(&entry.namespace) {
                    tree.remove(&entry.tokens);
                }
            }
            // A newer entry with the same tokens owns the file.
            (None, Some(_)) if is_anothers => {}
            // The entry was removed while its file was written.
            (None, Some((path, _))) => folder::remove(&path),
            (None, None) => {}
        }
    }

    /// Returns whether an entry owns this file. The file may still be being written.
    fn has_file(&self, file: &Path) -> bool {
        self.entries
            .values()
            .any(|entry| matches!(&entry.held, EntryLocation::Writing { path, .. } | EntryLocation::File { path, .. } if path == file))
    }

    /// Returns the key of the least recently used entry in a tier, or `None` if the tier is empty.
    fn oldest(&self, tier: Tier) -> Option<u64> {
        let of_tier = self.entries.iter().filter(|(_, entry)| entry.tier() == tier);
        of_tier.min_by_key(|(_, entry)| entry.last_used).map(|(id, _)| *id)
    }

    fn n_bytes(&self, tier: Tier) -> u64 {
        self.entries.values().filter(|entry| entry.tier() == tier).map(Entry::n_bytes).sum()
    }

    fn slots(&self) -> Vec<Slot> {
        self.entries.values().filter_map(|entry| if let EntryLocation::Device(slot) = entry.held { Some(slot) } else { None }).collect()
    }
}
