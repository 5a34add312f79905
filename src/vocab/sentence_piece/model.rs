//! Reads a SentencePiece `.model`: a protobuf with pieces, their scores, and the treatment of spaces.
//!
//! Only the fields that determine the ids of a text are read. The error for an unsupported value names its field. The field numbers are from
//! `sentencepiece_model.proto`.

use crate::error::{Error, Result};
use crate::vocab::protobuf::{FieldValue, ProtobufFields};
use crate::vocab::table::ID_LIMIT;

pub(super) struct SentencePieceModel {
    /// The pieces (tokens). The index is the id.
    pub pieces: Vec<VocabPiece>,
    pub spaces: Spaces,
    /// True if a character without a piece becomes the pieces of its bytes.
    pub byte_fallback: bool,
}

pub(super) struct VocabPiece {
    pub text: String,
    /// The score. Encoding repeatedly merges the two adjacent parts of a text that form the piece of highest score.
    pub score: f32,
    pub kind: PieceKind,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum PieceKind {
    Normal,
    /// The token for characters without a piece.
    Unknown,
    /// A special token such as `<s>`. Encoding a text never returns its id.
    Control,
    /// A piece that is matched first, before the remaining characters are merged into normal pieces.
    UserDefined,
    /// A byte, `<0x00>` to `<0xFF>`.
    Byte,
}

/// The treatment of spaces in a text before it is split into pieces.
#[derive(Clone, Copy)]
pub(in crate::vocab) struct Spaces {
    /// True if a space is put before the text.
    pub add_dummy_prefix: bool,
    /// True if spaces at both ends are removed and runs of spaces become one space.
    pub remove_extra: bool,
}

/// The names of the values of `TrainerSpec.ModelType`, from 1. The default is 1.
const MODEL_TYPES: [&str; 4] = ["Unigram", "BPE", "Word", "Char"];

impl SentencePieceModel {
    pub(super) fn parse(file: &[u8]) -> Result<Self> {
        let spaces = Spaces { add_dummy_prefix: true, remove_extra: true };
        let mut model = SentencePieceModel { pieces: Vec::new(), spaces, byte_fallback: false };
        let mut model_type = 1;
        for field in ProtobufFields::of(file) {
            match field? {
                (1, FieldValue::Bytes(piece)) => {
                    let id = model.pieces.len();
                    if id == ID_LIMIT as usize {
                        return Err(Error::file(format!("expected a SentencePiece model of at most {ID_LIMIT} pieces, found more pieces")));
                    }
                    model.pieces.push(VocabPiece::parse(piece).map_err(|e| e.at(format!("piece {id}")))?);
                }
                (2, FieldValue::Bytes(spec)) => model.trainer(spec, &mut model_type).map_err(|e| e.at("trainer_spec"))?,
                (3, FieldValue::Bytes(spec)) => model.normalizer(spec).map_err(|e| e.at("normalizer_spec"))?,
                (5, FieldValue::Bytes(spec)) => charsmap(spec).map_err(|e| e.at("denormalizer_spec"))?,
                _ => {}
            }
        }
        if model_type != 2 {
            let name = usize::try_from(model_type).ok().and_then(|nth| MODEL_TYPES.get(nth.checked_sub(1)?));
            let name = name.map_or_else(|| format!("type {model_type}"), |name| name.to_string());
            return Err(Error::file(format!("expected a SentencePiece model of type BPE, found {name}")).at("trainer_spec"));
        }
        Ok(model)
    }

    fn trainer(&mut self, spec: &[u8], model_type: &mut u64) -> Result<()> {
        for field in ProtobufFields::of(spec) {
            match field? {
                (3, FieldValue::Int(n)) => *model_type = n,
                (35, FieldValue::Int(on)) => self.byte_fallback = on != 0,
                (24, FieldValue::Int(on)) if on != 0 => {
                    return Err(Error::file("a SentencePiece model with treat_whitespace_as_suffix is not supported"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn normalizer(&mut self, spec: &[u8]) -> Result<()> {
        for field in ProtobufFields::of(spec) {
            match field? {
                (3, FieldValue::Int(on)) => self.spaces.add_dummy_prefix = on != 0,
                (4, FieldValue::Int(on)) => self.spaces.remove_extra = on != 0,
                (5, FieldValue::Int(0)) => return Err(Error::file("a SentencePiece model without escape_whitespaces is not supported")),
                _ => {}
            }
        }
        charsmap(spec)
    }
}

/// Refuses a map that replaces characters. Every normalization except `identity` has such a map.
fn charsmap(spec: &[u8]) -> Result<()> {
    for field in ProtobufFields::of(spec) {
        if let (2, FieldValue::Bytes([_, ..])) = field? {
            return Err(Error::file("a SentencePiece model with text normalisation is not supported, except identity"));
        }
    }
    Ok(())
}

impl VocabPiece {
    fn parse(message: &[u8]) -> Result<Self> {
        let mut piece = VocabPiece { text: String::new(), score: 0.0, kind: PieceKind::Normal };
        for field in ProtobufFields::of(message) {
            match field? {
                (1, FieldValue::Bytes(text)) => {
                    piece.text = String::from_utf8(text.to_vec()).map_err(|_| Error::file("the text of the piece is not UTF-8"))?;
                }
                (2, FieldValue::Fixed32(score)) => piece.score = f32::from_le_bytes(score),
                (3, FieldValue::Int(kind)) => piece.kind = PieceKind::parse(kind)?,
                _ => {}
            }
        }
        piece.check()
    }

    /// Returns the piece if it has a text and a finite score.
    pub(super) fn check(self) -> Result<Self> {
        if self.text.is_empty() {
            return Err(Error::file("the piece has no text"));
        }
        if !self.score.is_finite() {
            return Err(Error::file(format!("expected a finite number as score of the piece, found {}", self.score)));
        }
        Ok(self)
    }
}

impl PieceKind {
    pub(super) fn parse(number: u64) -> Result<Self> {
        Ok(match number {
            1 => PieceKind::Normal,
            2 => PieceKind::Unknown,
            3 => PieceKind::Control,
            4 => PieceKind::UserDefined,
            6 => PieceKind::Byte,
            5 => return Err(Error::file("a SentencePiece model with unused pieces is not supported")),
            _ => return Err(Error::file(format!("expected a piece of type 1 to 6, found type {number}"))),
        })
    }
}
