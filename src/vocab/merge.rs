//! BPE by rank: joins the two adjacent parts whose bytes together are the token of lowest rank, until no two parts can be joined.
//!
//! A heap holds the possible joins, so a text of n bytes takes time proportional to n log n. Parts are bytes, so a part may be an incomplete
//! character.

use crate::error::{Result, filled, try_alloc};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The name that errors use for the memory of the parts.
const PARTS: &str = "the parts of the text";

/// Tokens, each with its rank and its id. Parts of a text are joined to tokens of low rank first.
#[derive(Default)]
pub(super) struct Ranks {
    by_token: HashMap<Box<[u8]>, RankedToken>,
    /// The length of the longest token in bytes.
    longest: usize,
}

#[derive(Clone, Copy)]
struct RankedToken {
    rank: u32,
    id: u32,
}

impl Ranks {
    /// Adds a token and returns `None`. If the token exists already, changes nothing and returns its id.
    pub(super) fn insert(&mut self, token: &[u8], rank: u32, id: u32) -> Option<u32> {
        let before = self.id(token);
        if before.is_none() {
            self.by_token.insert(token.into(), RankedToken { rank, id });
            self.longest = self.longest.max(token.len());
        }
        before
    }

    /// Returns the id of a token, or `None` if the bytes are not a token.
    pub(super) fn id(&self, bytes: &[u8]) -> Option<u32> {
        self.get(bytes).map(|token| token.id)
    }

    fn get(&self, bytes: &[u8]) -> Option<RankedToken> {
        if bytes.len() <= self.longest { self.by_token.get(bytes).copied() } else { None }
    }

    /// Joins adjacent parts of `text` that together are a token, the token of lowest rank first, until no two parts can be joined. Returns the parts
    /// after all joins. `starts` are the byte offsets of the parts before the first join, ascending from 0.
    ///
    /// # Errors
    /// `Memory` if memory for the parts is not available.
    pub(super) fn join<'t>(&self, text: &'t [u8], starts: impl Iterator<Item = usize>) -> Result<impl Iterator<Item = &'t [u8]>> {
        let mut parts = MergeParts::new(text.len(), starts)?;
        // An element is (rank, start, end). The lowest rank comes first; of equal ranks, the leftmost join comes first.
        let mut heap = BinaryHeap::from(try_alloc(text.len(), PARTS)?);
        let candidate = |start: usize, end: usize| self.get(&text[start..end]).map(|token| Reverse((token.rank, start, end)));
        heap.extend(parts.spans().filter_map(|(start, middle)| candidate(start, parts.after(middle)?)));
        while let Some(Reverse((_, start, end))) = heap.pop() {
            if parts.join(start, end) {
                heap.extend(parts.before(start).and_then(|before| candidate(before, end)));
                heap.extend(parts.after(end).and_then(|after| candidate(start, after)));
            }
        }
        let mut next = 0;
        Ok(std::iter::from_fn(move || {
            let start = next;
            next = parts.after(start)?;
            Some(&text[start..next])
        }))
    }
}

/// The division of a text of n bytes into parts.
struct MergeParts {
    /// For each byte offset, the end of the part that starts at this offset, or 0 if no part starts there. `[n]`
    end: Vec<usize>,
    /// For each byte offset at which a part starts, the start of the part before that part. `[n]`
    before: Vec<usize>,
}

impl MergeParts {
    fn new(n: usize, starts: impl Iterator<Item = usize>) -> Result<Self> {
        let mut parts = MergeParts { end: filled(0, n, PARTS)?, before: filled(0, n, PARTS)? };
        let mut before = 0;
        for start in starts.skip(1) {
            parts.end[before] = start;
            parts.before[start] = before;
            before = start;
        }
        if n > 0 {
            parts.end[before] = n;
        }
        Ok(parts)
    }

    /// Joins the two adjacent parts that together reach from `start` to `end`. Returns false if these two parts no longer exist.
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

    /// Returns the start of the part before the part that starts at `start`, or `None` for the first part.
    fn before(&self, start: usize) -> Option<usize> {
        (start > 0).then(|| self.before[start])
    }

    /// Returns the end of the part that starts at `start`, or `None` at the end of the text.
    fn after(&self, start: usize) -> Option<usize> {
        self.end.get(start).copied()
    }

    /// Returns the start and the end of each part.
    fn spans(&self) -> impl Iterator<Item = (usize, usize)> {
        std::iter::successors(self.after(0).map(|end| (0, end)), |&(_, start)| self.after(start).map(|end| (start, end)))
    }
}
