//! GLM-4's vocabulary: byte-level BPE by rank, from `tokenizer.model` or from the `tokenizer.json` of the `-hf` checkpoints.
//!
//! A token's rank is its id. The special tokens are not found in text: what a user writes can never become one, and a chat
//! template asks for their ids by name. Knows no template, and no stop ids.

mod json;
mod lines;
mod pieces;
#[cfg(test)]
pub(super) mod tests;

use super::merge::Ranks;
use super::table::Table;
use super::{Scheme, byte_chars, utf8_text};
use crate::error::{Error, Result, room, short};
use pieces::Pieces;

pub(super) use lines::is_lines;

/// Tokens in the file. A file of the same form with any other number is another family's, whose special tokens lie elsewhere.
const N_RANKS: usize = 151_329;

/// GLM-4's special tokens. Their ids follow the ranks, in this order.
pub const SPECIAL: [&str; 14] = [
    "<|endoftext|>",
    "[MASK]",
    "[gMASK]",
    "[sMASK]",
    "<sop>",
    "<eop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "<|begin_of_image|>",
    "<|end_of_image|>",
    "<|begin_of_video|>",
    "<|end_of_video|>",
];

pub(super) struct Glm4 {
    table: Table,
    ranks: Ranks,
}

/// A token as a file gives it.
struct Entry {
    rank: u32,
    token: Vec<u8>,
    /// Which line or entry of the file it is, from 1.
    nth: usize,
}

impl Glm4 {
    /// Reads `tokenizer.model`.
    pub(super) fn parse(text: &[u8]) -> Result<Self> {
        Self::from_lines(text, N_RANKS)
    }

    /// Reads `tokenizer.json`, if it is GLM-4's.
    pub(super) fn parse_json(json: &[u8]) -> Result<Option<Self>> {
        Self::from_json(json, N_RANKS)
    }

    fn from_lines(text: &[u8], n_ranks: usize) -> Result<Self> {
        Self::new(lines::entries(text, n_ranks)?, n_ranks, lines::place)
    }

    fn from_json(json: &[u8], n_ranks: usize) -> Result<Option<Self>> {
        let entries = json::entries(json, n_ranks)?;
        entries.map(|entries| Self::new(entries, n_ranks, json::place)).transpose()
    }

    /// Of `n_ranks` tokens, in any order. `place` says where the nth of them stands.
    fn new(mut entries: Vec<Entry>, n_ranks: usize, place: fn(usize) -> String) -> Result<Self> {
        entries.sort_by_key(|entry| entry.rank);
        let mut glm4 = Glm4 { table: Table::default(), ranks: Ranks::default() };
        let first_bytes = byte_order();
        for (expected, entry) in (0..).zip(&entries) {
            let byte = first_bytes.get(expected as usize).copied();
            glm4.add(expected, byte, entry).map_err(|e| e.at(place(entry.nth)))?;
        }
        if entries.len() != n_ranks {
            return Err(not_glm4(format!("expected {n_ranks} tokens, found {n}: ranks from {n} are missing", n = entries.len())));
        }
        for (id, _) in (n_ranks as u32..).zip(SPECIAL) {
            glm4.table.add(id, b"")?;
        }
        Ok(glm4)
    }

    /// Enters the token whose rank is to be `expected`, and which is to be `byte` where there is one.
    fn add(&mut self, expected: u32, byte: Option<u8>, entry: &Entry) -> Result<()> {
        let &Entry { rank, ref token, .. } = entry;
        if rank < expected {
            return Err(Error::file(format!("expected each rank once, found {rank} again")));
        }
        if rank > expected {
            return Err(Error::file(format!("expected ranks without a gap, found {rank} but no {expected}")));
        }
        if let Some(byte) = byte.filter(|&byte| *token != [byte]) {
            let found = String::from_utf8_lossy(token);
            return Err(not_glm4(format!("expected the token of rank {rank} to be byte 0x{byte:02x}, found {:?}", short(&found, 24))));
        }
        if let Some(before) = self.ranks.insert(token, rank, rank) {
            return Err(Error::file(format!("expected each token once, found that of rank {before} again, as rank {rank}")));
        }
        self.table.add(rank, token)?;
        Ok(())
    }
}

/// The bytes of ranks 0 to 255, in GPT-2's order: those that print in Latin-1, then the others.
fn byte_order() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..=u8::MAX).collect();
    bytes.sort_by_key(|&byte| byte_chars::char(byte));
    bytes
}

fn not_glm4(message: String) -> Error {
    Error::file(message).hint("is this the whole of GLM-4's tokenizer?")
}

/// Appends the ids of a piece: its own where the whole piece is a token, else those of its parts.
fn split(ranks: &Ranks, piece: &[u8], ids: &mut Vec<u32>) -> Result<()> {
    match ranks.id(piece) {
        Some(id) => ids.push(id),
        // every part is a token, for all single bytes are
        None => ids.extend(ranks.join(piece, 0..piece.len())?.filter_map(|part| ranks.id(part))),
    }
    Ok(())
}

impl Scheme for Glm4 {
    fn encode(&self, text: &[u8]) -> Result<Vec<u32>> {
        let text = utf8_text(text)?;
        let mut ids = room(text.len() / 3 + 1, "the tokens of the text")?;
        for piece in Pieces::of(text) {
            split(&self.ranks, piece.as_bytes(), &mut ids)?;
        }
        Ok(ids)
    }

    /// The official tokenizer puts these two before every text.
    fn start(&self) -> Vec<u32> {
        ["[gMASK]", "<sop>"].into_iter().filter_map(|special| self.special(special)).collect()
    }

    fn special(&self, text: &str) -> Option<u32> {
        let nth = SPECIAL.iter().position(|&special| special == text)?;
        Some((self.table.len() - SPECIAL.len() + nth) as u32)
    }

    fn table(&self) -> &Table {
        &self.table
    }
}
