//! GLM-4's vocabulary: `tokenizer.model`, a line `BASE64 RANK` a token, and byte-level BPE by those ranks.
//!
//! A token's rank is its id. The special tokens are not in the file and not found in text: what a user writes can never become
//! one, and a chat template asks for their ids by name. Knows no template, and no stop ids.

mod merge;
mod pieces;
#[cfg(test)]
pub(super) mod tests;

use super::rwkv::{number, shorten};
use super::table::Table;
use super::{Scheme, byte_chars, utf8_text};
use crate::error::{Error, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use merge::Ranks;
use pieces::Pieces;

/// Tokens in the file. A file of the same form with any other number is another family's, whose special tokens lie elsewhere.
const N_RANKS: usize = 151_329;

/// Their ids follow the ranks, in this order.
const SPECIAL: [&str; 14] = [
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

/// One line of the file.
struct Line {
    rank: u32,
    token: Vec<u8>,
    /// From 1.
    line_no: usize,
}

/// Whether a file is of this kind, by its first line.
pub(super) fn is_glm4(text: &[u8]) -> bool {
    text.split(|&b| b == b'\n').next().is_some_and(|line| parse_line(line).is_some())
}

/// Whether a file is a SentencePiece model, which shares the name `tokenizer.model`: a protobuf whose first piece is `<unk>`.
pub(super) fn is_sentence_piece(file: &[u8]) -> bool {
    matches!(file, [0x0a, _, 0x0a, 5, rest @ ..] if rest.starts_with(b"<unk>"))
}

/// Why such a model is not read.
pub(super) fn refuse_sentence_piece() -> Error {
    Error::file("expected a vocabulary of a known kind, found a SentencePiece model, as ChatGLM3 has")
        .hint("ChatGLM3's tokenizer is not supported; GLM-4's tokenizer.model is lines of base64 and rank")
}

impl Glm4 {
    pub(super) fn parse(text: &[u8]) -> Result<Self> {
        Self::with_ranks(text, N_RANKS)
    }

    /// Reads a file of `n_ranks` tokens, in any order.
    fn with_ranks(text: &[u8], n_ranks: usize) -> Result<Self> {
        let mut lines = Vec::with_capacity(n_ranks);
        for (line_no, line) in (1..).zip(text.split(|&b| b == b'\n')) {
            if !matches!(line, b"" | b"\r") {
                let (token, rank) = parse_line(line).ok_or_else(|| {
                    let shown = String::from_utf8_lossy(line);
                    Error::file(format!("expected BASE64 RANK, found {}", shorten(&shown))).at(format!("line {line_no}"))
                })?;
                let rank = u32::try_from(rank)
                    .ok()
                    .filter(|&rank| (rank as usize) < n_ranks)
                    .ok_or_else(|| not_glm4(format!("expected a rank below {n_ranks}, found {rank}")).at(format!("line {line_no}")))?;
                lines.push(Line { rank, token, line_no });
            }
        }
        lines.sort_by_key(|line| line.rank);

        let mut glm4 = Glm4 { table: Table::default(), ranks: Ranks::default() };
        let first_bytes = byte_order();
        for (expected, line) in (0..).zip(&lines) {
            let byte = first_bytes.get(expected as usize).copied();
            glm4.add(expected, byte, line).map_err(|e| e.at(format!("line {}", line.line_no)))?;
        }
        if lines.len() != n_ranks {
            return Err(not_glm4(format!("expected {n_ranks} tokens, found {}: ranks from {} are missing", lines.len(), lines.len())));
        }
        for (id, _) in (n_ranks as u32..).zip(SPECIAL) {
            glm4.table.add(id, b"")?;
        }
        Ok(glm4)
    }

    /// Enters the token whose rank is to be `expected`, and which is to be `byte` where there is one.
    fn add(&mut self, expected: u32, byte: Option<u8>, line: &Line) -> Result<()> {
        let &Line { rank, ref token, .. } = line;
        if rank < expected {
            return Err(Error::file(format!("expected each rank once, found {rank} again")));
        }
        if rank > expected {
            return Err(Error::file(format!("expected ranks without a gap, found {rank} but no {expected}")));
        }
        if let Some(byte) = byte.filter(|&byte| *token != [byte]) {
            let found = String::from_utf8_lossy(token);
            return Err(not_glm4(format!("expected the token of rank {rank} to be byte 0x{byte:02x}, found {:?}", shorten(&found))));
        }
        if let Some(before) = self.ranks.insert(token, rank) {
            return Err(Error::file(format!("expected each token once, found that of rank {before} again, as rank {rank}")));
        }
        self.table.add(rank, token)?;
        Ok(())
    }
}

/// Token and rank.
fn parse_line(line: &[u8]) -> Option<(Vec<u8>, u64)> {
    let line = std::str::from_utf8(line).ok()?;
    let (token, rank) = line.strip_suffix('\r').unwrap_or(line).split_once(' ')?;
    let token = STANDARD.decode(token).ok().filter(|bytes| !bytes.is_empty())?;
    Some((token, number(rank)?))
}

/// The bytes of ranks 0 to 255, in GPT-2's order: those that print in Latin-1, then the others.
fn byte_order() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..=u8::MAX).collect();
    bytes.sort_by_key(|&byte| byte_chars::char(byte));
    bytes
}

fn not_glm4(message: String) -> Error {
    Error::file(message).hint("is this the whole of GLM-4's tokenizer.model?")
}

impl Scheme for Glm4 {
    fn encode(&self, text: &[u8]) -> Result<Vec<u32>> {
        let text = utf8_text(text)?;
        let mut ids = Vec::with_capacity(text.len() / 3 + 1);
        for piece in Pieces::of(text) {
            self.ranks.split(piece.as_bytes(), &mut ids);
        }
        Ok(ids)
    }

    fn special(&self, text: &str) -> Option<u32> {
        let nth = SPECIAL.iter().position(|&special| special == text)?;
        Some((self.table.len() - SPECIAL.len() + nth) as u32)
    }

    fn table(&self) -> &Table {
        &self.table
    }
}
