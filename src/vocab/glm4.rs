//! The vocabularies of GLM-4 and GLM-Edge: byte-level BPE by rank, from `tokenizer.model`, from a `tokenizer.json` of `transformers`, or from the
//! lists of a GGUF file.
//!
//! The rank of a token is its id. Special tokens are never found in text, so user text cannot become a special token: a chat template gets their ids
//! by name. Templates and stop ids are in other modules.

mod json;
mod lines;
mod pieces;
#[cfg(test)]
pub(super) mod tests;

use super::merge::Ranks;
use super::table::TokenTable;
use super::{OwnedLists, Scheme, byte_chars, utf8_text, written};
use crate::error::{Error, Result, short, try_alloc};
use pieces::Pieces;
use std::collections::HashMap;

pub(super) use lines::is_lines;

/// The number of tokens in GLM-4's file, without special tokens. A file with another number of tokens belongs to another family with other special
/// tokens.
const N_RANKS: usize = 151_329;

/// The number of tokens in GLM-Edge's file, without special tokens. The special tokens are the same as in GLM-4, in the same order.
const N_RANKS_EDGE: usize = 59_246;

/// GLM-4's special tokens, in the order of their ids. Their ids follow the ids of the ordinary tokens.
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

pub(super) struct Glm4Vocab {
    table: TokenTable,
    ranks: Ranks,
    /// The id of each special token, by its text.
    special: HashMap<String, u32>,
    /// The file's `ignore_merges`: true if a piece that is itself a token becomes this token without merges. (Pieces are the parts of a text that are
    /// merged separately.)
    keeps_pieces: bool,
}

struct FileToken {
    rank: u32,
    token: Vec<u8>,
    /// The number of the token's line or entry in the file, from 1.
    nth: usize,
}

impl Glm4Vocab {
    /// Reads `tokenizer.model`.
    pub(super) fn parse(text: &[u8]) -> Result<Self> {
        Self::from_lines(text, N_RANKS)
    }

    /// Reads `tokenizer.json`. Returns `None` if the file belongs to another family.
    pub(super) fn parse_json(json: &[u8]) -> Result<Option<Self>> {
        Self::from_json(json, &[N_RANKS, N_RANKS_EDGE])
    }

    fn from_lines(text: &[u8], n_ranks: usize) -> Result<Self> {
        Self::new(lines::entries(text, n_ranks)?, n_ranks, lines::location)
    }

    /// Reads `tokenizer.json`. `n_ranks` are the possible numbers of tokens without special tokens.
    fn from_json(json: &[u8], n_ranks: &[usize]) -> Result<Option<Self>> {
        let Some(json::TokenizerFile { n_ranks, entries, more_special, keeps_pieces }) = json::read(json, n_ranks)? else {
            return Ok(None);
        };
        let mut glm4 = Self::new(entries, n_ranks, json::location)?;
        for (id, text, is_shown) in more_special {
            glm4.add_special(id, &text, is_shown)?;
        }
        Ok(Some(Glm4Vocab { keeps_pieces, ..glm4 }))
    }

    /// Creates a vocabulary from `n_ranks` tokens in any order. `location` returns the place of the nth token in the file, for errors.
    fn new(mut entries: Vec<FileToken>, n_ranks: usize, location: fn(usize) -> String) -> Result<Self> {
        entries.sort_by_key(|entry| entry.rank);
        let mut glm4 = Glm4Vocab::empty();
        let first_bytes = byte_order();
        for (expected, entry) in (0..).zip(&entries) {
            let byte = first_bytes.get(expected as usize).copied();
            glm4.add(expected, byte, entry).map_err(|e| e.at(location(entry.nth)))?;
        }
        if entries.len() != n_ranks {
            return Err(not_glm4(format!("expected {n_ranks} tokens, found {n}: ranks from {n} are missing", n = entries.len())));
        }
        for (id, special) in (n_ranks as u32..).zip(SPECIAL) {
            glm4.add_special(id, special, false)?;
        }
        Ok(glm4)
    }

    fn empty() -> Self {
        Glm4Vocab { table: TokenTable::default(), ranks: Ranks::default(), special: HashMap::new(), keeps_pieces: true }
    }

    /// Adds a special token. `is_shown` is true if decoded text has the token's text.
    fn add_special(&mut self, id: u32, text: &str, is_shown: bool) -> Result<()> {
        self.table.add(id, if is_shown { text.as_bytes() } else { b"" })?;
        self.special.insert(text.to_string(), id);
        Ok(())
    }

    /// Creates a vocabulary from tokens and special tokens, each with its id. The id is also the rank; merges that form a token of low rank come
    /// first. Ids may have gaps. The `bool` of a special token is true if decoded text shows it, such as `<think>`. Decoded text never shows the
    /// tokens of [`SPECIAL`].
    ///
    /// # Errors
    ///
    /// `File` if an id or a token occurs twice, or if a single byte is not a token. `File` if an id is too large or a token too long.
    pub(super) fn from_tokens<'a>(tokens: &[(u32, Vec<u8>)], special: impl Iterator<Item = (u32, &'a str, bool)>) -> Result<Self> {
        let mut glm4 = Glm4Vocab::empty();
        for (id, token) in tokens {
            glm4.table.add(*id, token)?;
            if let Some(before) = glm4.ranks.insert(token, *id, *id) {
                return Err(Error::file(format!("the tokens of id {before} and id {id} are the same")));
            }
        }
        if let Some(byte) = (0..=u8::MAX).find(|byte| glm4.ranks.id(&[*byte]).is_none()) {
            return Err(Error::file(format!("no token is the single byte 0x{byte:02x}")));
        }
        for (id, text, is_shown) in special {
            glm4.add_special(id, text, is_shown && !SPECIAL.contains(&text))?;
        }
        Ok(glm4)
    }

    /// Adds a token, whose rank must be `expected`. If `byte` is given, the token must be this single byte.
    fn add(&mut self, expected: u32, byte: Option<u8>, entry: &FileToken) -> Result<()> {
        let &FileToken { rank, ref token, .. } = entry;
        if rank < expected {
            return Err(Error::file(format!("two tokens have the rank {rank}")));
        }
        if rank > expected {
            return Err(Error::file(format!("no token has the rank {expected}; the next rank is {rank}")));
        }
        if let Some(byte) = byte.filter(|&byte| *token != [byte]) {
            let found = String::from_utf8_lossy(token);
            return Err(not_glm4(format!("expected the token of rank {rank} to be byte 0x{byte:02x}, found {:?}", short(&found, 24))));
        }
        if let Some(before) = self.ranks.insert(token, rank, rank) {
            return Err(Error::file(format!("ranks {before} and {rank} have the same token")));
        }
        self.table.add(rank, token)?;
        Ok(())
    }
}

/// Returns the bytes of ranks 0 to 255, in GPT-2's order: first the bytes that are visible Latin-1 characters, then the other bytes.
fn byte_order() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..=u8::MAX).collect();
    bytes.sort_by_key(|&byte| byte_chars::char(byte));
    bytes
}

fn not_glm4(message: String) -> Error {
    Error::file(message).hint("the file is not GLM-4's complete tokenizer: download the file again")
}

/// Appends the ids of a piece: one id if the whole piece is a token and `keeps_pieces` is true, otherwise the ids of its merged parts.
fn split(ranks: &Ranks, piece: &[u8], keeps_pieces: bool, ids: &mut Vec<u32>) -> Result<()> {
    match ranks.id(piece).filter(|_| keeps_pieces) {
        Some(id) => ids.push(id),
        // `filter_map` drops nothing: every single byte is a token, so every part is a token
        None => ids.extend(ranks.join(piece, 0..piece.len())?.filter_map(|part| ranks.id(part))),
    }
    Ok(())
}

impl Scheme for Glm4Vocab {
    fn encode(&self, text: &[u8]) -> Result<Vec<u32>> {
        let text = utf8_text(text)?;
        let mut ids = try_alloc(text.len() / 3 + 1, "the tokens of the text")?;
        for piece in Pieces::of(text) {
            split(&self.ranks, piece.as_bytes(), self.keeps_pieces, &mut ids)?;
        }
        Ok(ids)
    }

    /// Returns the ids of `[gMASK]` and `<sop>`, which GLM-4's official tokenizer puts before every text. Returns an empty list for GLM-Edge, whose
    /// tokenizer adds no tokens. The id of `[gMASK]` distinguishes the two models.
    fn start(&self) -> Vec<u32> {
        let start = ["[gMASK]", "<sop>"].map(|special| self.special(special));
        let is_edge = start[0] == Some(N_RANKS_EDGE as u32 + 2);
        start.into_iter().flatten().filter(|_| !is_edge).collect()
    }

    fn special(&self, text: &str) -> Option<u32> {
        self.special.get(text).copied()
    }

    fn specials(&self) -> Vec<(&str, u32)> {
        self.special.iter().map(|(text, &id)| (text.as_ref(), id)).collect()
    }

    fn lists(&self) -> Option<OwnedLists> {
        Some(written::glm(&self.table, &self.ranks, &self.specials(), self.keeps_pieces))
    }

    fn table(&self) -> &TokenTable {
        &self.table
    }
}
