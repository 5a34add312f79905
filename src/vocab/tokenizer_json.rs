//! The supported content of a Hugging Face `tokenizer.json`.
//!
//! The crate `tokenizers` could read such a file itself. But it accepts components that no known model uses, and does not check the indices of a BPE
//! model. It also takes time that grows exponentially with the nesting of components. So the structures here accept only components that are known
//! to be sound. `truncation`, `padding` and `post_processor` are ignored, because they would cut or add tokens of a prompt.

use super::split::{Split, SplitStep};
use super::web::Pairs;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokenizers::normalizers::{Lowercase, NFC, NFD, NFKC, NFKD, NormalizerWrapper};
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::pre_tokenizers::whitespace::{Whitespace, WhitespaceSplit};
use tokenizers::{AddedToken, SplitDelimiterBehavior};

#[derive(Deserialize)]
pub(super) struct TokenizerJson {
    #[serde(default)]
    pub added_tokens: Vec<AddedEntry>,
    pub normalizer: Option<Normalizer>,
    pub pre_tokenizer: Option<PreTokenizer>,
    /// The decoder. Only its presence matters, because the model determines how ids become text.
    pub decoder: Option<IgnoredAny>,
    pub model: TokenizerModel,
}

/// A token that is found in a text before the text is split.
#[derive(Deserialize)]
pub(super) struct AddedEntry {
    pub id: u32,
    #[serde(flatten)]
    pub token: AddedToken,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
pub(super) enum TokenizerModel {
    #[serde(rename = "BPE")]
    Bpe(Bpe),
    WordLevel(WordLevel),
    RwkvTrie(RwkvTrie),
}

#[derive(Deserialize)]
pub(super) struct Bpe {
    pub vocab: Pairs<u32>,
    pub merges: Vec<Merge>,
    pub unk_token: Option<String>,
    pub fuse_unk: Option<bool>,
    pub ignore_merges: Option<bool>,
    // the reader refuses files that use these fields
    pub byte_fallback: Option<bool>,
    pub dropout: Option<f32>,
    pub continuing_subword_prefix: Option<String>,
    pub end_of_word_suffix: Option<String>,
}

/// Two tokens that become one: `"a b"` in older files, `["a", "b"]` in newer files.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Merge {
    Line(String),
    Pair(String, String),
}

#[derive(Deserialize)]
pub(super) struct RwkvTrie {
    pub vocab: Option<Pairs<u32>>,
}

#[derive(Deserialize)]
pub(super) struct WordLevel {
    pub vocab: Pairs<u32>,
    pub unk_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
#[allow(clippy::upper_case_acronyms)] // the names in the file
pub(super) enum Normalizer {
    NFC,
    NFD,
    NFKC,
    NFKD,
    Lowercase,
    Sequence { normalizers: Vec<Normalizer> },
}

impl Normalizer {
    /// Appends the normalizers, with nested sequences flattened.
    pub fn flatten(self, parts: &mut Vec<NormalizerWrapper>) {
        parts.push(match self {
            Normalizer::NFC => NFC.into(),
            Normalizer::NFD => NFD.into(),
            Normalizer::NFKC => NFKC.into(),
            Normalizer::NFKD => NFKD.into(),
            Normalizer::Lowercase => Lowercase.into(),
            Normalizer::Sequence { normalizers } => return normalizers.into_iter().for_each(|n| n.flatten(parts)),
        });
    }
}

#[derive(Deserialize)]
#[serde(tag = "type")]
pub(super) enum PreTokenizer {
    ByteLevel {
        add_prefix_space: bool,
        use_regex: Option<bool>,
    },
    Split {
        pattern: SplitPattern,
        behavior: SplitDelimiterBehavior,
        #[serde(default)]
        invert: bool,
    },
    Digits {
        individual_digits: bool,
    },
    Whitespace,
    WhitespaceSplit,
    Sequence {
        pretokenizers: Vec<PreTokenizer>,
    },
}

impl PreTokenizer {
    /// Appends the steps that split a text, with nested sequences flattened. Fails if a pattern does not compile.
    pub fn flatten(self, parts: &mut Vec<SplitStep>) -> tokenizers::Result<()> {
        parts.push(match self {
            PreTokenizer::ByteLevel { add_prefix_space, use_regex } => {
                parts.extend(SplitStep::byte_level(add_prefix_space, use_regex.unwrap_or(true))?);
                return Ok(());
            }
            PreTokenizer::Split { pattern, behavior, invert } => SplitStep::Pattern(Box::new(Split::new(pattern, behavior, invert)?)),
            PreTokenizer::Digits { individual_digits } => SplitStep::Linear(Digits::new(individual_digits).into()),
            PreTokenizer::Whitespace => SplitStep::Linear(Whitespace {}.into()),
            PreTokenizer::WhitespaceSplit => SplitStep::Linear(WhitespaceSplit.into()),
            PreTokenizer::Sequence { pretokenizers } => return pretokenizers.into_iter().try_for_each(|p| p.flatten(parts)),
        });
        Ok(())
    }
}
