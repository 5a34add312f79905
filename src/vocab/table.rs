//! Token bytes by id: what every kind of vocabulary ends in, however its file spells it.
//!
//! Ids may have gaps and come in any order. Knows no file format and no way to split text.

use super::trie::Entry;
use crate::error::{Error, Result};

/// Ids lie below this. The table has a row for each id up to the largest, so one absurd id must not size it.
pub(super) const ID_LIMIT: u32 = 1 << 20;

/// Bytes of a token. The longest of the World vocabulary has 128. Work for a text grows with the longest token.
const MAX_TOKEN_BYTES: usize = 1024;

/// Where a token lies in `Table::bytes`.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    len: u32,
}

/// An id that the file does not give.
const UNASSIGNED: Span = Span { start: u32::MAX, len: 0 };

#[derive(Default)]
pub(super) struct Table {
    /// All tokens, one after the other in the order of the file.
    bytes: Vec<u8>,
    /// By id, up to the largest: `[max_id + 1]`.
    spans: Vec<Span>,
    /// How many ids are assigned.
    n_tokens: usize,
}

impl Table {
    /// Assigns an id. Refuses an id that is too large or assigned already, and a token that is too long.
    pub fn add(&mut self, id: u32, token: &[u8]) -> Result<Entry> {
        if id >= ID_LIMIT {
            return Err(Error::file(format!("expected an id below {ID_LIMIT}, found {id}")));
        }
        if token.len() > MAX_TOKEN_BYTES {
            let message = format!("expected tokens of at most {MAX_TOKEN_BYTES} bytes, found {} for id {id}", token.len());
            return Err(Error::file(message).hint("the file is hostile or damaged"));
        }
        let row = id as usize;
        if self.spans.len() <= row {
            self.spans.resize(row + 1, UNASSIGNED);
        }
        if self.spans[row].start != UNASSIGNED.start {
            return Err(Error::file(format!("expected each id once, found {id} again")));
        }
        let [start, end] = [self.bytes.len(), self.bytes.len() + token.len()].map(u32::try_from);
        let (Ok(start), Ok(end)) = (start, end) else {
            return Err(Error::file("expected tokens of less than 4 GiB together, found more"));
        };
        let len = end - start;
        self.bytes.extend_from_slice(token);
        self.spans[row] = Span { start, len };
        self.n_tokens += 1;
        Ok(Entry { id, start, len })
    }

    /// The bytes of an id, empty where it is unassigned.
    pub fn token(&self, id: u32) -> &[u8] {
        let span = self.spans.get(id as usize).copied().filter(|s| s.len > 0).unwrap_or(Span { start: 0, len: 0 });
        &self.bytes[span.start as usize..][..span.len as usize]
    }

    /// The bytes of many ids, one after the other.
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        for &id in ids {
            bytes.extend_from_slice(self.token(id));
        }
        bytes
    }

    /// All tokens, one after the other: what the entries of [`add`](Self::add) point into.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The largest assigned id.
    pub fn max_id(&self) -> u32 {
        self.spans.len().saturating_sub(1) as u32
    }

    /// How many ids are assigned.
    pub fn len(&self) -> usize {
        self.n_tokens
    }
}
