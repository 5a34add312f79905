//! Token bytes by id, for every kind of vocabulary.
//!
//! Ids may have gaps, and may be added in any order. Every kind of vocabulary has such a table, so file formats and the rules by which text becomes
//! ids are in other modules.

use super::trie::TrieToken;
use crate::error::{Error, Result};

/// Ids must be below this limit. The table has a row for every id up to the largest id, so a huge id would take too much memory.
pub(super) const ID_LIMIT: u32 = 1 << 20;

/// The limit on the bytes of a token. The longest token of the World vocabulary has 128 bytes. The work for a text grows with the length of the
/// longest token.
const MAX_TOKEN_BYTES: usize = 1024;

/// The place of a token in `TokenTable::bytes`.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    len: u32,
}

/// Marks an id to which the file assigns no token.
const UNASSIGNED: Span = Span { start: u32::MAX, len: 0 };

#[derive(Default)]
pub(super) struct TokenTable {
    /// The bytes of all tokens, in the order of the file.
    bytes: Vec<u8>,
    /// The span of each id. `[max_id + 1]`
    spans: Vec<Span>,
    /// The number of assigned ids.
    n_tokens: usize,
}

impl TokenTable {
    /// Assigns a token to an id. Returns the token's place in the bytes of all tokens. Refuses an id that is too large or already assigned, and a
    /// token that is too long.
    pub fn add(&mut self, id: u32, token: &[u8]) -> Result<TrieToken> {
        if id >= ID_LIMIT {
            return Err(Error::file(format!("expected a token id below {ID_LIMIT}, found {id}")));
        }
        if token.len() > MAX_TOKEN_BYTES {
            let message =
                format!("expected tokens of at most {MAX_TOKEN_BYTES} bytes, found {} bytes for the token with id {id}", token.len());
            return Err(Error::file(message).hint("the file is hostile or damaged: download the file again"));
        }
        let row = id as usize;
        if self.spans.len() <= row {
            self.spans.resize(row + 1, UNASSIGNED);
        }
        if self.spans[row].start != UNASSIGNED.start {
            return Err(Error::file(format!("two tokens have the id {id}")));
        }
        let [start, end] = [self.bytes.len(), self.bytes.len() + token.len()].map(u32::try_from);
        let (Ok(start), Ok(end)) = (start, end) else {
            return Err(Error::file("the tokens of the vocabulary have more than 4 GiB in total"));
        };
        let len = end - start;
        self.bytes.extend_from_slice(token);
        self.spans[row] = Span { start, len };
        self.n_tokens += 1;
        Ok(TrieToken { id, start, len })
    }

    /// Returns the bytes of an id, empty if the id is unassigned.
    pub fn token(&self, id: u32) -> &[u8] {
        let span = self.spans.get(id as usize).copied().filter(|s| s.len > 0).unwrap_or(Span { start: 0, len: 0 });
        &self.bytes[span.start as usize..][..span.len as usize]
    }

    /// Returns the joined bytes of many ids.
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        for &id in ids {
            bytes.extend_from_slice(self.token(id));
        }
        bytes
    }

    /// Returns the bytes of all tokens. [`add`](Self::add) returns each token's place in these bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the largest assigned id.
    pub fn max_id(&self) -> u32 {
        self.spans.len().saturating_sub(1) as u32
    }

    /// Returns the number of assigned ids.
    pub fn len(&self) -> usize {
        self.n_tokens
    }
}
