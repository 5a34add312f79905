//! Vocabularies: token ids to bytes and back, and the two filters that streamed text passes through.
//!
//! A vocabulary is a table; a token is bytes, not text, and may be half a character. Must not know models, prompts, special
//! tokens or sampling: which id ends a text is the model family's business.

mod literal;
mod rwkv;
mod stop;
#[cfg(test)]
mod tests;
mod trie;
mod utf8;

pub use stop::StopTexts;
pub use utf8::Utf8Stream;

use crate::error::{Error, Result};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// The largest vocabulary file that is read. The World vocabulary is 1.2 MB; the bound keeps a device file or a wrong path
/// from filling the memory.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// What every kind of vocabulary can do. One kind, one file.
trait Scheme: Send + Sync {
    /// Splits `text` into ids.
    fn encode(&self, text: &[u8]) -> Result<Vec<u32>>;
    /// The bytes of an id, empty where it is unassigned.
    fn token(&self, id: u32) -> &[u8];
    /// The largest assigned id.
    fn max_id(&self) -> u32;
    /// How many ids are assigned.
    fn len(&self) -> usize;
}

/// A vocabulary: ids to bytes and back. `Send + Sync`; a clone shares the tables.
#[derive(Clone)]
pub struct Vocab {
    scheme: Arc<dyn Scheme>,
}

impl Vocab {
    /// Reads a vocabulary file: the RWKV text format, a line `ID 'TEXT' LENGTH` a token.
    ///
    /// # Errors
    /// `File` when the file cannot be read, is larger than 16 MiB, or [`parse`](Self::parse) refuses it.
    pub fn open(path: &Path) -> Result<Vocab> {
        let mut text = Vec::new();
        let file = File::open(path).map_err(|e| Error::io(e, path))?;
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text).map_err(|e| Error::io(e, path))?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(Error::file(format!("expected a vocabulary of at most {MAX_FILE_BYTES} bytes, found more")).at(path.display()));
        }
        Self::parse(&text).map_err(|e| e.at(path.display()))
    }

    /// Opens a file; where there is none of that name, `world` and `tiny` mean the built-in ones.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn find(path: &Path) -> Result<Vocab> {
        #[cfg(feature = "embedded-model")]
        match path.to_str() {
            Some("world") if !path.exists() => return Ok(Self::world()),
            Some("tiny") if !path.exists() => return Ok(Self::tiny()),
            _ => {}
        }
        Self::open(path)
    }

    /// Reads a vocabulary from the text of such a file. Lines end in `\n` or `\r\n`, the last one may lack it.
    ///
    /// # Errors
    /// `File`, naming the line and what was expected: a bad literal, a wrong length, an id given twice or absurdly large.
    pub fn parse(text: &[u8]) -> Result<Vocab> {
        Ok(Vocab { scheme: Arc::new(rwkv::Rwkv::parse(text)?) })
    }

    /// The World vocabulary of the official models: 65 529 tokens, ids from 1. Parsed at the first call, then shared.
    #[cfg(feature = "embedded-model")]
    pub fn world() -> Vocab {
        static WORLD: std::sync::OnceLock<Vocab> = std::sync::OnceLock::new();
        embedded(&WORLD, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/vocab/rwkv_vocab_v20230424.txt")))
    }

    /// The vocabulary of the embedded tiny model: 2047 tokens, ids from 1.
    #[cfg(feature = "embedded-model")]
    pub fn tiny() -> Vocab {
        static TINY: std::sync::OnceLock<Vocab> = std::sync::OnceLock::new();
        embedded(&TINY, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/vocab/tiny.txt")))
    }

    /// Splits bytes into ids. An RWKV vocabulary takes the longest token that matches, from left to right; nothing is
    /// normalised, no special token is looked for, none is added.
    ///
    /// # Errors
    /// `Input`, naming byte and offset, where no token begins with the next byte. Never with the World vocabulary, which has
    /// all 256.
    pub fn encode(&self, text: &[u8]) -> Result<Vec<u32>> {
        self.scheme.encode(text)
    }

    /// The bytes of one id; empty for the end of text (0, unless the file assigns it) and for every other unassigned id.
    pub fn token(&self, id: u32) -> &[u8] {
        self.scheme.token(id)
    }

    /// The bytes of many ids, one after the other. They need not be UTF-8: see [`Utf8Stream`].
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        for &id in ids {
            bytes.extend_from_slice(self.scheme.token(id));
        }
        bytes
    }

    /// The largest assigned id.
    pub fn max_id(&self) -> u32 {
        self.scheme.max_id()
    }

    /// How many ids are assigned.
    pub fn len(&self) -> usize {
        self.scheme.len()
    }

    /// Whether no id is assigned. No file gives such a vocabulary.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(feature = "embedded-model")]
fn embedded(cell: &std::sync::OnceLock<Vocab>, text: &[u8]) -> Vocab {
    cell.get_or_init(|| Vocab::parse(text).expect("an embedded vocabulary parses; a test holds it")).clone()
}

impl fmt::Debug for Vocab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vocab").field("len", &self.len()).field("max_id", &self.max_id()).finish()
    }
}
