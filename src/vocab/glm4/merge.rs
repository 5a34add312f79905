//! Byte-level BPE by rank: of all adjacent parts whose bytes together are a token, those of the lowest rank are joined first.
//!
//! A heap holds the candidates, so a piece of a million letters takes no quadratic time. Knows no text, only bytes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Tokens and their ranks. Before [`split`](Self::split) it must hold all 256 single bytes.
#[derive(Default)]
pub(super) struct Ranks {
    by_token: HashMap<Box<[u8]>, u32>,
    /// Length of the longest token.
    longest: usize,
}

impl Ranks {
    /// Adds a token. Where it is there already nothing changes and its rank is returned.
    pub(super) fn insert(&mut self, token: &[u8], rank: u32) -> Option<u32> {
        let before = self.get(token);
        if before.is_none() {
            self.by_token.insert(token.into(), rank);
            self.longest = self.longest.max(token.len());
        }
        before
    }

    fn get(&self, bytes: &[u8]) -> Option<u32> {
        if bytes.len() <= self.longest { self.by_token.get(bytes).copied() } else { None }
    }

    /// Appends the ids of a piece: its own where the whole piece is a token, else those of its parts when no two can be joined.
    pub(super) fn split(&self, piece: &[u8], ids: &mut Vec<u32>) {
        if let Some(id) = self.get(piece) {
            return ids.push(id);
        }
        let mut parts = Parts::single_bytes(piece.len());
        // (rank, start, end): the lowest rank first, of equal ranks the leftmost
        let mut heap = BinaryHeap::with_capacity(piece.len());
        let candidate = |start: usize, end: usize| self.get(&piece[start..end]).map(|rank| Reverse((rank, start, end)));
        heap.extend((1..piece.len()).filter_map(|i| candidate(i - 1, i + 1)));
        while let Some(Reverse((_, start, end))) = heap.pop() {
            if parts.join(start, end) {
                heap.extend(parts.before(start).and_then(|before| candidate(before, end)));
                heap.extend(parts.after(end).and_then(|after| candidate(start, after)));
            }
        }
        ids.extend(parts.spans().filter_map(|(start, end)| self.get(&piece[start..end])));
    }
}

/// A piece in parts.
struct Parts {
    /// Where the part that starts here ends; 0 where none starts. `[n]`
    end: Vec<usize>,
    /// Where the part before the one that starts here starts. `[n]`
    before: Vec<usize>,
}

impl Parts {
    fn single_bytes(n: usize) -> Self {
        Parts { end: (1..=n).collect(), before: (0..n).map(|i| i.saturating_sub(1)).collect() }
    }

    /// Joins the two parts that reach from `start` to `end`, if there still are such two.
    fn join(&mut self, start: usize, end: usize) -> bool {
        let middle = self.end[start];
        if middle == 0 || self.after(middle) != Some(end) {
            return false;
        }
        self.end[start] = end;
        self.end[middle] = 0;
        if let Some(before) = self.before.get_mut(end) {
            *before = start;
        }
        true
    }

    /// Where the part before the one at `start` starts.
    fn before(&self, start: usize) -> Option<usize> {
        (start > 0).then(|| self.before[start])
    }

    /// Where the part at `start` ends.
    fn after(&self, start: usize) -> Option<usize> {
        self.end.get(start).copied()
    }

    fn spans(&self) -> impl Iterator<Item = (usize, usize)> {
        std::iter::successors(self.after(0).map(|end| (0, end)), |&(_, start)| self.after(start).map(|end| (start, end)))
    }
}
