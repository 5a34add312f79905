//! Vocabularies: token ids to bytes and back, and the two filters that streamed text passes through.
//!
//! A vocabulary is a table; a token is bytes, not text, and may be half a character. Must not know models beyond the number
//! of their embeddings, nor sampling: which id ends a text is the model family's business.

mod byte_chars;
mod choose;
mod glm4;
mod huggingface;
mod literal;
mod merge;
mod protobuf;
mod rwkv;
mod sentence_piece;
mod split;
mod stop;
mod table;
#[cfg(test)]
mod tests;
mod tokenizer_json;
mod trie;
mod utf8;
mod web;

/// Vocabularies of GLM-4's kind for the tests of other modules.
#[cfg(test)]
pub(crate) mod testing {
    use super::{Vocab, glm4::tests};

    /// All bytes and `merges`, then the special tokens.
    pub fn small_glm4(merges: &[&[u8]]) -> Vocab {
        tests::of(merges)
    }

    /// As large as the real one, so that special tokens have their real ids.
    pub fn full_glm4() -> Vocab {
        Vocab::parse(tests::full_file().as_bytes()).expect("a made-up file parses")
    }

    /// Small files of some kinds, by name. The last one is too short for a vocabulary of GLM-4.
    #[cfg(feature = "cli")]
    pub fn files() -> [(&'static str, Vec<u8>); 3] {
        use super::huggingface::tests::{WORDS, small_bpe};
        [
            ("bpe.json", small_bpe().to_string().into_bytes()),
            ("words.json", WORDS.into()),
            ("glm4.model", tests::lines(&tests::MERGES).concat().into_bytes()),
        ]
    }
}

pub use choose::{Choice, choose};
pub use glm4::SPECIAL as GLM4_SPECIAL;
pub(crate) use literal::unescape_text;
pub use stop::StopTexts;
pub use utf8::Utf8Stream;

use crate::error::{Error, Result, size};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use table::Table;

/// The largest vocabulary file that is read. The World vocabulary is 1.2 MB; the bound keeps a device file or a wrong path
/// from filling the memory.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The same for GLM-4's `tokenizer.json`: 20 MB, most of it merges that are skipped.
const MAX_JSON_BYTES: u64 = 32 << 20;

/// What every kind of vocabulary can do. One kind, one file.
trait Scheme: Send + Sync {
    /// Splits `text` into ids.
    fn encode(&self, text: &[u8]) -> Result<Vec<u32>>;
    /// Splits text that a model is to continue.
    fn encode_prompt(&self, text: &[u8]) -> Result<Vec<u32>> {
        self.encode(text)
    }
    /// What stands before every text.
    fn start(&self) -> Vec<u32> {
        Vec::new()
    }
    /// The bytes of ids that make a whole text.
    fn decode(&self, ids: &[u32]) -> Vec<u8> {
        self.table().decode(ids)
    }
    /// The id of a special token that no text encodes to.
    fn special(&self, _text: &str) -> Option<u32> {
        None
    }
    /// The bytes of each id.
    fn table(&self) -> &Table;
}

/// A vocabulary: ids to bytes and back. `Send + Sync`; a clone shares the tables.
#[derive(Clone)]
pub struct Vocab {
    scheme: Arc<dyn Scheme>,
}

impl Vocab {
    /// Reads a vocabulary file. What it holds says what it is: the RWKV text format, a line `ID 'TEXT' LENGTH` a token; the
    /// same as JSON, `{"ID": "TEXT" or [BYTES], …}`; a Hugging Face `tokenizer.json`, byte-level BPE or whole words; GLM-4's
    /// `tokenizer.model`, a line `BASE64 RANK` a token, or its `tokenizer.json`; or a SentencePiece model of type BPE, as
    /// ChatGLM3's `tokenizer.model` is.
    ///
    /// # Errors
    /// `File` when the file cannot be read or [`parse`](Self::parse) refuses it.
    pub fn open(path: &Path) -> Result<Vocab> {
        if path.is_dir() {
            let e = Error::file("expected a vocabulary file, found a folder").at(path.display());
            return Err(e.hint("give the file, such as tokenizer.json in it"));
        }
        let mut text = Vec::new();
        let file = File::open(path).map_err(|e| Error::io(e, path))?;
        file.take(MAX_JSON_BYTES + 1).read_to_end(&mut text).map_err(|e| Error::io(e, path))?;
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
    /// `File`, naming the line and what was expected: a bad literal, a wrong length, an id given twice or absurdly large; of a
    /// `tokenizer.json`, a model or a part that no RWKV model uses; of GLM-4's files, bad base64, a rank or token given twice or
    /// missing, or another way to split text; of a SentencePiece model, a damaged field, another type than BPE, or a
    /// normalization of text. So is any file of more than 16 MiB, or 32 for GLM-4's `tokenizer.json`.
    pub fn parse(text: &[u8]) -> Result<Vocab> {
        let limit = |max: u64| if text.len() as u64 > max { Err(too_large(max)) } else { Ok(()) };
        limit(MAX_JSON_BYTES)?;
        let is_sentence_piece = sentence_piece::is_sentence_piece(text);
        let json = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii();
        let json = (json.first() == Some(&b'{') && !is_sentence_piece).then_some(json);
        if let Some(json) = json.filter(|json| !web::is_web(json))
            && let Some(glm4) = glm4::Glm4::parse_json(json)?
        {
            return Ok(Vocab { scheme: Arc::new(glm4) });
        }
        limit(MAX_FILE_BYTES)?;
        let scheme: Arc<dyn Scheme> = match json {
            Some(json) if web::is_web(json) => Arc::new(web::parse(json)?),
            Some(json) => Arc::new(huggingface::HuggingFace::parse(json)?),
            None if is_sentence_piece => Arc::new(sentence_piece::SentencePiece::parse(text)?),
            None if glm4::is_lines(text) => Arc::new(glm4::Glm4::parse(text)?),
            None => Arc::new(rwkv::Rwkv::parse(text)?),
        };
        Ok(Vocab { scheme })
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
    /// normalised, no special token is looked for, none is added. A Hugging Face tokenizer does what its file says, which
    /// includes finding special tokens in the text (`<|endoftext|>` becomes id 0); none is added here either. With the files of
    /// GLM-4 and ChatGLM3 special tokens are never found in the text: [`special`](Self::special) gives their ids. A SentencePiece
    /// model puts a space before each text that it is given, unless it says otherwise.
    ///
    /// # Errors
    /// `Input`, naming byte and offset, where no token begins with the next byte. Never with the World vocabulary, which has
    /// all 256. A Hugging Face tokenizer, GLM-4's and SentencePiece take UTF-8 only. A Hugging Face tokenizer takes at most 32 MiB of text,
    /// SentencePiece 128 MiB. `File` where a hostile vocabulary makes the work endless.
    pub fn encode(&self, text: &[u8]) -> Result<Vec<u32>> {
        self.scheme.encode(text)
    }

    /// Splits a prompt, a text that a model is to continue. As [`encode`](Self::encode), but with GLM-4's files `[gMASK]` and
    /// `<sop>` come first, with ChatGLM3's `[gMASK]` and `sop`, as the official tokenizers put them before every text. And with a
    /// byte-level Hugging Face tokenizer two newlines at the very end stay two tokens, as they are everywhere else in a text:
    /// its single token for both occurs only where a text ends, so the 20B models have hardly met it, and go on badly from it.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_prompt(&self, text: &[u8]) -> Result<Vec<u32>> {
        let ids = self.scheme.encode_prompt(text)?;
        Ok(self.scheme.start().into_iter().chain(ids).collect())
    }

    /// The same for more of a text that has begun: without what stands before every text.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_further(&self, text: &[u8]) -> Result<Vec<u32>> {
        self.scheme.encode_prompt(text)
    }

    /// The id of a special token by its text, for templates: `<|user|>` is 151336 with GLM-4's files, 64795 with ChatGLM3's, where
    /// the end of a text, `</s>`, has one too. `None` for any other text, and with every vocabulary that has no such tokens or
    /// finds them in text by itself.
    pub fn special(&self, text: &str) -> Option<u32> {
        self.scheme.special(text)
    }

    /// The bytes of one id; empty for the end of text (0, unless the file assigns it), for special tokens and for every
    /// unassigned id. Words of a vocabulary of words begin with a space, and so do SentencePiece's words.
    pub fn token(&self, id: u32) -> &[u8] {
        self.scheme.table().token(id)
    }

    /// The bytes of many ids, one after the other. They need not be UTF-8: see [`Utf8Stream`]. Of a vocabulary of words the
    /// first word comes without its space, as does the first piece of a SentencePiece model that puts one there.
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        self.scheme.decode(ids)
    }

    /// The largest assigned id.
    pub fn max_id(&self) -> u32 {
        self.scheme.table().max_id()
    }

    /// How many ids are assigned.
    pub fn len(&self) -> usize {
        self.scheme.table().len()
    }

    /// Whether no id is assigned. No file gives such a vocabulary.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn too_large(max: u64) -> Error {
    Error::file(format!("expected a vocabulary of at most {max} bytes, found more"))
}

/// Refuses a text that takes too much memory to split.
fn check_length(text: &[u8], most: usize) -> Result<()> {
    if text.len() <= most {
        return Ok(());
    }
    let message = format!("this vocabulary splits texts of at most {}, found {}", size(most as u64), size(text.len() as u64));
    Err(Error::input(message).hint("cut the text into parts"))
}

/// The text cannot be split: no token begins with the byte at `offset`.
fn no_token(text: &[u8], offset: usize) -> Error {
    Error::input(format!("no token of the vocabulary matches the text at offset {offset}, byte 0x{:02x}", text[offset]))
}

/// The text of a vocabulary that is defined on characters, not on bytes.
fn utf8_text(text: &[u8]) -> Result<&str> {
    std::str::from_utf8(text).map_err(|e| {
        let offset = e.valid_up_to();
        let found = format!("byte 0x{:02x} at offset {offset}", text[offset]);
        Error::input(format!("this vocabulary takes UTF-8 text, found {found}")).caused_by(e)
    })
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
