//! Hugging Face `tokenizer.json` vocabularies: byte-level BPE (GPT-NeoX-20B, for the Pile models) and whole words (MIDI).
//!
//! The `tokenizers` crate converts text to ids, but decodes only whole sequences. A stream needs the bytes of each token, even if a token is half a
//! character. So this module converts ids to bytes itself.

#[cfg(test)]
pub(super) mod tests;

use super::merge::Ranks;
use super::split::{SplitStep, SplitSteps};
use super::table::TokenTable;
use super::tokenizer_json::{AddedEntry, Bpe, Merge, TokenizerJson, TokenizerModel, WordLevel};
use super::web::Pairs;
use super::{OwnedLists, Scheme, byte_chars, check_length, no_token, rwkv_trie, utf8_text, written};
use crate::error::{Error, Result, short, with_place};
use std::collections::HashMap;
use std::sync::Arc;
use tokenizers::models::bpe::{BPE, Vocab as IdByText};
use tokenizers::models::wordlevel;
use tokenizers::{DecoderWrapper, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, TokenizerImpl, normalizers};

/// The limit on the bytes of all added tokens together. The automaton that finds the tokens takes about a hundred bytes of memory for each
/// byte of a token. Published files have a few kilobytes.
const MAX_ADDED_BYTES: usize = 1 << 18;

/// The limit on the bytes of a text. The `tokenizers` crate takes 225 bytes of memory for each byte of the text.
const MAX_TEXT_BYTES: usize = 32 << 20;

/// Special tokens that identify a vocabulary: `<|im_start|>` the vocabulary of a model with ChatML, `[gMASK]` the vocabulary of GLM-4.7.
const CHATML: &str = "<|im_start|>";
const GLM: &str = "[gMASK]";

/// The tokenizer of the `tokenizers` crate with `SplitSteps` as its pre-tokenizer.
type Tokenizer = TokenizerImpl<ModelWrapper, NormalizerWrapper, SplitSteps, PostProcessorWrapper, DecoderWrapper>;

pub(super) struct HuggingFace {
    tokenizer: Tokenizer,
    table: TokenTable,
    kind: TokenKind,
    /// The texts and ids of the special tokens. They have no bytes in `table`, except tokens that GLM's file does not call special (`<think>`).
    marks: Vec<(String, u32)>,
    /// True if `encode` finds no special token in a text. Chat models with ChatML and GLM-4.7 have such vocabularies: only their template writes
    /// special tokens.
    keeps_apart: bool,
}

enum TokenKind {
    /// Tokens are bytes. The file has one character per byte, as [`byte_chars`] describes.
    Bytes {
        /// The ids of the tokens "\n" and "\n\n". `None` if one of these tokens is missing, or if the pattern keeps two newlines together.
        newlines: Option<[u32; 2]>,
        /// The bytes that have no token. Empty if the file has an `unk_token`. The `tokenizers` crate would drop bytes without a token silently, so a
        /// text with such a byte is an error.
        absent: Vec<u8>,
    },
    /// Tokens are words. In decoded text, a space comes before each word.
    Words,
}

/// The notation of tokens in a file: one character per byte ([`byte_chars`]), or words without the space before each word.
#[derive(Clone, Copy)]
enum Spelling {
    ByteChars,
    Words,
}

/// Reads a `tokenizer.json` of a supported type.
///
/// # Errors
///
/// Errors of [`Vocab::parse`](super::Vocab::parse).
pub(super) fn parse(json: &[u8]) -> Result<Arc<dyn Scheme>> {
    let file: TokenizerJson = serde_json::from_slice(json).map_err(|e| {
        Error::file(format!("expected a Hugging Face tokenizer (tokenizer.json): {}", with_place(&e)))
            .hint("give the tokenizer.json of the model, or download the file again")
            .caused_by(e)
    })?;
    build(file)
}

/// Creates a vocabulary from the content of a `tokenizer.json`.
///
/// # Errors
///
/// Errors of [`parse`], except for damaged JSON.
pub(super) fn build(mut file: TokenizerJson) -> Result<Arc<dyn Scheme>> {
    let mut parts = Vec::new();
    if let Some(pre_tokenizer) = file.pre_tokenizer {
        pre_tokenizer.flatten(&mut parts).map_err(|e| Error::file(format!("the pre_tokenizer has an unsupported pattern: {e}")))?;
    }
    let splits_bytes = parts.iter().any(SplitStep::spells_bytes);
    let (model, table, mut kind) = match file.model {
        TokenizerModel::RwkvTrie(model) => return Ok(Arc::new(rwkv_trie::parse(model, &file.added_tokens)?)),
        TokenizerModel::Bpe(bpe) if splits_bytes => byte_model(bpe, &file.added_tokens)?,
        TokenizerModel::WordLevel(words) if !splits_bytes && file.decoder.is_none() => word_model(words, &file.added_tokens)?,
        TokenizerModel::Bpe(_) => return Err(Error::file("a BPE tokenizer needs a ByteLevel pre_tokenizer, and the file has none")),
        TokenizerModel::WordLevel(_) => {
            return Err(Error::file("a WordLevel tokenizer with a decoder or a ByteLevel pre_tokenizer is not supported"));
        }
    };

    let mut tokenizer = Tokenizer::new(model);
    tokenizer.with_pre_tokenizer(Some(SplitSteps(parts)));
    if let Some(normalizer) = file.normalizer {
        let mut parts = Vec::new();
        normalizer.flatten(&mut parts);
        let sequence = normalizers::Sequence::new(parts);
        tokenizer.with_normalizer(Some(sequence)).map_err(|e| Error::file(format!("the normalizer is unsupported: {e}")))?;
    }
    // GLM's files do not call tags such as `<think>` special, but only the template may write them.
    let is_glm = file.added_tokens.iter().any(|added| added.token.content == GLM);
    file.added_tokens.iter_mut().for_each(|added| added.token.special |= is_glm);
    let marks: Vec<(String, u32)> =
        file.added_tokens.iter().filter(|added| added.token.special).map(|added| (added.token.content.clone(), added.id)).collect();
    add(&mut tokenizer, file.added_tokens)?;
    let keeps_apart = is_glm || marks.iter().any(|(text, _)| text == CHATML);
    tokenizer.set_encode_special_tokens(keeps_apart);
    // Qwen's pattern keeps two newlines together, also before a letter. GPT-2's pattern splits them.
    if let TokenKind::Bytes { newlines, .. } = &mut kind
        && let Some([_, two]) = *newlines
        && tokenizer.encode_fast("\n\nx", false).is_ok_and(|found| found.get_ids().first() == Some(&two))
    {
        *newlines = None;
    }
    Ok(Arc::new(HuggingFace { tokenizer, table, kind, marks, keeps_apart }))
}

fn byte_model(bpe: Bpe, added: &[AddedEntry]) -> Result<(ModelWrapper, TokenTable, TokenKind)> {
    let has = |text: &Option<String>| text.as_ref().is_some_and(|t| !t.is_empty());
    let odd = [
        ("dropout", bpe.dropout.is_some_and(|p| p != 0.0)),
        ("byte_fallback", bpe.byte_fallback == Some(true)),
        ("continuing_subword_prefix", has(&bpe.continuing_subword_prefix)),
        ("end_of_word_suffix", has(&bpe.end_of_word_suffix)),
    ];
    if let Some((name, _)) = odd.iter().find(|(_, is_on)| *is_on) {
        return Err(Error::file(format!("a BPE tokenizer with the setting {name} is not supported")));
    }
    let table = table(&bpe.vocab, added, Spelling::ByteChars)?;
    let by_text: IdByText = by_text(bpe.vocab)?;
    if let Some(unknown) = bpe.unk_token.as_ref().filter(|t| !by_text.contains_key(t.as_str())) {
        return Err(Error::file(format!("the vocabulary lacks the token {:?}, which unk_token names", short(unknown, 40))));
    }
    let merges = merges(bpe.merges, &by_text)?;

    let id = |text: &str| by_text.get(text).copied();
    let newlines = id("\u{10a}").zip(id("\u{10a}\u{10a}")).map(<[u32; 2]>::from);
    let lacks = |&byte: &u8| id(byte_chars::char(byte).encode_utf8(&mut [0; 4])).is_none();
    let absent = if bpe.unk_token.is_none() { (0..=u8::MAX).filter(lacks).collect() } else { Vec::new() };

    let mut builder = BPE::builder().vocab_and_merges(by_text, merges);
    builder = builder.fuse_unk(bpe.fuse_unk.unwrap_or(false)).ignore_merges(bpe.ignore_merges.unwrap_or(false));
    if let Some(unknown) = bpe.unk_token {
        builder = builder.unk_token(unknown);
    }
    let model = builder.build().map_err(|e| Error::file(format!("the BPE tokenizer is invalid: {e}")))?;
    Ok((model.into(), table, TokenKind::Bytes { newlines, absent }))
}

/// Converts the merges to pairs of tokens. Checks that both tokens and their concatenation are in the vocabulary, because the crate does not check
/// this.
fn merges(list: Vec<Merge>, by_text: &IdByText) -> Result<Vec<(String, String)>> {
    let mut pairs = Vec::with_capacity(list.len());
    for (i, merge) in list.into_iter().enumerate() {
        let (a, b) = match merge {
            Merge::Pair(a, b) => (a, b),
            Merge::Line(line) if i == 0 && line.starts_with("#version") => continue,
            Merge::Line(line) => match line.split_once(' ') {
                Some((a, b)) => (a.into(), b.into()),
                None => return Err(Error::file(format!("expected 2 tokens in entry {i} of merges, found {:?}", short(&line, 40)))),
            },
        };
        if let Some(text) = [&a, &b, &format!("{a}{b}")].into_iter().find(|t| !by_text.contains_key(t.as_str())) {
            return Err(Error::file(format!("entry {i} of merges needs the token {:?}, which the vocabulary lacks", short(text, 40))));
        }
        pairs.push((a, b));
    }
    Ok(pairs)
}

fn word_model(words: WordLevel, added: &[AddedEntry]) -> Result<(ModelWrapper, TokenTable, TokenKind)> {
    let table = table(&words.vocab, added, Spelling::Words)?;
    let mut builder = wordlevel::WordLevel::builder().vocab(by_text(words.vocab)?);
    if let Some(unknown) = words.unk_token {
        builder = builder.unk_token(unknown);
    }
    let model = builder.build().map_err(|e| Error::file(format!("the WordLevel tokenizer is invalid: {e}")))?;
    Ok((model.into(), table, TokenKind::Words))
}

/// Returns the bytes of each id. Special tokens, such as the end of text, have no bytes.
///
/// MIDI's `<pad>`, `<start>` and `<end>` are special, too. To convert a text to MIDI, put `<start>` and `<end>` around the text, as the official
/// script does.
fn table(vocab: &Pairs<u32>, added: &[AddedEntry], spell: Spelling) -> Result<TokenTable> {
    let by_content: HashMap<&str, u32> = added.iter().map(|a| (a.token.content.as_str(), a.id)).collect();
    let mut table = TokenTable::default();
    for (text, id) in &vocab.0 {
        // an added token with the same text and id replaces this entry
        if by_content.get(text.as_str()) != Some(id) {
            let token = match spell {
                Spelling::ByteChars => byte_chars::bytes(text),
                Spelling::Words => format!(" {text}").into_bytes(),
            };
            table.add(*id, &token)?;
        }
    }
    for AddedEntry { id, token } in added {
        // the content of an added token is plain text, not byte characters
        let text = match spell {
            _ if token.special => String::new(),
            Spelling::ByteChars => token.content.clone(),
            Spelling::Words => format!(" {}", token.content),
        };
        table.add(*id, text.as_bytes())?;
    }
    if table.len() == 0 {
        return Err(Error::file("the vocabulary has no tokens"));
    }
    Ok(table)
}

fn by_text(vocab: Pairs<u32>) -> Result<IdByText> {
    let mut map = IdByText::with_capacity(vocab.0.len());
    for (text, id) in vocab.0 {
        if map.contains_key(&text) {
            return Err(Error::file(format!("the token {:?} occurs twice", short(&text, 40))));
        }
        map.insert(text, id);
    }
    Ok(map)
}

/// Adds the file's `added_tokens`. The crate finds these tokens in a text before it splits the text. The crate assigns the ids itself, so this
/// function checks that the ids agree with the file.
fn add(tokenizer: &mut Tokenizer, added: Vec<AddedEntry>) -> Result<()> {
    let n_bytes: usize = added.iter().map(|a| a.token.content.len()).sum();
    if n_bytes > MAX_ADDED_BYTES {
        return Err(Error::file(format!("expected added_tokens of at most {MAX_ADDED_BYTES} bytes in total, found {n_bytes} bytes")));
    }
    let ids: Vec<(u32, String)> = added.iter().map(|a| (a.id, a.token.content.clone())).collect();
    tokenizer.add_tokens(added.into_iter().map(|a| a.token)).map_err(|e| Error::file(format!("the added_tokens are invalid: {e}")))?;
    for (id, content) in ids {
        let given = tokenizer.token_to_id(&content);
        if given != Some(id) {
            let content = short(&content, 40);
            return Err(Error::file(match given {
                Some(given) => format!("expected the next free id {given} for the added token {content:?}, found the id {id}"),
                None => format!("the added token {content:?} with the id {id} cannot be added to the vocabulary"),
            }));
        }
    }
    Ok(())
}

impl Scheme for HuggingFace {
    fn encode(&self, text: &[u8]) -> Result<Vec<u32>> {
        check_length(text, MAX_TEXT_BYTES)?;
        let text = utf8_text(text)?;
        if let TokenKind::Bytes { absent, .. } = &self.kind
            && !absent.is_empty()
            && let Some(offset) = text.bytes().position(|b| absent.contains(&b))
        {
            return Err(no_token(text.as_bytes(), offset));
        }
        let encoding =
            self.tokenizer.encode_fast(text, false).map_err(|e| Error::input(format!("the text cannot be split into tokens: {e}")))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Converts a prompt to ids. Inside a text, the pattern splits "\n\nX", so each "\n" is a token. Only at the very end of a text would "\n\n" be
    /// one token. Models have rarely seen this token before a reply, so it is replaced by two tokens "\n".
    fn encode_prompt(&self, text: &[u8]) -> Result<Vec<u32>> {
        let mut ids = self.encode(text)?;
        if let TokenKind::Bytes { newlines: Some([one, two]), .. } = self.kind
            && ids.last() == Some(&two)
        {
            ids.pop();
            ids.extend([one, one]);
        }
        Ok(ids)
    }

    fn special(&self, text: &str) -> Option<u32> {
        self.specials().into_iter().find(|(special, _)| *special == text).map(|(_, id)| id)
    }

    fn specials(&self) -> Vec<(&str, u32)> {
        if self.keeps_apart { self.marks() } else { Vec::new() }
    }

    fn marks(&self) -> Vec<(&str, u32)> {
        self.marks.iter().map(|(text, id)| (text.as_ref(), *id)).collect()
    }

    /// Joins the bytes of the tokens. If the tokens are words, removes the space before the first word.
    fn decode(&self, ids: &[u32]) -> Vec<u8> {
        let mut bytes = self.table.decode(ids);
        if matches!(self.kind, TokenKind::Words) && bytes.first() == Some(&b' ') {
            bytes.remove(0);
        }
        bytes
    }

    /// Returns the lists of GLM-4.7's vocabulary, whose ids are the ranks of the merges, as in GLM-4. Returns `None` for other vocabularies.
    fn lists(&self) -> Option<OwnedLists> {
        let ModelWrapper::BPE(model) = self.tokenizer.get_model() else { return None };
        let specials = self.marks();
        if !specials.iter().any(|(text, _)| *text == GLM) {
            return None;
        }
        let mut ranks = Ranks::default();
        for id in (0..=self.table.max_id()).filter(|id| !specials.iter().any(|(_, special)| special == id)) {
            let token = self.table.token(id);
            if !token.is_empty() {
                ranks.insert(token, id, id);
            }
        }
        Some(written::glm(&self.table, &ranks, &specials, model.ignore_merges))
    }

    fn table(&self) -> &TokenTable {
        &self.table
    }
}
