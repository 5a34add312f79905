//! BPE by rank: of all adjacent parts whose bytes together are a token, those of the lowest rank are joined first.
//!
//! A heap holds the candidates, so a text of a million letters takes no quadratic time. Knows no text, only bytes.

use crate::error::{Result, filled, room};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// What memory is taken for.
const PARTS: &str = "the parts of the text";

/// Tokens, their ranks and their ids.
#[derive(Default)]
pub(super) struct Ranks {
    by_token: HashMap<Box<[u8]>, Token>,
    /// Length of the longest token.
    longest: usize,
}

#[derive(Clone, Copy)]
struct Token {
    rank: u32,
    id: u32,
}

impl Ranks {
    /// Adds a token. Where it is there already nothing changes and its id is returned.
    pub(super) fn insert(&mut self, token: &[u8], rank: u32, id: u32) -> Option<u32> {
        let before = self.id(token);
        if before.is_none() {
            self.by_token.insert(token.into(), Token { rank, id });
            self.longest = self.longest.max(token.len());
        }
        before
    }

    /// The id of these bytes, if they are a token.
    pub(super) fn id(&self, bytes: &[u8]) -> Option<u32> {
        self.get(bytes).map(|token| token.id)
    }

    fn get(&self, bytes: &[u8]) -> Option<Token> {
        if bytes.len() <= self.longest { self.by_token.get(bytes).copied() } else { None }
    }

    /// The parts of `text` when no two can be joined any more. At first one begins at each of `starts`, which ascend from 0.
    ///
    /// # Errors
    /// `Memory` if there is no room for the parts.
    pub(super) fn join<'t>(&self, text: &'t [u8], starts: impl Iterator<Item = usize>) -> Result<impl Iterator<Item = &'t [u8]>> {
        let mut parts = Parts::new(text.len(), starts)?;
        // (rank, start, end): the lowest rank first, of equal ranks the leftmost
        let mut heap = BinaryHeap::from(room(text.len(), PARTS)?);
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

/// A text in parts.
struct Parts {
    /// Where the part that starts here ends; 0 where none starts. `[n]`
    end: Vec<usize>,
    /// Where the part before the one that starts here starts. `[n]`
    before: Vec<usize>,
}

impl Parts {
    fn new(n: usize, starts: impl Iterator<Item = usize>) -> Result<Self> {
        let mut parts = Parts { end: filled(0, n, PARTS)?, before: filled(0, n, PARTS)? };
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
