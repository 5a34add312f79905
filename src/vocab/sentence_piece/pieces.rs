//! Sorts the pieces of a model by purpose: pieces into which characters are merged, pieces that are found in text as a whole, and single bytes.

use super::model::{PieceKind, VocabPiece};
use crate::error::{Error, Result, short};
use crate::vocab::merge::Ranks;
use crate::vocab::trie::{Trie, TrieToken};
use std::collections::HashMap;

/// Reads the byte of a piece such as `<0xE4>`.
pub(super) fn byte(text: &str) -> Result<u8> {
    let digits = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>')).filter(|digits| digits.len() == 2);
    let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|byte| text == format!("<0x{byte:02X}>"));
    byte.ok_or_else(|| Error::file(format!("expected the text of a byte piece, <0x00> to <0xFF>, found {:?}", short(text, 24))))
}

/// Returns the id of each byte's piece, or `None` if `byte_fallback` is off. Fails if `byte_fallback` is on and a byte has no piece, or if
/// `byte_fallback` is off and a byte has a piece.
pub(super) fn all_bytes(found: &[Option<u32>; 256], byte_fallback: bool) -> Result<Option<Box<[u32; 256]>>> {
    let mut ids = Box::new([0; 256]);
    let mut n_found = 0;
    for (id, found) in ids.iter_mut().zip(found) {
        n_found += usize::from(found.is_some());
        *id = found.unwrap_or_default();
    }
    match (byte_fallback, n_found) {
        (true, 256) => Ok(Some(ids)),
        (false, 0) => Ok(None),
        (true, n) => Err(Error::file(format!("byte_fallback needs 256 byte pieces, found {n} byte pieces"))),
        (false, n) => Err(Error::file(format!("the SentencePiece model has {n} byte pieces, but byte_fallback is off"))),
    }
}

/// Returns the normal pieces, ranked by descending score.
pub(super) fn ranks(pieces: &[VocabPiece]) -> Ranks {
    let mut by_score: Vec<(u32, &VocabPiece)> = of_kind(pieces, PieceKind::Normal).collect();
    by_score.sort_by(|(_, a), (_, b)| b.score.total_cmp(&a.score));
    let mut ranks = Ranks::default();
    let (mut rank, mut score) = (0, f32::INFINITY);
    for (id, piece) in by_score {
        // pieces with equal scores get equal ranks, so that the leftmost join comes first
        if piece.score < score {
            (rank, score) = (rank + 1, piece.score);
        }
        ranks.insert(piece.text.as_bytes(), rank, id);
    }
    ranks
}

/// Returns the user-defined pieces. Encoding finds these in a text first, and then joins the other characters to normal pieces.
pub(super) fn user_defined(pieces: &[VocabPiece]) -> Trie {
    let mut bytes = Vec::new();
    let mut entries = Vec::new();
    for (id, piece) in of_kind(pieces, PieceKind::UserDefined) {
        entries.push(TrieToken { id, start: bytes.len() as u32, len: piece.text.len() as u32 });
        bytes.extend_from_slice(piece.text.as_bytes());
    }
    Trie::new(&entries, &bytes)
}

fn of_kind(pieces: &[VocabPiece], kind: PieceKind) -> impl Iterator<Item = (u32, &VocabPiece)> {
    (0..).zip(pieces).filter(move |(_, piece)| piece.kind == kind)
}

/// Refuses a model in which two pieces have the same text, even if their kinds differ.
pub(super) fn each_once(pieces: &[VocabPiece]) -> Result<()> {
    let mut ids = HashMap::with_capacity(pieces.len());
    for (id, piece) in (0u32..).zip(pieces) {
        if let Some(before) = ids.insert(piece.text.as_str(), id) {
            return Err(Error::file(format!("the piece has the same text as piece {before}")).at(format!("piece {id}")));
        }
    }
    Ok(())
}
