//! Vocabularies convert text to token ids and back. Two filters for generated text are here, too: a UTF-8 decoder and the search for stop
//! texts.
//!
//! A token is a sequence of bytes, which may begin or end within a character. Sampling is in another module. Of a model, only the number of
//! embeddings is needed here. The model's family determines which id ends a text.

mod byte_chars;
pub(crate) mod choose;
mod glm4;
mod huggingface;
mod lists;
pub(crate) mod literal;
mod marks;
mod merge;
mod protobuf;
mod rwkv;
mod rwkv_trie;
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
mod written;

/// Vocabularies for the tests of other modules.
#[cfg(test)]
pub(crate) mod testing {
    use super::{Vocab, glm4::tests};

    /// Returns a small GLM-4 vocabulary: all single bytes, then `merges`, then the special tokens.
    pub fn small_glm4(merges: &[&[u8]]) -> Vocab {
        tests::of(merges)
    }

    /// Returns a vocabulary like [`small_glm4`], with further special tokens that decoded text shows.
    pub fn newer_glm4(merges: &[&[u8]], more: &[&str]) -> Vocab {
        tests::with_more(merges, more)
    }

    /// Returns a GLM-4 vocabulary with the published number of tokens, so that special tokens have their published ids.
    pub fn full_glm4() -> Vocab {
        Vocab::parse(tests::full_file().as_bytes()).expect("a made-up file parses")
    }

    /// Returns the names and contents of small vocabulary files. `Vocab::parse` refuses the last file, because it has fewer tokens than GLM-4.
    pub fn files() -> [(&'static str, Vec<u8>); 3] {
        use super::huggingface::tests::{WORDS, small_bpe};
        [
            ("bpe.json", small_bpe().to_string().into_bytes()),
            ("words.json", WORDS.into()),
            ("glm4.model", tests::lines(&tests::MERGES).concat().into_bytes()),
        ]
    }
}

pub(crate) use choose::{Choice, choose, own};
pub use glm4::SPECIAL as GLM4_SPECIAL;
pub(crate) use lists::Lists;
pub(crate) use literal::unescape_text;
pub use stop::StopTexts;
pub use utf8::Utf8Stream;
pub(crate) use written::OwnedLists;

use crate::error::{Error, Kind, Result, size};
use crate::files;
use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use table::TokenTable;

/// The name of the World vocabulary's published file.
#[cfg(feature = "embedded-model")]
const WORLD_FILE: &str = "rwkv_vocab_v20230424.txt";
/// The largest id of the World vocabulary.
#[cfg(feature = "embedded-model")]
const WORLD_MAX_ID: u32 = 65529;

/// The maximum size of a vocabulary file in bytes, except a `tokenizer.json`. The World vocabulary has 1.2 MB. The limit protects the memory if
/// the path is wrong, for example an endless device file.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The maximum size of a `tokenizer.json` in bytes. The published file of GLM-4 has 20 MB, mostly merges. GLM-4.7's has more tokens.
const MAX_JSON_BYTES: u64 = 32 << 20;

/// A kind of vocabulary, which determines how text becomes ids.
trait Scheme: Send + Sync {
    /// Converts `text` to ids.
    fn encode(&self, text: &[u8]) -> Result<Vec<u32>>;
    /// Converts a prompt to ids, without the ids that `start` returns.
    fn encode_prompt(&self, text: &[u8]) -> Result<Vec<u32>> {
        self.encode(text)
    }
    /// Returns the ids that come before every prompt.
    fn start(&self) -> Vec<u32> {
        Vec::new()
    }
    /// Returns the joined bytes of the tokens of a whole text.
    fn decode(&self, ids: &[u32]) -> Vec<u8> {
        self.table().decode(ids)
    }
    /// Returns the id of the special token `text`. Returns `None` if no special token has this text, or if `encode` itself finds special
    /// tokens in text.
    fn special(&self, _text: &str) -> Option<u32> {
        None
    }
    /// Returns the texts and ids of the special tokens that [`special`](Self::special) finds.
    fn specials(&self) -> Vec<(&str, u32)> {
        Vec::new()
    }
    /// Returns the texts and ids of all special tokens, also of the tokens that `encode` itself finds in text.
    fn marks(&self) -> Vec<(&str, u32)> {
        self.specials()
    }
    /// Returns true if `encode` always takes the longest token that matches the next bytes.
    fn is_greedy(&self) -> bool {
        false
    }
    /// Returns the vocabulary as the lists of a GGUF file. Returns `None` for a kind of vocabulary that this library cannot write.
    fn lists(&self) -> Option<OwnedLists> {
        None
    }
    /// Returns the table with the bytes of each id.
    fn table(&self) -> &TokenTable;
}

/// A vocabulary: converts text to token ids and back. Threads can share a vocabulary. Clones share its tables.
///
/// ```
/// # fn main() -> wingbeat::error::Result<()> {
/// # #[cfg(feature = "embedded-model")] {
/// use wingbeat::vocab::Vocab;
///
/// let vocab = Vocab::world();
/// let ids = vocab.encode("Hello, world!".as_bytes())?;
/// assert_eq!(ids, [33155, 45, 40213, 34]);
/// assert_eq!(vocab.decode(&ids), b"Hello, world!");
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Vocab {
    scheme: Arc<dyn Scheme>,
}

impl Vocab {
    /// Reads a vocabulary file. The content determines the format:
    ///
    /// * the RWKV text format: one line `ID 'TEXT' LENGTH` per token;
    /// * the RWKV format as JSON: `{"ID": "TEXT" or [BYTES], …}`;
    /// * a Hugging Face `tokenizer.json`: byte-level BPE, whole words, or RWKV's greedy match (`RwkvTrie`);
    /// * GLM-4's `tokenizer.model`, with one line `BASE64 RANK` per token, or the `tokenizer.json` of GLM-4 or GLM-Edge;
    /// * a SentencePiece model of type BPE, such as ChatGLM3's `tokenizer.model`.
    ///
    /// # Errors
    /// `File` if the file cannot be read or [`parse`](Self::parse) refuses it.
    pub fn open(path: &Path) -> Result<Vocab> {
        if files::is_folder(path) {
            let e = Error::file("expected a vocabulary file, found a folder").at(path.display());
            return Err(e.hint("name a file in that folder, such as tokenizer.json"));
        }
        let mut text = Vec::new();
        let file = files::open(path).map_err(|e| Error::io(e, path))?;
        file.take(MAX_JSON_BYTES + 1).read_to_end(&mut text).map_err(|e| Error::io(e, path))?;
        let parsed = Self::parse(&text).map_err(|e| e.at(path.display()));
        parsed.map_err(
            |e| if e.kind == Kind::File { e.hint("download the vocabulary file again, or name another vocabulary file") } else { e },
        )
    }

    /// Opens a vocabulary file. The names `world`, `small-world` and `tiny` select embedded vocabularies, unless a file with this name exists. Also
    /// returns the embedded World vocabulary if `path` names World's published file and this file is missing.
    ///
    /// # Errors
    /// Errors of [`open`](Self::open).
    pub fn find(path: &Path) -> Result<Vocab> {
        Self::find_noting(path).map(|(vocab, _)| vocab)
    }

    /// Opens a vocabulary as [`find`](Self::find) does. Also returns a note for the user if `path` is a file of the World vocabulary: World is built
    /// in and needs no file.
    ///
    /// # Errors
    /// Errors of [`open`](Self::open).
    pub fn find_noting(path: &Path) -> Result<(Vocab, Option<String>)> {
        #[cfg(feature = "embedded-model")]
        match path.to_str() {
            Some("world") if !path.exists() => Ok((Self::world(), None)),
            Some("small-world") if !path.exists() => Ok((Self::small_world(), None)),
            Some("tiny") if !path.exists() => Ok((Self::tiny(), None)),
            _ => {
                let is_world_file = path.file_name().is_some_and(|name| name == WORLD_FILE);
                let is_name = path.components().count() == 1 && !path.exists();
                if is_name && !is_world_file {
                    let e = Error::file("no such file, and no built-in vocabulary has this name").at(path.display());
                    return Err(e.hint("the built-in vocabularies are world, small-world and tiny"));
                }
                let vocab = if is_world_file && !path.exists() { Self::world() } else { Self::open(path)? };
                let is_world = vocab.max_id() == WORLD_MAX_ID && vocab.first_difference(&Self::world()).is_none();
                let note = || format!("{}: the World vocabulary is built in, no file is needed: `vocab=world`", path.display());
                Ok((vocab, is_world.then(note)))
            }
        }
        #[cfg(not(feature = "embedded-model"))]
        Ok((Self::open(path)?, None))
    }

    /// Reads a vocabulary from the content of a file, in one of the formats of [`open`](Self::open). Lines end in `\n` or `\r\n`; the last
    /// line needs no line end.
    ///
    /// # Errors
    /// `File`, with the line or the part of the file, for:
    ///
    /// * RWKV formats: an invalid literal, a wrong length, a duplicate id, an id that is too large;
    /// * `tokenizer.json`: an unsupported model or component;
    /// * GLM-4's files: invalid base64, a duplicate or missing rank or token, another pattern than GLM-4's;
    /// * SentencePiece models: a damaged field, a type other than BPE, text normalization;
    /// * any file above 16 MiB, or 32 MiB for `tokenizer.json`.
    pub fn parse(text: &[u8]) -> Result<Vocab> {
        let limit = |max: u64| if text.len() as u64 > max { Err(too_large(max)) } else { Ok(()) };
        limit(MAX_JSON_BYTES)?;
        let is_sentence_piece = sentence_piece::is_sentence_piece(text);
        let json = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii();
        let json = (json.first() == Some(&b'{') && !is_sentence_piece).then_some(json);
        if let Some(json) = json.filter(|json| !web::is_web(json)) {
            let scheme = match glm4::Glm4Vocab::parse_json(json)? {
                Some(glm4) => Arc::new(glm4),
                None => huggingface::parse(json)?,
            };
            return Ok(Vocab { scheme });
        }
        limit(MAX_FILE_BYTES)?;
        let scheme: Arc<dyn Scheme> = match json {
            Some(json) => Arc::new(web::parse(json)?),
            None if is_sentence_piece => Arc::new(sentence_piece::SentencePiece::parse(text)?),
            None if glm4::is_lines(text) => Arc::new(glm4::Glm4Vocab::parse(text)?),
            None => Arc::new(rwkv::Rwkv::parse(text)?),
        };
        Ok(Vocab { scheme })
    }

    /// Returns the World vocabulary of the official RWKV models: 65 529 tokens, ids from 1. The first call parses the file; all results
    /// share the tables.
    #[cfg(feature = "embedded-model")]
    pub fn world() -> Vocab {
        static WORLD: std::sync::OnceLock<Vocab> = std::sync::OnceLock::new();
        embedded(&WORLD, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/vocab/rwkv_vocab_v20230424.txt")))
    }

    /// Returns the vocabulary of the embedded model: 2047 tokens, ids from 1.
    #[cfg(feature = "embedded-model")]
    pub fn small_world() -> Vocab {
        static SMALL_WORLD: std::sync::OnceLock<Vocab> = std::sync::OnceLock::new();
        embedded(&SMALL_WORLD, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/vocab/small-world.txt")))
    }

    /// Returns the vocabulary of the tiny models that the project trains for its tests: 2047 tokens, ids from 1.
    #[cfg(feature = "embedded-model")]
    pub fn tiny() -> Vocab {
        static TINY: std::sync::OnceLock<Vocab> = std::sync::OnceLock::new();
        embedded(&TINY, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/vocab/tiny.txt")))
    }

    /// Converts text to ids. Adds no special tokens before or after the text.
    ///
    /// * RWKV vocabularies, in every file format, go from left to right and always take the longest token that matches. These vocabularies normalise
    ///   nothing and find no special tokens in text.
    /// * Other Hugging Face tokenizers follow their file and find special tokens in text: with GPT-NeoX-20B's file, `<|endoftext|>` becomes id 0.
    /// * The vocabularies of GLM-4, GLM-4.7, ChatGLM3 and models with ChatML never find special tokens in text; [`special`](Self::special)
    ///   returns their ids.
    /// * SentencePiece models put a space before each text, unless the model turns this off.
    ///
    /// # Errors
    /// `Input`, with byte and offset, if no token matches, or if a vocabulary other than RWKV's gets text that is not UTF-8. `Input` if the text is
    /// longer than 32 MiB (Hugging Face) or 128 MiB (SentencePiece). `File` or `Input` if a hostile vocabulary needs too much work for the text.
    /// With the World vocabulary a token always matches, because all 256 bytes are tokens.
    pub fn encode(&self, text: &[u8]) -> Result<Vec<u32>> {
        self.scheme.encode(text)
    }

    /// Converts a prompt to ids. Differs from [`encode`](Self::encode) in two points:
    ///
    /// * As in the official tokenizers, GLM-4's prompts begin with `[gMASK]` and `<sop>`, ChatGLM3's with `[gMASK]` and `sop`.
    /// * Some byte-level Hugging Face tokenizers split two newlines inside a text. With these, two newlines at the end of the prompt are two tokens,
    ///   too. The vocabulary's single token for two newlines occurs only at the end of texts. Models with the 20B vocabulary have rarely seen this
    ///   token and continue it badly.
    ///
    /// # Errors
    /// Errors of [`encode`](Self::encode).
    pub fn encode_prompt(&self, text: &[u8]) -> Result<Vec<u32>> {
        let ids = self.scheme.encode_prompt(text)?;
        Ok(self.scheme.start().into_iter().chain(ids).collect())
    }

    /// Converts a text that continues a prompt to ids, as [`encode_prompt`](Self::encode_prompt) does, but adds no tokens at the beginning.
    ///
    /// # Errors
    /// Errors of [`encode`](Self::encode).
    pub fn encode_further(&self, text: &[u8]) -> Result<Vec<u32>> {
        self.scheme.encode_prompt(text)
    }

    /// Returns the id of the special token `text`, for chat templates. `<|user|>` is 151336 in GLM-4's files and 64795 in ChatGLM3's.
    ///
    /// Returns `None` if `text` is not a special token. Vocabularies without special tokens always return `None`, and so do vocabularies that find
    /// special tokens in text.
    pub fn special(&self, text: &str) -> Option<u32> {
        self.scheme.special(text)
    }

    /// Returns whether `id` is one of the tokens that begin every prompt.
    pub(crate) fn begins_with(&self, id: u32) -> bool {
        self.scheme.start().contains(&id)
    }

    /// Returns the bytes of one id. Unassigned ids have no bytes. Special tokens have none either, except tokens that decoded text shows, such as
    /// `<think>`. Id 0, which ends the texts of RWKV models, is unassigned in most files. In WordLevel and SentencePiece vocabularies, a token that
    /// begins a word begins with a space.
    pub fn token(&self, id: u32) -> &[u8] {
        self.scheme.table().token(id)
    }

    /// Returns the joined bytes of many ids. The bytes are not always valid UTF-8: see [`Utf8Stream`]. A WordLevel vocabulary removes the space
    /// of the first word. A SentencePiece model removes the space that `encode` puts before a text.
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        self.scheme.decode(ids)
    }

    /// Returns this vocabulary as files for Hugging Face programs: the names and contents of `tokenizer.json` and `tokenizer_config.json`. Only
    /// vocabularies with greedy longest match over bytes, such as RWKV's World vocabulary, have these files; other vocabularies return `None`.
    pub fn hugging_face_files(&self) -> Option<[(String, Vec<u8>); 2]> {
        self.scheme.is_greedy().then(|| rwkv_trie::files(self.scheme.table()))
    }

    /// Returns the largest assigned id.
    pub fn max_id(&self) -> u32 {
        self.scheme.table().max_id()
    }

    /// Returns the number of assigned ids.
    pub fn len(&self) -> usize {
        self.scheme.table().len()
    }

    /// Returns true if no id is assigned. A vocabulary from a file is never empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn too_large(max: u64) -> Error {
    Error::file(format!("expected a vocabulary file of at most {max} bytes, found a larger file"))
}

/// Refuses a text of more than `most` bytes, because its conversion would take too much memory.
fn check_length(text: &[u8], most: usize) -> Result<()> {
    if text.len() <= most {
        return Ok(());
    }
    let message = format!("this vocabulary takes texts of at most {}, found {}", size(most as u64), size(text.len() as u64));
    Err(Error::input(message).hint("split the text into parts"))
}

/// Returns the error for a text in which no token matches at the byte `offset`.
fn no_token(text: &[u8], offset: usize) -> Error {
    Error::input(format!("no token of the vocabulary matches the text at byte {offset}, which is 0x{:02x}", text[offset]))
}

/// Returns the bytes as UTF-8 text, for vocabularies that convert only whole characters. Fails if the bytes are not UTF-8.
fn utf8_text(text: &[u8]) -> Result<&str> {
    std::str::from_utf8(text).map_err(|e| {
        let offset = e.valid_up_to();
        let found = format!("the invalid byte 0x{:02x} at byte {offset}", text[offset]);
        Error::input(format!("this vocabulary takes UTF-8 text only, found {found}")).caused_by(e)
    })
}

#[cfg(feature = "embedded-model")]
fn embedded(cell: &std::sync::OnceLock<Vocab>, text: &[u8]) -> Vocab {
    cell.get_or_init(|| Vocab::parse(text).expect("a test parses the embedded vocabularies")).clone()
}

impl fmt::Debug for Vocab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vocab").field("len", &self.len()).field("max_id", &self.max_id()).finish()
    }
}
