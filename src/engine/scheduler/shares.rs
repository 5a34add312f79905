//! Shares the slots between namespaces: chooses which request gets slots next, and which texts give up their slots for it.

use super::Scheduler;
use crate::error::{Error, Kind};
use crate::exec::wait::MAY_BLOCK;
use crate::session::TextId;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use web_time::Instant;

/// The minimum time that a text has its slot before a namespace below its share can take the slot.
const HOLD: Duration = Duration::from_millis(250);
/// The minimum time that a text has its slot before a namespace without slots can take the slot, if that namespace then exceeds its share. This
/// happens if there are fewer slots than namespaces, or if the waiting request needs more slots than the share.
const TURN: Duration = Duration::from_secs(1);

/// The request or text that gets slots next.
pub struct Candidate {
    pub kind: CandidateKind,
    pub n_slots: usize,
    namespace: String,
}

#[derive(Clone, Copy)]
pub enum CandidateKind {
    /// The index of a waiting request.
    Waiting(usize),
    /// A continuation that was swapped out.
    Swapped(TextId),
}

impl Scheduler {
    /// Returns the number of free slots for continuations.
    pub(super) fn n_free(&self) -> usize {
        let n_texts = self.sequences.values().filter(|sequence| sequence.since.is_some()).count();
        self.shared.options.slots.saturating_sub(n_texts + self.passages.n_running())
    }

    /// Returns the waiting request, or the continuation without a slot, that gets slots next, or `None` if nothing waits. The namespace with the
    /// fewest running continuations is next. Among such namespaces, the namespace that has waited longest since its last request got slots is next.
    /// Within a namespace, continuations that were swapped out come first, then requests with a higher priority, then earlier requests.
    pub(super) fn next(&self) -> Option<Candidate> {
        let running = self.n_running();
        let share = |next: &Candidate| {
            let namespace = next.namespace.as_str();
            (running.get(namespace).copied().unwrap_or(0), self.last_admitted.get(namespace).map_or(0, |number| number + 1))
        };
        let mut seen = HashSet::new();
        let firsts = self.ready().filter(|(namespace, ..)| seen.insert(*namespace));
        let firsts = firsts.map(|(namespace, kind, n_slots)| Candidate { kind, n_slots, namespace: namespace.into() });
        firsts.min_by_key(share)
    }

    /// Returns the texts and requests that can use slots now, each with its namespace and its number of slots. Within a namespace, the first entry
    /// gets slots first. Leaves out requests whose readers are slow.
    fn ready(&self) -> impl Iterator<Item = (&str, CandidateKind, usize)> {
        let swapped = self.batcher.swapped().filter_map(|(job, n_slots)| {
            let request = self.sequences.get(&job)?.request;
            let owner = self.requests.get(&request)?.owner();
            (!self.is_slow(request)).then_some((owner, CandidateKind::Swapped(job), n_slots))
        });
        let waiting = self.waiting.iter().enumerate().filter_map(|(i, id)| Some((i, self.requests.get(id)?)));
        let waiting = waiting.filter(|(_, other)| !other.is_paused);
        swapped.chain(waiting.map(|(i, other)| (other.owner(), CandidateKind::Waiting(i), other.request.n)))
    }

    /// Returns, for each namespace, how many of its continuations have slots.
    fn n_running(&self) -> HashMap<&str, usize> {
        let mut running: HashMap<&str, usize> = HashMap::new();
        let in_slots = self.sequences.values().filter(|sequence| sequence.since.is_some());
        let requests = in_slots.filter_map(|sequence| self.requests.get(&sequence.request));
        requests.for_each(|request| *running.entry(request.owner()).or_default() += 1);
        running
    }

    /// Makes texts give up their slots until `next` can have its slots. Texts whose readers are slow come first, then texts of the namespaces with
    /// the most slots. Returns whether enough slots are free.
    pub(super) fn make_way(&mut self, next: &Candidate) -> bool {
        // A browser cannot wait for the copy of a slot.
        if !MAY_BLOCK || self.shared.options.swap_bytes == 0 {
            return false;
        }
        let n_missing = next.n_slots.saturating_sub(self.n_free());
        let jobs = self.who_gives_way(next, n_missing);
        for job in jobs {
            if !self.swap_out(job) {
                break;
            }
        }
        self.n_free() >= next.n_slots
    }

    /// Returns continuations that have `n_missing` slots together, or an empty list if too few may give way to `next`.
    fn who_gives_way(&self, next: &Candidate, mut n_missing: usize) -> Vec<TextId> {
        let mut who = Vec::new();
        let mut running = self.n_running();
        // Continuations by namespace. The continuation that has had its slot for longest comes last.
        let mut of: HashMap<&str, Vec<(Instant, TextId, usize)>> = HashMap::new();
        for (&job, sequence) in &self.sequences {
            let (Some(since), Some(request)) = (sequence.since, self.requests.get(&sequence.request)) else { continue };
            let n_slots = self.batcher.n_swappable(job);
            if n_slots == 0 {
                continue;
            }
            if request.is_paused && n_missing > 0 {
                n_missing = n_missing.saturating_sub(n_slots);
                running.entry(request.owner()).and_modify(|n| *n -= n_slots.min(*n));
                who.push(job);
            } else if !request.is_paused {
                of.entry(request.owner()).or_default().push((since, job, n_slots));
            }
        }
        of.values_mut().for_each(|texts| texts.sort_unstable_by_key(|(since, job, _)| (std::cmp::Reverse(*since), *job)));
        let names: HashSet<&str> = running.keys().copied().chain(self.ready().map(|(namespace, ..)| namespace)).collect();
        let share = (self.shared.options.slots - self.passages.n_running()) / names.len().max(1);
        let own = running.get(next.namespace.as_str()).copied().unwrap_or(0);
        // A namespace below its share takes slots only from namespaces above the share. A namespace without slots takes slots from any namespace.
        let (floor, hold) = match own + next.n_slots <= share {
            true => (share, HOLD),
            false if own == 0 => (0, TURN),
            false => (usize::MAX, TURN),
        };
        while n_missing > 0 {
            let others = of.iter_mut().filter(|(name, texts)| **name != next.namespace && running[**name] > floor && !texts.is_empty());
            let Some((name, texts)) = others.max_by_key(|(name, _)| running[**name]) else { return Vec::new() };
            let Some((since, job, n_slots)) = texts.pop() else { continue };
            // A text whose next token is being sampled on another thread does not use its slot, so it gives way without delay.
            if since.elapsed() < hold && !self.batcher.is_drawing(job) {
                continue;
            }
            n_missing = n_missing.saturating_sub(n_slots);
            running.entry(name).and_modify(|n| *n -= n_slots.min(*n));
            who.push(job);
        }
        who
    }

    /// Copies the slots of a continuation to host memory, and frees the slots. If the memory for such copies is full, ends requests whose
    /// readers are slow: first requests that were swapped out, then the continuation's own request. Returns whether the slots are free.
    fn swap_out(&mut self, job: TextId) -> bool {
        let Some(request) = self.sequences.get(&job).map(|sequence| sequence.request) else { return false };
        let n_bytes = self.batcher.swap_bytes(job);
        while self.batcher.swapped_bytes() + n_bytes > self.shared.options.swap_bytes {
            let slow = self.batcher.swapped().find_map(|(job, _)| Some(self.sequences.get(&job)?.request).filter(|id| self.is_slow(*id)));
            let Some(slow) = slow.or_else(|| Some(request).filter(|id| self.is_slow(*id))) else { return false };
            self.fail(slow, unread());
            if slow == request {
                return true;
            }
        }
        let is_group = self.batcher.n_swappable(job) > 1;
        if let Err(e) = self.batcher.swap_out(job) {
            log::warn!("a text keeps its slot although others wait: {e}");
            return false;
        }
        self.set_since(job, is_group, None);
        true
    }

    /// Gives `n_slots` slots to a continuation that was swapped out.
    pub(super) fn resume(&mut self, job: TextId, n_slots: usize) {
        self.cache.make_room(n_slots, self.batcher.session_mut());
        let Some(request) = self.sequences.get(&job).map(|sequence| sequence.request) else { return };
        match self.batcher.swap_in(job) {
            Ok(()) => self.set_since(job, n_slots > 1, Some(Instant::now())),
            Err(e) => self.fail(request, e),
        }
        if let Some(owner) = self.requests.get(&request).map(|request| request.owner().to_string()) {
            self.note_admitted(&owner);
        }
    }

    /// Records when a continuation got its slot, or `None` after it gave up the slot. If `is_group`, all continuations of the request wait for the
    /// same prompt, so they get the same time.
    fn set_since(&mut self, job: TextId, is_group: bool, since: Option<Instant>) {
        let Some(request) = self.sequences.get(&job).map(|sequence| sequence.request) else { return };
        for (other, sequence) in &mut self.sequences {
            if *other == job || is_group && sequence.request == request {
                sequence.since = since;
            }
        }
    }

    fn is_slow(&self, request: u64) -> bool {
        self.requests.get(&request).is_some_and(|request| request.is_paused)
    }
}

/// Returns the error for a text with a slow reader, if other requests need its slots and the memory for swapped texts is full.
fn unread() -> Error {
    Error::new(Kind::Busy, "the answer was ended, because its reader took no text while other requests waited for slots")
        .hint("read the events of a stream as they arrive")
}
