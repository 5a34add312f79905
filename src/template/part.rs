//! Rendered prompts: special tokens and texts as separate parts, and their ids.

use super::Role;
use super::family::{CHATML, special};
use crate::error::Result;
use crate::vocab::{GLM4_SPECIAL, Vocab};

/// A part of a prompt: a special token, named by its text, or a text that is encoded alone and never becomes a special token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Special(&'static str),
    Text(String),
}

/// Every special token contains `|` or `]`, except `<sop>`, `sop`, `<eop>` and the tokens in `NEWER`. So a text without these characters can
/// contain no other special token.
pub(super) const MARKS: [char; 2] = ['|', ']'];

/// Tokens that are special only directly after `[gMASK]`: GLM-4's, then ChatGLM3's.
const AFTER_GMASK: [&str; 2] = ["<sop>", "sop"];

/// Special tokens of newer models, such as GLM-4.1V. If the vocabulary lacks such a token, its text in a template is encoded as ordinary text.
pub(super) const NEWER: [&str; 12] = [
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
];

/// Tokens that newer models write around an answer. These tokens are not part of the answer's text.
pub(super) const AROUND_ANSWERS: [&str; 4] = ["<answer>", "</answer>", "<|begin_of_box|>", "<|end_of_box|>"];

/// Returns the ids and texts of all special tokens in a vocabulary.
pub(crate) fn specials(vocab: &Vocab) -> Vec<(u32, &'static str)> {
    let all = GLM4_SPECIAL.iter().chain(&AFTER_GMASK[1..]).chain(&NEWER).chain(&AROUND_ANSWERS[2..]).chain(&CHATML);
    all.filter_map(|text| Some((vocab.special(text)?, *text))).collect()
}

/// Returns the ids of the parts. Each text is encoded alone. If the vocabulary lacks a token such as `<think>`, its text is encoded together with the
/// texts around it.
///
/// # Errors
/// `Input` if the vocabulary lacks a special token that is not in `NEWER`, such as `<|user|>`.
pub fn encode(parts: &[Part], vocab: &Vocab) -> Result<Vec<u32>> {
    let mut ids = Vec::new();
    let (mut held, mut joins) = (String::new(), false);
    for part in parts {
        let is_absent = matches!(part, Part::Special(token) if NEWER.contains(token) && vocab.special(token).is_none());
        let goes_on = is_absent || joins && matches!(part, Part::Text(_));
        if !held.is_empty() && !goes_on {
            ids.extend(vocab.encode(std::mem::take(&mut held).as_bytes())?);
        }
        match part {
            Part::Special(token) if is_absent => held += token,
            Part::Special(token) => ids.push(special(vocab, token)?),
            Part::Text(text) => held += text,
        }
        joins = is_absent;
    }
    if !held.is_empty() {
        ids.extend(vocab.encode(held.as_bytes())?);
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
pub(super) fn opening(prompt: &str) -> &str {
    prompt.rsplit(Role::Assistant.special()).next().unwrap_or_default()
}

/// Returns the ids of a text in which special tokens are found anywhere, as in transformers. Only for comparisons in tests: a user's `<|assistant|>`
/// becomes a special token here.
#[cfg(test)]
pub(crate) fn encode_whole(text: &str, vocab: &Vocab) -> Result<Vec<u32>> {
    encode(&split(text, &GLM4_SPECIAL), vocab)
}

/// Splits a template's output, in which every `|` and `]` from messages is hidden. So every special token with one of these characters comes from the
/// template. `<sop>` and ChatGLM3's `sop` are special only directly after `[gMASK]`. If `finds_newer` is true, the tokens in [`NEWER`] are hidden in
/// messages, too, so such tokens in `text` are special tokens.
pub(super) fn split_marked(text: &str, finds_newer: bool) -> Vec<Part> {
    let marked = GLM4_SPECIAL.into_iter().filter(|special| special.contains(MARKS)).chain(CHATML);
    let marked: Vec<&'static str> = marked.chain(NEWER.into_iter().filter(|_| finds_newer)).collect();
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

/// Splits a text at special tokens. The order of `specials` does not matter, because no special token is the beginning of another.
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
    use super::super::testing;
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
    fn a_token_that_the_vocabulary_lacks_is_text() {
        use Part::Special;
        let (old, new) = (testing::small(), testing::newer());
        let parts = [Special("<|assistant|>"), text("\n"), Special("<think>"), Special("</think>"), text("\n\nhello"), text("hello")];
        let id = |special: &str| new.special(special).unwrap();
        let bytes = |text: &str| new.encode(text.as_bytes()).unwrap();
        let with = [vec![id("<|assistant|>")], bytes("\n"), vec![id("<think>"), id("</think>")], bytes("\n\nhello"), bytes("hello")];
        assert_eq!(encode(&parts, &new).unwrap(), with.concat());
        let without = [vec![id("<|assistant|>")], bytes("\n<think></think>\n\nhello"), bytes("hello")];
        assert_eq!(encode(&parts, &old).unwrap(), without.concat());
        assert!(encode(&[Special("</s>")], &old).is_err());
    }

    #[test]
    fn text_is_cut_at_special_tokens() {
        use Part::Special;
        let whole_text = "[gMASK]<sop><|user|>\na <|b|> [MASK <<sop>";
        let parts = split_marked(whole_text, true);
        assert_eq!(parts, [Special("[gMASK]"), Special("<sop>"), Special("<|user|>"), text("\na <|b|> [MASK <<sop>")]);
        assert_eq!(whole(&parts), whole_text);
        assert_eq!(split_marked("\n<think></think>", true), [text("\n"), Special("<think>"), Special("</think>")]);
        assert_eq!(split_marked("\n<think></think>", false), [text("\n<think></think>")]);
        assert_eq!(split(whole_text, &["<sop>"])[3..], [Special("<sop>")]);
        assert_eq!(split_marked("[gMASK]sopx", true), [Special("[gMASK]"), Special("sop"), text("x")]);
        assert_eq!(split_marked("[gMASK]<sop>", true), [Special("[gMASK]"), Special("<sop>")]);
        assert_eq!(split_marked("", true), []);
    }
}
