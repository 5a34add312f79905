//! Reads a `tokenizer.json` of GLM-4 or GLM-Edge. The file has each token, written in Hugging Face's byte characters, with its rank. For GLM-4,
//! `tokenizer.model` has the same ranks.
//!
//! The file's 318 000 merges are all ways to cut a token into two tokens, in the order of the ranks. So the ranks determine the merges, and the
//! reader skips them. GLM-4's file must set `ignore_merges`; without this setting, some words would get other ids than in training. GLM-Edge has no
//! `tokenizer.model`, so the value of `ignore_merges` in its `tokenizer.json` is used.

#[cfg(test)]
mod tests;

use super::{FileToken, N_RANKS, N_RANKS_EDGE, SPECIAL, not_glm4, pieces};
use crate::error::{Error, Result, short};
use crate::vocab::byte_chars;
use crate::vocab::web::Pairs;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The fields of the file that determine the ids of a text. The reader skips all other fields, such as `merges`.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<IgnoredAny>,
    pre_tokenizer: Option<PreTokenizerPart>,
    model: BpeModel,
}

#[derive(Deserialize)]
struct BpeModel {
    vocab: Pairs<u32>,
    ignore_merges: Option<bool>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    /// True if decoded text leaves out the token.
    #[serde(default)]
    special: bool,
}

impl AddedToken {
    /// Returns whether this token has the text and the id of GLM-4's special token `SPECIAL[nth]`. The ids of special tokens begin at `n_ranks`.
    fn is(&self, n_ranks: usize, nth: usize) -> bool {
        self.id as usize == n_ranks + nth && SPECIAL.get(nth) == Some(&self.content.as_str())
    }
}

/// The content of a `tokenizer.json`.
pub(super) struct TokenizerFile {
    /// The number of tokens without special tokens.
    pub n_ranks: usize,
    /// The tokens, in the order of the file.
    pub entries: Vec<FileToken>,
    /// The special tokens after GLM-4's own, such as `<think>`: the id, the text, and whether decoded text shows the token.
    pub more_special: Vec<(u32, String, bool)>,
    /// The value of `ignore_merges`: true if a piece of text that is itself a token becomes this token without merges.
    pub keeps_pieces: bool,
}

/// A component of the `pre_tokenizer`, of any type.
#[derive(Deserialize)]
struct PreTokenizerPart {
    r#type: String,
    pretokenizers: Option<Vec<PreTokenizerPart>>,
    pattern: Option<Pattern>,
    behavior: Option<String>,
    invert: Option<bool>,
    add_prefix_space: Option<bool>,
    use_regex: Option<bool>,
}

#[derive(Deserialize)]
struct Pattern {
    #[serde(rename = "Regex")]
    regex: Option<String>,
}

/// Returns the content of the file, or `None` if the file belongs to another family. Refuses a GLM-4 file that splits text differently than in
/// training. `n_ranks` are the possible numbers of tokens without special tokens.
pub(super) fn read(json: &[u8], n_ranks: &[usize]) -> Result<Option<TokenizerFile>> {
    let file: File = match serde_json::from_slice(json) {
        Ok(file) => file,
        Err(_) => return Ok(None),
    };
    // `[gMASK]` is the third special token, so its id shows the number of ranks.
    let Some(&n_ranks) = n_ranks.iter().find(|&&n| file.added_tokens.iter().any(|added| added.is(n, 2))) else { return Ok(None) };

    let is_edge = n_ranks == N_RANKS_EDGE;
    let hint = if is_edge { "download tokenizer.json again" } else { "use GLM-4's tokenizer.model, which has the same ids" };
    let or_model = |e: Error| e.hint(hint);
    let keeps_pieces = file.model.ignore_merges == Some(true);
    if !keeps_pieces && !is_edge {
        return Err(or_model(Error::file("GLM-4's tokenizer must set ignore_merges to true; otherwise words get wrong ids")));
    }
    if file.normalizer.is_some() {
        return Err(or_model(Error::file("GLM-4's tokenizer must not have a normalizer")));
    }
    if !file.pre_tokenizer.is_some_and(|part| part.is_glm4()) {
        return Err(or_model(Error::file("expected a pre_tokenizer with GLM-4's pattern and then ByteLevel, found another pre_tokenizer")));
    }
    if let Some(nth) = (0..SPECIAL.len()).find(|&nth| !file.added_tokens.iter().any(|added| added.is(n_ranks, nth))) {
        let wrong = file.added_tokens.iter().find(|added| added.id as usize == n_ranks + nth);
        let found = wrong.map_or(String::new(), |added| format!(", found {:?} with this id", short(&added.content, 24)));
        return Err(or_model(Error::file(format!("the added token {:?} with id {} is missing{found}", SPECIAL[nth], n_ranks + nth))));
    }
    let mut more_special = Vec::new();
    for added in file.added_tokens {
        if (0..SPECIAL.len()).any(|nth| added.is(n_ranks, nth)) {
            continue;
        }
        let last = n_ranks + SPECIAL.len() - 1;
        if added.id as usize <= last || added.content.is_empty() || SPECIAL.contains(&added.content.as_str()) {
            let (id, content) = (added.id, short(&added.content, 24));
            return Err(or_model(Error::file(format!(
                "expected further added_tokens to have a new text and an id above {last}, found {content:?} with id {id}"
            ))));
        }
        more_special.push((added.id, added.content, !added.special));
    }

    let mut entries = Vec::with_capacity(n_ranks.min(N_RANKS));
    for (nth, (text, id)) in (1..).zip(file.model.vocab.0) {
        let is_special = id.checked_sub(n_ranks as u32).and_then(|nth| SPECIAL.get(nth as usize)).is_some_and(|special| *special == text);
        if is_special || more_special.iter().any(|(other, content, _)| *other == id && *content == text) {
            continue;
        }
        if id as usize >= n_ranks {
            return Err(not_glm4(format!("expected a token id below {n_ranks}, found {id}")).at(location(nth)));
        }
        let token = byte_chars::spelt(&text).filter(|bytes| !bytes.is_empty()).ok_or_else(|| {
            not_glm4(format!("expected a token spelt with GPT-2's characters for bytes, found {:?}", short(&text, 24))).at(location(nth))
        })?;
        entries.push(FileToken { rank: id, token, nth });
    }
    Ok(Some(TokenizerFile { n_ranks, entries, more_special, keeps_pieces }))
}

/// Returns the place of the nth token in the file, for errors.
pub(super) fn location(nth: usize) -> String {
    format!("entry {nth} of the vocab")
}

impl PreTokenizerPart {
    /// Returns whether this component is GLM-4's pattern followed by ByteLevel, and nothing else.
    fn is_glm4(&self) -> bool {
        let mut parts = Vec::new();
        self.flatten(&mut parts);
        let [split, bytes] = parts.as_slice() else { return false };
        // every character is in a match, so "Isolated" and "Removed" with `invert` give the same pieces
        let cuts = matches!((split.behavior.as_deref(), split.invert.unwrap_or(false)), (Some("Isolated"), _) | (Some("Removed"), true));
        let pattern = split.pattern.as_ref().and_then(|p| p.regex.as_deref());
        let is_split = split.r#type == "Split" && cuts && pattern == Some(pieces::PUBLISHED);
        is_split && bytes.r#type == "ByteLevel" && bytes.add_prefix_space == Some(false) && bytes.use_regex == Some(false)
    }

    /// Appends this pre-tokenizer to `parts`. Replaces a sequence by its members, also in nested sequences.
    fn flatten<'p>(&'p self, parts: &mut Vec<&'p PreTokenizerPart>) {
        match &self.pretokenizers {
            Some(inner) => inner.iter().for_each(|part| part.flatten(parts)),
            None => parts.push(self),
        }
    }
}
