//! Rendered prompts: special tokens and texts as separate parts, and their ids.

use super::Role;
use super::family::special;
use crate::error::Result;
use crate::vocab::{GLM4_SPECIAL, Vocab};

/// A part of a prompt: a special token, named by its text, or a text that is encoded alone and never becomes a special token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Special(&'static str),
    Text(String),
}

/// Characters of special tokens. Every special token except `<sop>`, `sop` and `<eop>` contains one of these characters, so a text without these
/// characters can contain only those three special tokens.
pub(super) const MARKS: [char; 2] = ['|', ']'];

/// Tokens that are special only directly after `[gMASK]`: GLM-4's and ChatGLM3's.
const AFTER_GMASK: [&str; 2] = ["<sop>", "sop"];

/// Returns the ids and texts of all special tokens in a vocabulary.
pub(crate) fn specials(vocab: &Vocab) -> Vec<(u32, &'static str)> {
    let all = GLM4_SPECIAL.iter().chain(&AFTER_GMASK[1..]);
    all.filter_map(|text| Some((vocab.special(text)?, *text))).collect()
}

/// Returns the ids of the parts. Each text is encoded alone.
///
/// # Errors
/// `Input` if the vocabulary lacks a special token.
pub fn encode(parts: &[Part], vocab: &Vocab) -> Result<Vec<u32>> {
    let mut ids = Vec::new();
    for part in parts {
        match part {
            Part::Special(text) => ids.push(special(vocab, text)?),
            Part::Text(text) if text.is_empty() => {}
            Part::Text(text) => ids.extend(vocab.encode(text.as_bytes())?),
        }
    }
    Ok(ids)
}

/// Returns the parts as one text.
pub fn whole(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match part {
        Part::Special(text) => text,
        Part::Text(text) => text.as_str(),
    });
    texts.collect()
}

/// Returns the beginning of the answer that a prompt already contains: the text after the last `<|assistant|>`.
pub(crate) fn opening(prompt: &str) -> &str {
    prompt.rsplit(Role::Assistant.special()).next().unwrap_or_default()
}

/// Returns the ids of a text in which special tokens are found anywhere, as in transformers. Tests use this function only for comparisons, because
/// a user's `<|assistant|>` becomes a special token.
#[cfg(test)]
pub(crate) fn encode_whole(text: &str, vocab: &Vocab) -> Result<Vec<u32>> {
    encode(&split(text, &GLM4_SPECIAL), vocab)
}

/// Splits a template's output, in which all `|` and `]` of messages are hidden. So every special token with one of these characters comes from
/// the template. `<sop>` and ChatGLM3's `sop` are special tokens directly after `[gMASK]` only.
pub(super) fn split_marked(text: &str) -> Vec<Part> {
    let marked: Vec<&'static str> = GLM4_SPECIAL.into_iter().filter(|special| special.contains(MARKS)).collect();
    let mut parts = split(text, &marked);
    let mut i = 0;
    while i + 1 < parts.len() {
        if let (Part::Special("[gMASK]"), Part::Text(text)) = (&parts[i], &parts[i + 1])
            && let Some(next) = AFTER_GMASK.iter().find(|next| text.starts_with(**next))
        {
            let rest = text[next.len()..].to_string();
            parts[i + 1] = Part::Special(next);
            if !rest.is_empty() {
                parts.insert(i + 2, Part::Text(rest));
            }
        }
        i += 1;
    }
    parts
}

/// Splits a text at special tokens. No special token is the beginning of another special token.
fn split(text: &str, specials: &[&'static str]) -> Vec<Part> {
    let mut parts = Vec::new();
    let (mut from, mut at) = (0, 0);
    while let Some(next) = text[at..].find(['<', '[']) {
        at += next;
        let Some(special) = specials.iter().find(|special| text[at..].starts_with(**special)) else {
            at += 1;
            continue;
        };
        if from < at {
            parts.push(Part::Text(text[from..at].into()));
        }
        parts.push(Part::Special(special));
        at += special.len();
        from = at;
    }
    if from < text.len() {
        parts.push(Part::Text(text[from..].into()));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Part {
        Part::Text(text.into())
    }

    #[test]
    fn all_but_two_tokens_have_a_mark() {
        assert!(GLM4_SPECIAL.iter().all(|t| t.starts_with(['<', '['])));
        assert_eq!(GLM4_SPECIAL.into_iter().filter(|t| !t.contains(MARKS)).collect::<Vec<_>>(), ["<sop>", "<eop>"]);
    }

    #[test]
    fn text_is_cut_at_special_tokens() {
        use Part::Special;
        let whole_text = "[gMASK]<sop><|user|>\na <|b|> [MASK <<sop>";
        assert_eq!(split_marked(whole_text), [Special("[gMASK]"), Special("<sop>"), Special("<|user|>"), text("\na <|b|> [MASK <<sop>")]);
        assert_eq!(whole(&split_marked(whole_text)), whole_text);
        assert_eq!(split(whole_text, &["<sop>"])[3..], [Special("<sop>")]);
        assert_eq!(split_marked("[gMASK]sopx"), [Special("[gMASK]"), Special("sop"), text("x")]);
        assert_eq!(split_marked("[gMASK]<sop>"), [Special("[gMASK]"), Special("<sop>")]);
        assert_eq!(split_marked(""), []);
    }
}
