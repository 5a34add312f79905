//! What a SentencePiece `.model` says: a protobuf of pieces with their scores, and how spaces are treated.
//!
//! Of its many fields only those are read that decide what ids a text has; a value that asks for something else than is done
//! here is refused by name. Numbers of fields are those of `sentencepiece_model.proto`.

use crate::error::{Error, Result};
use crate::vocab::protobuf::{Fields, Value};
use crate::vocab::table::ID_LIMIT;

pub(super) struct Model {
    /// By id.
    pub pieces: Vec<Piece>,
    pub spaces: Spaces,
    /// Characters that no piece has become their bytes.
    pub byte_fallback: bool,
}

pub(super) struct Piece {
    pub text: String,
    /// Of two joins the one with the higher score comes first.
    pub score: f32,
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Kind {
    Normal,
    /// Stands for what no piece does.
    Unknown,
    /// `<s>` and its like, which no text encodes to.
    Control,
    /// Found in text before anything is joined.
    UserDefined,
    /// A byte, `<0x00>` to `<0xFF>`.
    Byte,
}

/// What happens to spaces before text is split.
#[derive(Clone, Copy)]
pub(super) struct Spaces {
    /// One more is put before the text.
    pub add_dummy_prefix: bool,
    /// Those at both ends are taken away, and runs of them become one.
    pub remove_extra: bool,
}

/// `TrainerSpec.ModelType`: the algorithms. A file that does not say is the first.
const MODEL_TYPES: [&str; 4] = ["Unigram", "BPE", "Word", "Char"];

impl Model {
    pub(super) fn parse(file: &[u8]) -> Result<Self> {
        let spaces = Spaces { add_dummy_prefix: true, remove_extra: true };
        let mut model = Model { pieces: Vec::new(), spaces, byte_fallback: false };
        let mut model_type = 1;
        for field in Fields::of(file) {
            match field? {
                (1, Value::Bytes(piece)) => {
                    let id = model.pieces.len();
                    if id == ID_LIMIT as usize {
                        return Err(Error::file(format!("expected at most {ID_LIMIT} pieces, found more")));
                    }
                    model.pieces.push(Piece::parse(piece).map_err(|e| e.at(format!("piece {id}")))?);
                }
                (2, Value::Bytes(spec)) => model.trainer(spec, &mut model_type).map_err(|e| e.at("trainer_spec"))?,
                (3, Value::Bytes(spec)) => model.normalizer(spec).map_err(|e| e.at("normalizer_spec"))?,
                (5, Value::Bytes(spec)) => charsmap(spec).map_err(|e| e.at("denormalizer_spec"))?,
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
        for field in Fields::of(spec) {
            match field? {
                (3, Value::Int(n)) => *model_type = n,
                (35, Value::Int(on)) => self.byte_fallback = on != 0,
                (24, Value::Int(on)) if on != 0 => return Err(Error::file("expected no treat_whitespace_as_suffix, found it")),
                _ => {}
            }
        }
        Ok(())
    }

    fn normalizer(&mut self, spec: &[u8]) -> Result<()> {
        for field in Fields::of(spec) {
            match field? {
                (3, Value::Int(on)) => self.spaces.add_dummy_prefix = on != 0,
                (4, Value::Int(on)) => self.spaces.remove_extra = on != 0,
                (5, Value::Int(0)) => return Err(Error::file("expected escape_whitespaces, found it off")),
                _ => {}
            }
        }
        charsmap(spec)
    }
}

/// Refuses a map of characters, which all normalizations but `identity` have.
fn charsmap(spec: &[u8]) -> Result<()> {
    for field in Fields::of(spec) {
        if let (2, Value::Bytes([_, ..])) = field? {
            return Err(Error::file("expected text to be taken as it is (identity), found a normalization"));
        }
    }
    Ok(())
}

impl Piece {
    fn parse(message: &[u8]) -> Result<Self> {
        let mut piece = Piece { text: String::new(), score: 0.0, kind: Kind::Normal };
        for field in Fields::of(message) {
            match field? {
                (1, Value::Bytes(text)) => {
                    piece.text = String::from_utf8(text.to_vec()).map_err(|_| Error::file("expected UTF-8, found other bytes"))?;
                }
                (2, Value::Fixed32(score)) => piece.score = f32::from_le_bytes(score),
                (3, Value::Int(kind)) => piece.kind = Kind::parse(kind)?,
                _ => {}
            }
        }
        if piece.text.is_empty() {
            return Err(Error::file("expected a text, found none"));
        }
        if !piece.score.is_finite() {
            return Err(Error::file(format!("expected a finite score, found {}", piece.score)));
        }
        Ok(piece)
    }
}

impl Kind {
    fn parse(number: u64) -> Result<Self> {
        Ok(match number {
            1 => Kind::Normal,
            2 => Kind::Unknown,
            3 => Kind::Control,
            4 => Kind::UserDefined,
            6 => Kind::Byte,
            5 => return Err(Error::file("expected pieces in use, found an unused one")),
            _ => return Err(Error::file(format!("expected a type from 1 to 6, found {number}"))),
        })
    }
}
