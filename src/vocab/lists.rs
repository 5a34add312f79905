//! Vocabularies from lists of tokens, types and merges, as GGUF files have them.
//!
//! The supported kinds are `rwkv` (greedy longest match), `gpt2` (byte-level BPE) with the splitting rules of GPT-NeoX, GLM and Qwen2, and `llama`
//! (SentencePiece). The lists are plain slices, because `vocab` must not import `weights`, which reads GGUF files.

#[cfg(test)]
mod tests;

use super::glm4::Glm4Vocab;
use super::huggingface;
use super::rwkv::Rwkv;
use super::sentence_piece::{self, SentencePiece, Spaces};
use super::table::TokenTable;
use super::tokenizer_json::{AddedEntry, Bpe, Merge, Normalizer, PreTokenizer, TokenizerJson, TokenizerModel};
use super::web::Pairs;
use super::written::{CONTROL, GLM, NORMAL, USER_DEFINED};
use super::{Vocab, byte_chars};
use crate::error::{Error, Result, short};
use std::sync::Arc;
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::{AddedToken, SplitDelimiterBehavior};

/// A vocabulary as lists. `tokens` and `types` have the same length.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lists<'a> {
    /// The kind of the vocabulary: `rwkv`, `gpt2` or `llama`.
    pub model: &'a str,
    /// The name of the rule that splits text before merges, such as `glm4`. `None` if there is no such rule.
    pub pre: Option<&'a str>,
    /// The tokens in the notation of the kind. The index is the token's id.
    pub tokens: &'a [&'a str],
    /// The types of the tokens in GGUF's numbers: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub types: &'a [i32],
    /// The merges in order, each as two tokens with a space between them. Empty for kinds other than `gpt2`.
    pub merges: &'a [&'a str],
    /// The scores of the tokens, for the kind `llama`. Encoding first joins the two adjacent parts of a text that together form the token of highest
    /// score.
    pub scores: &'a [f32],
    /// True if encoding puts a space before a text, for the kind `llama`. `None` means true.
    pub adds_space: Option<bool>,
    /// Only for the kind `llama`: true if encoding removes spaces at both ends of a text and replaces each run of spaces by one space. `None` means
    /// false.
    pub removes_spaces: Option<bool>,
}

/// Splitting rules with GPT-2's pattern, and whether text is normalised (NFC) first. `mpt` and `olmo` are models that share GPT-NeoX-20B's
/// vocabulary.
const GPT2: [(&str, bool); 4] = [("gpt-2", false), ("gpt-neox", true), ("mpt", true), ("olmo", true)];
/// Splitting rules with Qwen2's pattern. The second is the name in models that were made from Qwen2 and DeepSeek-R1.
const QWEN2: [&str; 2] = ["qwen2", "deepseek-r1-qwen"];
/// Qwen2's pattern, from its `tokenizer.json`.
const QWEN2_PATTERN: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

impl Vocab {
    /// Creates a vocabulary from lists. [`encode`](Self::encode) finds every normal token in text. It finds user-defined tokens with `llama` and
    /// with the patterns of GPT-2 and Qwen2. It finds control tokens only with these two patterns, and not if ChatML's `<|im_start|>` is a control
    /// token.
    ///
    /// # Errors
    /// `File` if the kind or the splitting rule is unknown, or if a token is damaged or too long. Also `File` if a merge needs a missing token.
    pub(crate) fn from_lists(lists: &Lists) -> Result<Vocab> {
        let unknown = |what: &str, found: &str, known: &str| {
            let e = Error::file(format!("unsupported {what} {:?}, expected {known}", short(found, 40)));
            e.hint("name the model's vocabulary file with `vocab`")
        };
        match (lists.model, lists.pre.unwrap_or_default()) {
            ("rwkv", _) => Ok(Vocab { scheme: Arc::new(rwkv(lists)?) }),
            ("gpt2", pre) if GLM.contains(&pre) => Ok(Vocab { scheme: Arc::new(glm(lists)?) }),
            ("gpt2", pre) if QWEN2.contains(&pre) => {
                let pattern = SplitPattern::Regex(QWEN2_PATTERN.into());
                let split = PreTokenizer::Split { pattern, behavior: SplitDelimiterBehavior::Isolated, invert: false };
                let bytes = PreTokenizer::ByteLevel { add_prefix_space: false, use_regex: Some(false) };
                let splits = PreTokenizer::Sequence { pretokenizers: vec![split, bytes] };
                Ok(Vocab { scheme: huggingface::build(byte_bpe(lists, true, splits))? })
            }
            ("gpt2", pre) => match GPT2.iter().find(|(name, _)| *name == pre) {
                Some((_, normalised)) => Ok(Vocab {
                    scheme: huggingface::build(byte_bpe(
                        lists,
                        *normalised,
                        PreTokenizer::ByteLevel { add_prefix_space: false, use_regex: Some(true) },
                    ))?,
                }),
                None => {
                    let known: Vec<&str> = GLM.into_iter().chain(GPT2.map(|(name, _)| name)).chain(QWEN2).collect();
                    Err(unknown("splitting rule (tokenizer.ggml.pre)", pre, &known.join(", ")))
                }
            },
            ("llama", _) => Ok(Vocab { scheme: Arc::new(llama(lists)?) }),
            (other, _) => Err(unknown("kind of vocabulary (tokenizer.ggml.model)", other, "rwkv, gpt2 or llama")),
        }
    }

    /// Returns the smallest id whose bytes differ between the two vocabularies, or `None` if all ids have the same bytes.
    pub fn first_difference(&self, other: &Vocab) -> Option<u32> {
        (0..=self.max_id().max(other.max_id())).find(|&id| self.token(id) != other.token(id))
    }
}

impl<'a> Lists<'a> {
    /// Returns the tokens of one type with their ids.
    fn of_type(&self, wanted: i32) -> impl Iterator<Item = (u32, &'a str)> {
        (0..).zip(self.tokens.iter().zip(self.types)).filter(move |(_, (_, kind))| **kind == wanted).map(|(id, (text, _))| (id, *text))
    }

    /// Returns the normal tokens of a byte-level BPE with their ids. Fails if a token is empty, or not written with one character per byte as in
    /// GPT-2's files.
    fn spelt(&self) -> Result<Vec<(u32, Vec<u8>)>> {
        let bytes = |(id, text): (u32, &str)| {
            let token = byte_chars::spelt(text).filter(|token| !token.is_empty());
            let found = || Error::file(format!("expected token {id} spelt with GPT-2's characters for bytes, found {:?}", short(text, 40)));
            Ok((id, token.ok_or_else(found)?))
        };
        self.of_type(NORMAL).map(bytes).collect()
    }
}

fn rwkv(lists: &Lists) -> Result<Rwkv> {
    let mut table = TokenTable::default();
    let mut entries = Vec::new();
    for (id, text) in lists.of_type(NORMAL) {
        let token = unescape(text)
            .filter(|token| !token.is_empty())
            .ok_or_else(|| Error::file(format!("token {id} is empty or has an invalid escape, found {:?}", short(text, 40))))?;
        entries.push(table.add(id, &token)?);
    }
    if entries.is_empty() {
        return Err(Error::file("the vocabulary has no normal tokens"));
    }
    Ok(Rwkv::new(table, &entries))
}

/// Returns the bytes of a token in the notation of llama.cpp, with the escapes `\t`, `\n`, `\r` and `\xHH`. Any other character after a backslash is
/// kept, without the backslash. Returns `None` if an escape is incomplete or `HH` is not hexadecimal.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut token = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let plain = match byte {
            b'\\' => match bytes.next()? {
                b't' => b'\t',
                b'n' => b'\n',
                b'r' => b'\r',
                b'x' => {
                    let mut digit = || char::from(bytes.next()?).to_digit(16);
                    (digit()? << 4 | digit()?) as u8
                }
                other => other,
            },
            other => other,
        };
        token.push(plain);
    }
    Some(token)
}

/// Creates GLM's vocabulary. The list of merges is not read: the ids are the ranks, and the ranks determine the merges.
fn glm(lists: &Lists) -> Result<Glm4Vocab> {
    let special = lists.of_type(CONTROL).map(|(id, text)| (id, text, false));
    let shown = lists.of_type(USER_DEFINED).map(|(id, text)| (id, text, true));
    Glm4Vocab::from_tokens(&lists.spelt()?, special.chain(shown))
}

/// Creates a SentencePiece vocabulary, such as ChatGLM3's.
fn llama(lists: &Lists) -> Result<SentencePiece> {
    let spaces = Spaces { add_dummy_prefix: lists.adds_space.unwrap_or(true), remove_extra: lists.removes_spaces.unwrap_or(false) };
    let Lists { tokens, types, scores, .. } = *lists;
    SentencePiece::from_lists(&sentence_piece::Lists { tokens, types, scores, spaces })
}

/// Returns the lists as the content of a `tokenizer.json` with byte-level BPE. If `normalised` is true, text is normalised (NFC) before it is split.
fn byte_bpe(lists: &Lists, normalised: bool, pre_tokenizer: PreTokenizer) -> TokenizerJson {
    let added = |(id, text): (u32, &str), special: bool| AddedEntry { id, token: AddedToken::from(text, special) };
    let mut added_tokens: Vec<AddedEntry> = lists.of_type(CONTROL).map(|token| added(token, true)).collect();
    added_tokens.extend(lists.of_type(USER_DEFINED).map(|token| added(token, false)));
    let kinds = [NORMAL, CONTROL, USER_DEFINED];
    let vocab = kinds.iter().flat_map(|kind| lists.of_type(*kind)).map(|(id, text)| (text.to_string(), id)).collect();
    let bpe = Bpe {
        vocab: Pairs(vocab),
        merges: lists.merges.iter().map(|merge| Merge::Line(merge.to_string())).collect(),
        unk_token: None,
        fuse_unk: None,
        ignore_merges: None,
        byte_fallback: None,
        dropout: None,
        continuing_subword_prefix: None,
        end_of_word_suffix: None,
    };
    TokenizerJson {
        added_tokens,
        normalizer: normalised.then_some(Normalizer::NFC),
        pre_tokenizer: Some(pre_tokenizer),
        decoder: None,
        model: TokenizerModel::Bpe(bpe),
    }
}
