//! SentencePiece models of type BPE, such as ChatGLM3's `tokenizer.model`, or the lists of a GGUF file. The tokens in such a file are called pieces.
//! ChatGLM3 has nine special tokens with ids after the file's pieces.
//!
//! In a piece, the character `▁` represents a space. Encoding puts a space before the text. As in GLM-4, special tokens are never found in text: a
//! chat template gets their ids by name. Templates and stop ids are in other modules.
//!
//! This module uses no crate for the format: the existing crates are young, need a newer Rust or compile protobuf in their build. Little of the
//! format is needed. The tests compare the ids with the official package.

mod model;
mod pieces;
#[cfg(test)]
pub(super) mod tests;

use super::merge::Ranks;
use super::table::TokenTable;
use super::trie::{Steps, Trie};
use super::{Scheme, check_length, utf8_text};
use crate::error::{Error, Result, try_alloc};
pub(super) use model::Spaces;
use model::{PieceKind, SentencePieceModel, VocabPiece};
use pieces::{all_bytes, byte, each_once, ranks, user_defined};
use std::collections::HashMap;

/// The limit on the bytes of a text. Joining takes 40 bytes of memory for each byte of the text.
const MAX_TEXT_BYTES: usize = 128 << 20;

/// The character that represents a space in a model's pieces (tokens).
const SPACE: char = '▁';

/// The number of pieces (tokens) in ChatGLM3's file. A file with this number of pieces is treated as ChatGLM3's.
const N_CHATGLM3: usize = 64_789;

/// ChatGLM3's special tokens, in the order of their ids. The id of the first special token follows the id of the last piece.
const CHATGLM3: [&str; 9] = ["[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"];

/// The type of an unused token.
const UNUSED: i32 = 5;

pub(super) struct SentencePiece {
    table: TokenTable,
    spaces: Spaces,
    /// The normal pieces with their ranks. Encoding merges the characters of a text into these pieces, the piece of lowest rank first.
    ranks: Ranks,
    /// The user-defined pieces. Encoding matches these first, then merges the remaining characters into normal pieces.
    user_defined: Trie,
    unknown: u32,
    /// The ids of the pieces for single bytes. A character without a piece is split into these pieces. `None` if a character without a piece becomes
    /// the unknown token.
    bytes: Option<Box<[u32; 256]>>,
    special: HashMap<String, u32>,
    /// The number of pieces. Ids from this number on are ChatGLM3's special tokens.
    n_pieces: u32,
    /// The ids that come before every prompt.
    start: Vec<u32>,
}

/// A model as lists, as GGUF files have it. `tokens` and `types` have the same length.
pub(super) struct Lists<'a> {
    pub tokens: &'a [&'a str],
    /// The types of the tokens, in the numbers that GGUF and `sentencepiece_model.proto` share.
    pub types: &'a [i32],
    pub scores: &'a [f32],
    pub spaces: Spaces,
}

/// Returns whether a file is a SentencePiece model: a protobuf whose first field is a piece with a text and a score.
pub(super) fn is_sentence_piece(file: &[u8]) -> bool {
    matches!(file, [0x0a, _, 0x0a, len, rest @ ..] if rest.get(*len as usize) == Some(&0x15))
}

impl SentencePiece {
    pub(super) fn parse(file: &[u8]) -> Result<Self> {
        Self::with_chatglm3(file, N_CHATGLM3).map_err(|e| e.hint("use the tokenizer.model that belongs to the model"))
    }

    /// Reads a model. A model with exactly `n_chatglm3` pieces is ChatGLM3's.
    fn with_chatglm3(file: &[u8], n_chatglm3: usize) -> Result<Self> {
        let model = SentencePieceModel::parse(file)?;
        let is_chatglm3 = model.pieces.len() == n_chatglm3;
        Self::new(model, is_chatglm3)
    }

    /// Creates a vocabulary from lists. If the list of tokens has ChatGLM3's special tokens, all tokens before them are pieces, and all tokens after
    /// them are left out. Otherwise, only unused tokens at the end of the list are left out.
    ///
    /// # Errors
    ///
    /// `File` if `scores` has another length than the tokens, or if a token has an unsupported type. Also `File` if the pieces are not a complete
    /// model, for example without a piece for unknown text.
    pub(super) fn from_lists(lists: &Lists) -> Result<Self> {
        let Lists { tokens, types, scores, spaces } = *lists;
        let n_chatglm3 = tokens.windows(CHATGLM3.len()).position(|tokens| tokens == CHATGLM3);
        let n_used = types.iter().rposition(|&kind| kind != UNUSED).map_or(0, |last| last + 1);
        let n_pieces = n_chatglm3.unwrap_or(n_used);
        if scores.len() != tokens.len() {
            return Err(Error::file(format!("expected a score for each of {} tokens, found {}", tokens.len(), scores.len())));
        }
        let read = |id: usize| {
            let kind = PieceKind::parse(u64::try_from(types[id]).unwrap_or_default());
            let piece = kind.and_then(|kind| VocabPiece { text: tokens[id].into(), score: scores[id], kind }.check());
            piece.map_err(|e| e.at(format!("token {id}")))
        };
        let pieces = (0..n_pieces).map(read).collect::<Result<Vec<_>>>()?;
        let byte_fallback = pieces.iter().any(|piece| piece.kind == PieceKind::Byte);
        Self::new(SentencePieceModel { pieces, spaces, byte_fallback }, n_chatglm3.is_some())
    }

    fn new(model: SentencePieceModel, is_chatglm3: bool) -> Result<Self> {
        let SentencePieceModel { pieces, spaces, byte_fallback } = model;
        let mut table = TokenTable::default();
        let mut special = HashMap::new();
        let mut unknown = None;
        let mut bytes: [Option<u32>; 256] = [None; 256];
        for (id, piece) in (0..).zip(&pieces) {
            let at = |e: Error| e.at(format!("piece {id}"));
            match piece.kind {
                PieceKind::Normal | PieceKind::UserDefined => table.add(id, piece.text.replace(SPACE, " ").as_bytes()).map(drop),
                PieceKind::Control => {
                    special.insert(piece.text.clone(), id);
                    table.add(id, b"").map(drop)
                }
                PieceKind::Unknown if unknown.is_some() => Err(Error::file("the SentencePiece model has two pieces for unknown text")),
                PieceKind::Unknown => {
                    unknown = Some(id);
                    table.add(id, b"").map(drop)
                }
                PieceKind::Byte => byte(&piece.text).and_then(|byte| {
                    bytes[byte as usize] = Some(id);
                    table.add(id, &[byte]).map(drop)
                }),
            }
            .map_err(at)?;
        }
        let unknown = unknown.ok_or_else(|| Error::file("the SentencePiece model has no piece for unknown text"))?;
        let bytes = all_bytes(&bytes, byte_fallback)?;
        each_once(&pieces)?;

        let n_pieces = pieces.len() as u32;
        let mut start = Vec::new();
        if is_chatglm3 {
            for (id, text) in (n_pieces..).zip(CHATGLM3) {
                table.add(id, b"")?;
                special.insert(text.into(), id);
            }
            start = ["[gMASK]", "sop"].map(|text| special[text]).to_vec();
        }
        let (ranks, user_defined) = (ranks(&pieces), user_defined(&pieces));
        Ok(SentencePiece { table, spaces, ranks, user_defined, unknown, bytes, special, n_pieces, start })
    }

    /// Returns `text` with `▁` in place of each space, after spaces were added or removed as the model requires.
    fn spelt(&self, text: &str) -> String {
        let prefix = if self.spaces.add_dummy_prefix { "▁" } else { "" };
        if !self.spaces.remove_extra {
            return if text.is_empty() { String::new() } else { prefix.to_string() + &text.replace(' ', "▁") };
        }
        let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
        if words.is_empty() {
            return String::new();
        }
        // like the official package, removes every `▁` at the end, even if the text itself had this character
        (prefix.to_string() + &words.join("▁")).trim_end_matches(SPACE).to_string()
    }

    /// Appends the ids of `text`, which contains no user-defined pieces.
    fn join(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        for part in self.ranks.join(text.as_bytes(), text.char_indices().map(|(i, _)| i))? {
            match (self.ranks.id(part), &self.bytes) {
                (Some(id), _) => ids.push(id),
                (None, Some(bytes)) => ids.extend(part.iter().map(|&byte| bytes[byte as usize])),
                // a run of characters without a piece is one unknown token
                (None, None) if ids.last() == Some(&self.unknown) => {}
                (None, None) => ids.push(self.unknown),
            }
        }
        Ok(())
    }

    /// Returns whether an id belongs to a piece for a single byte, such as `<0x20>`.
    fn is_byte(&self, id: u32) -> bool {
        let token = self.table.token(id);
        self.bytes.as_ref().is_some_and(|bytes| matches!(*token, [byte] if bytes[byte as usize] == id))
    }
}

impl Scheme for SentencePiece {
    fn encode(&self, text: &[u8]) -> Result<Vec<u32>> {
        check_length(text, MAX_TEXT_BYTES)?;
        let text = self.spelt(utf8_text(text)?);
        let mut ids = try_alloc(text.len() / 3 + 1, "the tokens of the text")?;
        let (mut plain, mut at, mut steps) = (0, 0, Steps::of(text.len()));
        while let Some(char) = text[at..].chars().next() {
            match self.user_defined.longest(&text.as_bytes()[at..], &mut steps)? {
                Some((id, len)) => {
                    self.join(&text[plain..at], &mut ids)?;
                    ids.push(id);
                    at += len;
                    plain = at;
                }
                None => at += char.len_utf8(),
            }
        }
        self.join(&text[plain..], &mut ids)?;
        Ok(ids)
    }

    /// Returns the ids of `[gMASK]` and `sop` for ChatGLM3, as its official tokenizer does. Returns an empty list for other models.
    fn start(&self) -> Vec<u32> {
        self.start.clone()
    }

    /// Joins the bytes of the tokens. Removes the space that encoding puts before a text. With ChatGLM3, also removes the space after each special
    /// token, because the texts between special tokens are encoded separately.
    fn decode(&self, ids: &[u32]) -> Vec<u8> {
        let Spaces { add_dummy_prefix, remove_extra } = self.spaces;
        let mut text = Vec::with_capacity(ids.len() * 4);
        let mut is_start = add_dummy_prefix || remove_extra;
        for &id in ids {
            let token = self.table.token(id);
            if id >= self.n_pieces {
                is_start = add_dummy_prefix || remove_extra;
            } else if is_start && token.first() == Some(&b' ') && !self.is_byte(id) {
                text.extend_from_slice(&token[1..]);
                // `remove_extra` removes further spaces, too
                is_start = remove_extra && token.len() == 1;
            } else {
                text.extend_from_slice(token);
                is_start &= token.is_empty();
            }
        }
        text
    }

    fn special(&self, text: &str) -> Option<u32> {
        self.special.get(text).copied()
    }

    fn specials(&self) -> Vec<(&str, u32)> {
        self.special.iter().map(|(text, &id)| (text.as_ref(), id)).collect()
    }

    fn table(&self) -> &TokenTable {
        &self.table
    }
}
