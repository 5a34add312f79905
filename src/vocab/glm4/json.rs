//! Reads GLM-4's `tokenizer.json` of the `-hf` checkpoints: the same ranks as `tokenizer.model`, in Hugging Face's byte characters.
//!
//! The file's 318 000 merges are every way to cut a token into two tokens, in the order of the ranks. So the ranks determine the merges, and the
//! reader skips the merges. The file must set `ignore_merges`; without this setting, some words would get other ids than in training.

#[cfg(test)]
mod tests;

use super::{Entry, N_RANKS, SPECIAL, not_glm4, pieces};
use crate::error::{Error, Result, short, with_place};
use crate::vocab::web::Pairs;
use crate::vocab::{MAX_FILE_BYTES, byte_chars};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The fields of the file that determine the ids of a text. The reader skips all other fields, such as `merges`.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    normalizer: Option<IgnoredAny>,
    pre_tokenizer: Option<Part>,
    model: Model,
}

#[derive(Deserialize)]
struct Model {
    vocab: Pairs<u32>,
    ignore_merges: Option<bool>,
}

#[derive(Deserialize, PartialEq)]
struct Added {
    id: u32,
    content: String,
}

/// A component of the `pre_tokenizer`, of any type.
#[derive(Deserialize)]
struct Part {
    r#type: String,
    pretokenizers: Option<Vec<Part>>,
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

/// Returns the tokens in the order of the file, or `None` if the file belongs to another family. Refuses a GLM-4 file that splits text differently
/// than in training.
pub(super) fn entries(json: &[u8], n_ranks: usize) -> Result<Option<Vec<Entry>>> {
    let file: File = match serde_json::from_slice(json) {
        Ok(file) => file,
        // only GLM-4's file may be this large
        Err(e) if json.len() as u64 > MAX_FILE_BYTES => {
            return Err(not_glm4(format!("expected a Hugging Face tokenizer (tokenizer.json): {}", with_place(&e))));
        }
        Err(_) => return Ok(None),
    };
    let special: Vec<Added> = (n_ranks as u32..).zip(SPECIAL).map(|(id, text)| Added { id, content: text.into() }).collect();
    // a GLM-4 file has `[gMASK]` with this id
    if !file.added_tokens.contains(&special[2]) {
        return Ok(None);
    }

    let or_model = |e: Error| e.hint("use GLM-4's tokenizer.model, which has the same ids");
    if file.model.ignore_merges != Some(true) {
        return Err(or_model(Error::file("GLM-4's tokenizer must set ignore_merges to true; otherwise words get wrong ids")));
    }
    if file.normalizer.is_some() {
        return Err(or_model(Error::file("GLM-4's tokenizer must not have a normalizer")));
    }
    if !file.pre_tokenizer.is_some_and(|part| part.is_glm4()) {
        return Err(or_model(Error::file("expected a pre_tokenizer with GLM-4's pattern and then ByteLevel, found another pre_tokenizer")));
    }
    if let Some(Added { id, content }) = file.added_tokens.iter().find(|added| !special.contains(added)) {
        return Err(or_model(Error::file(format!("expected only GLM-4's added_tokens, found {:?} with id {id}", short(content, 24)))));
    }
    if let Some(Added { id, content }) = special.iter().find(|added| !file.added_tokens.contains(added)) {
        return Err(or_model(Error::file(format!("the added token {content:?} with id {id} is missing"))));
    }

    let mut entries = Vec::with_capacity(n_ranks.min(N_RANKS));
    for (nth, (text, id)) in (1..).zip(file.model.vocab.0) {
        let is_special = id.checked_sub(n_ranks as u32).and_then(|nth| SPECIAL.get(nth as usize)).is_some_and(|special| *special == text);
        if is_special {
            continue;
        }
        if id as usize >= n_ranks {
            return Err(not_glm4(format!("expected a token id below {n_ranks}, found {id}")).at(place(nth)));
        }
        let token = byte_chars::spelt(&text)
            .filter(|bytes| !bytes.is_empty())
            .ok_or_else(|| not_glm4(format!("expected a token in byte characters, found {:?}", short(&text, 24))).at(place(nth)))?;
        entries.push(Entry { rank: id, token, nth });
    }
    Ok(Some(entries))
}

/// Returns the place of the nth token in the file, for errors.
pub(super) fn place(nth: usize) -> String {
    format!("entry {nth} of the vocab")
}

impl Part {
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
    fn flatten<'p>(&'p self, parts: &mut Vec<&'p Part>) {
        match &self.pretokenizers {
            Some(inner) => inner.iter().for_each(|part| part.flatten(parts)),
            None => parts.push(self),
        }
    }
}
