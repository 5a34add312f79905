//! GLM-4's `tokenizer.json`, as the `-hf` checkpoints have it: the same ranks, spelt as Hugging Face spells byte-level BPE.
//!
//! Its 318 000 merges are every way to cut a token into two, in the order of the ranks, so the ranks say it all and the merges
//! are skipped. That holds with `ignore_merges` only: a file without it gives some words other ids than the models know.

#[cfg(test)]
mod tests;

use super::{Entry, N_RANKS, SPECIAL, not_glm4, pieces};
use crate::error::{Error, Result, short};
use crate::vocab::web::Pairs;
use crate::vocab::{MAX_FILE_BYTES, byte_chars};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// What is looked at; the rest, `merges` first of all, is skipped while reading.
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

/// A part of the `pre_tokenizer`, of any type.
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

/// The tokens in the order of the file, or none where it is another family's. Refuses a file of GLM-4's that would split text
/// in another way than the models have learnt.
pub(super) fn entries(json: &[u8], n_ranks: usize) -> Result<Option<Vec<Entry>>> {
    let file: File = match serde_json::from_slice(json) {
        Ok(file) => file,
        // of this size it can be nobody else's
        Err(e) if json.len() as u64 > MAX_FILE_BYTES => return Err(not_glm4(format!("expected a Hugging Face tokenizer, found {e}"))),
        Err(_) => return Ok(None),
    };
    let special: Vec<Added> = (n_ranks as u32..).zip(SPECIAL).map(|(id, text)| Added { id, content: text.into() }).collect();
    // `[gMASK]` under its own id
    if !file.added_tokens.contains(&special[2]) {
        return Ok(None);
    }

    let or_model = |e: Error| e.hint("GLM-4's tokenizer.model has the same ids and would do as well");
    if file.model.ignore_merges != Some(true) {
        return Err(or_model(Error::file("expected ignore_merges in GLM-4's tokenizer, without which words get wrong ids, found none")));
    }
    if file.normalizer.is_some() {
        return Err(or_model(Error::file("expected no normalizer in GLM-4's tokenizer, found one")));
    }
    if !file.pre_tokenizer.is_some_and(|part| part.is_glm4()) {
        return Err(or_model(Error::file("expected GLM-4's pattern, then ByteLevel, as the pre_tokenizer, found another")));
    }
    if let Some(Added { id, content }) = file.added_tokens.iter().find(|added| !special.contains(added)) {
        return Err(or_model(Error::file(format!("expected only GLM-4's added_tokens, found {:?} with id {id}", short(content, 24)))));
    }
    if let Some(Added { id, content }) = special.iter().find(|added| !file.added_tokens.contains(added)) {
        return Err(or_model(Error::file(format!("expected the added token {content:?} with id {id}, found none"))));
    }

    let mut entries = Vec::with_capacity(n_ranks.min(N_RANKS));
    for (nth, (text, id)) in (1..).zip(file.model.vocab.0) {
        let is_special = id.checked_sub(n_ranks as u32).and_then(|nth| SPECIAL.get(nth as usize)).is_some_and(|special| *special == text);
        if is_special {
            continue;
        }
        if id as usize >= n_ranks {
            return Err(not_glm4(format!("expected an id below {n_ranks}, found {id}")).at(place(nth)));
        }
        let token = byte_chars::spelt(&text)
            .filter(|bytes| !bytes.is_empty())
            .ok_or_else(|| not_glm4(format!("expected bytes spelt as characters, found {:?}", short(&text, 24))).at(place(nth)))?;
        entries.push(Entry { rank: id, token, nth });
    }
    Ok(Some(entries))
}

/// Where the nth token stands.
pub(super) fn place(nth: usize) -> String {
    format!("entry {nth} of the vocab")
}

impl Part {
    /// Whether text is cut by GLM-4's pattern and nothing else.
    fn is_glm4(&self) -> bool {
        let mut parts = Vec::new();
        self.flatten(&mut parts);
        let [split, bytes] = parts.as_slice() else { return false };
        // every character is in some match, so to keep the matches and to drop what is between them is the same
        let cuts = matches!((split.behavior.as_deref(), split.invert.unwrap_or(false)), (Some("Isolated"), _) | (Some("Removed"), true));
        let pattern = split.pattern.as_ref().and_then(|p| p.regex.as_deref());
        let is_split = split.r#type == "Split" && cuts && pattern == Some(pieces::PUBLISHED);
        is_split && bytes.r#type == "ByteLevel" && bytes.add_prefix_space == Some(false) && bytes.use_regex == Some(false)
    }

    /// Appends what is no sequence; sequences of sequences become one.
    fn flatten<'p>(&'p self, parts: &mut Vec<&'p Part>) {
        match &self.pretokenizers {
            Some(inner) => inner.iter().for_each(|part| part.flatten(parts)),
            None => parts.push(self),
        }
    }
}
