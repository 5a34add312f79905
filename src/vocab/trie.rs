//! A byte trie in flat arrays: finds the longest token with which a text begins.
//!
//! Nodes are numbered level by level, so the children of a node are adjacent, and one array of first children is enough. A table indexed by the
//! first two bytes skips the widest levels. Several kinds of vocabulary share this trie, so their file formats are in other modules.

use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::ops::Range;

/// A token: its id and its span in the bytes of all tokens.
#[derive(Clone, Copy)]
pub(super) struct TrieToken {
    pub id: u32,
    pub start: u32,
    pub len: u32,
}

/// Marks a missing id or a missing node.
const NONE: u32 = u32::MAX;

/// The maximum number of nodes that are visited per byte of a text, on average. Published vocabularies take less than 4.
const MAX_STEPS: u64 = 64;

/// The number of nodes that the search may still visit for a text. Tokens of a hostile vocabulary are long and almost match. Without this limit,
/// every byte of a text could take time proportional to the length of such tokens.
pub(super) struct Steps {
    left: u64,
}

impl Steps {
    /// Returns the limit for a text of `n_bytes` bytes.
    pub(super) fn of(n_bytes: usize) -> Steps {
        Steps { left: (n_bytes as u64 + 4096).saturating_mul(MAX_STEPS) }
    }

    fn take(&mut self, n: usize) -> Result<()> {
        self.left = self.left.checked_sub(n as u64).ok_or_else(|| {
            let message = format!("this vocabulary splits the text too slowly, with more than {MAX_STEPS} steps per byte");
            Error::file(message).hint("the vocabulary is hostile, or made for another kind of text")
        })?;
        Ok(())
    }
}

pub(super) struct Trie {
    /// For each node, the byte that leads to the node. The bytes of siblings ascend. `[nodes]`
    label: Vec<u8>,
    /// For each node, the id of the token that ends at the node, or `NONE`. `[nodes]`
    token: Vec<u32>,
    /// The children of node `i` are `first_child[i]..first_child[i + 1]`. `[nodes + 1]`
    first_child: Vec<u32>,
    /// For each byte, the id of the token that is this single byte, or `NONE`. `[256]`
    single: Vec<u32>,
    /// For each pair of bytes a and b, the node to which byte a and then byte b lead from the root, or `NONE`. The index is 256 a + b. `[65536]`
    pair: Vec<u32>,
}

impl Trie {
    /// Builds a trie. Of several entries with equal bytes, the last entry counts. Tokens without bytes never match.
    pub(super) fn new(entries: &[TrieToken], bytes: &[u8]) -> Self {
        let sorted = sort(entries, bytes);
        let byte = |i: usize, depth: usize| bytes[sorted[i].start as usize + depth];

        // Nodes whose children do not exist yet. Each entry is the range of `sorted` with the tokens below one node.
        let mut waiting = VecDeque::new();
        waiting.push_back(0..sorted.len());
        let mut trie = Trie { label: vec![0], token: vec![], first_child: vec![], single: vec![NONE; 256], pair: vec![NONE; 1 << 16] };
        let (mut depth, mut level_end) = (0, 1);
        while let Some(Range { mut start, end }) = waiting.pop_front() {
            if trie.token.len() == level_end {
                depth += 1;
                level_end = trie.label.len();
            }
            trie.first_child.push(trie.label.len() as u32);
            trie.token.push(match sorted.get(start) {
                Some(entry) if entry.len as usize == depth => {
                    start += 1;
                    entry.id
                }
                _ => NONE,
            });
            while start < end {
                let label = byte(start, depth);
                let n = (start..end).take_while(|&i| byte(i, depth) == label).count();
                trie.label.push(label);
                waiting.push_back(start..start + n);
                start += n;
            }
        }
        trie.first_child.push(trie.label.len() as u32);
        trie.index_first_bytes();
        trie
    }

    fn index_first_bytes(&mut self) {
        for a in self.children(0) {
            let first = self.label[a] as usize;
            self.single[first] = self.token[a];
            for b in self.children(a) {
                self.pair[first << 8 | self.label[b] as usize] = b as u32;
            }
        }
    }

    fn children(&self, node: usize) -> Range<usize> {
        self.first_child[node] as usize..self.first_child[node + 1] as usize
    }

    /// Finds the longest token with which `text` begins. Returns its id and its length in bytes, or `None` if no token matches.
    ///
    /// # Errors
    /// `File` if the limit `steps` is exceeded.
    pub(super) fn longest(&self, text: &[u8], steps: &mut Steps) -> Result<Option<(u32, usize)>> {
        let Some(&first) = text.first() else { return Ok(None) };
        let first = first as usize;
        let mut best = (self.single[first], 1);
        let mut node = match text.get(1) {
            Some(&second) => self.pair[first << 8 | second as usize],
            None => NONE,
        };
        let mut len = 2;
        while node != NONE {
            let id = self.token[node as usize];
            if id != NONE {
                best = (id, len);
            }
            let Some(&next) = text.get(len) else { break };
            let children = self.children(node as usize);
            let Ok(i) = self.label[children.clone()].binary_search(&next) else { break };
            node = (children.start + i) as u32;
            len += 1;
        }
        steps.take(len)?;
        Ok(Some(best).filter(|&(id, _)| id != NONE))
    }
}

/// Returns the entries that have bytes, sorted by their bytes. Of several entries with equal bytes, keeps the last.
fn sort(entries: &[TrieToken], bytes: &[u8]) -> Vec<TrieToken> {
    let token = |e: &TrieToken| &bytes[e.start as usize..][..e.len as usize];
    // the first eight bytes, compared as one number, decide most comparisons
    let mut keyed: Vec<(u64, usize)> = Vec::with_capacity(entries.len());
    for (i, e) in entries.iter().enumerate().filter(|(_, e)| e.len > 0) {
        let mut head = [0; 8];
        let n = head.len().min(e.len as usize);
        head[..n].copy_from_slice(&token(e)[..n]);
        keyed.push((u64::from_be_bytes(head), i));
    }
    keyed.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| token(&entries[a.1]).cmp(token(&entries[b.1]))).then(a.1.cmp(&b.1)));
    let mut sorted: Vec<TrieToken> = Vec::with_capacity(keyed.len());
    for (_, i) in keyed {
        let entry = entries[i];
        match sorted.last_mut() {
            Some(last) if token(last) == token(&entry) => *last = entry,
            _ => sorted.push(entry),
        }
    }
    sorted
}
