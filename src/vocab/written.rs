//! Writes vocabularies as lists of tokens, types and merges, as GGUF files have them: the reverse of `lists`, which reads them.

use super::merge::Ranks;
use super::table::TokenTable;
use super::{Vocab, byte_chars};
use std::fmt::Write;

// The types of tokens in GGUF's numbers. An unused id has no token.
pub(super) const NORMAL: i32 = 1;
pub(super) const CONTROL: i32 = 3;
pub(super) const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

/// The names of GLM's splitting rule. With the first name, llama.cpp uses no merges for a piece of text that is itself a token.
pub(super) const GLM: [&str; 2] = ["glm4", "chatglm-bpe"];

/// A vocabulary as lists that own their texts. `tokens` and `types` have the same length.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OwnedLists {
    /// The kind of the vocabulary: `rwkv` or `gpt2`.
    pub model: &'static str,
    /// The name of the rule that splits text before merges. `None` if there is no such rule.
    pub pre: Option<&'static str>,
    /// The tokens in llama.cpp's notation. The index is the token's id.
    pub tokens: Vec<String>,
    /// The types of the tokens in GGUF's numbers: 1 normal, 3 control, 4 user-defined, 5 unused.
    pub types: Vec<i32>,
    /// The merges in order, each as two tokens with a space between them.
    pub merges: Vec<String>,
}

impl Vocab {
    /// Returns the vocabulary as lists for a model with `n_vocab` embeddings. Ids without a token become unused tokens. Returns `None` for
    /// vocabularies of other models than RWKV, GLM-4, GLM-Edge and GLM-4.7.
    pub(crate) fn lists(&self, n_vocab: usize) -> Option<OwnedLists> {
        let mut lists = self.scheme.lists()?;
        for id in lists.tokens.len()..n_vocab {
            lists.tokens.push(unused(id));
            lists.types.push(UNUSED);
        }
        Some(lists)
    }
}

fn unused(id: usize) -> String {
    format!("[PAD{id}]")
}

/// Returns the lists of a vocabulary with greedy longest match. If id 0 has no token, it is written as `<s>`, which ends the texts of RWKV models.
pub(super) fn rwkv(table: &TokenTable) -> OwnedLists {
    let entry = |id: u32| match (id, table.token(id)) {
        (0, b"") => ("<s>".to_string(), CONTROL),
        (id, b"") => (unused(id as usize), UNUSED),
        (_, token) => (escape(token), NORMAL),
    };
    let (tokens, types) = (0..=table.max_id()).map(entry).unzip();
    OwnedLists { model: "rwkv", pre: None, tokens, types, merges: Vec::new() }
}

/// Returns a token in the notation of llama.cpp, which is Python's notation of bytes: printable ASCII, and escapes for the other bytes.
fn escape(token: &[u8]) -> String {
    let mut text = String::with_capacity(token.len());
    let has_both_quotes = token.contains(&b'\'') && token.contains(&b'"');
    for &byte in token {
        match byte {
            b'\t' => text.push_str(r"\t"),
            b'\n' => text.push_str(r"\n"),
            b'\r' => text.push_str(r"\r"),
            b'\\' => text.push_str(r"\\"),
            b'\'' if has_both_quotes => text.push_str(r"\'"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => write!(text, "\\x{byte:02x}").expect("a string takes any text"),
        }
    }
    text
}

/// Returns the lists of GLM-4's vocabulary. `keeps_pieces` is true if a piece of text that is itself a token becomes this token without merges.
pub(super) fn glm(table: &TokenTable, ranks: &Ranks, special: &[(&str, u32)], keeps_pieces: bool) -> OwnedLists {
    let [keeping, merging] = GLM;
    let spell = |token: &[u8]| token.iter().map(|&byte| byte_chars::char(byte)).collect::<String>();
    let mut tokens = Vec::new();
    let mut types = Vec::new();
    for id in 0..=table.max_id() {
        let token = table.token(id);
        let (text, kind) = match special.iter().find(|(_, special)| *special == id) {
            Some((text, _)) => (text.to_string(), if token.is_empty() { CONTROL } else { USER_DEFINED }),
            None if token.is_empty() => (unused(id as usize), UNUSED),
            None => (spell(token), NORMAL),
        };
        tokens.push(text);
        types.push(kind);
    }
    let mut merges = Vec::new();
    for id in (0..=table.max_id()).filter(|&id| types[id as usize] == NORMAL) {
        let token = table.token(id);
        // Every way to cut a token into two tokens is a merge, as in the published tokenizer.json. The merges of one token are sorted by the ranks
        // of their parts.
        let cut = |at: usize| Some((ranks.id(&token[..at])?, ranks.id(&token[at..])?));
        let mut cuts: Vec<(u32, u32)> = (1..token.len()).filter_map(cut).collect();
        cuts.sort_unstable();
        merges.extend(cuts.into_iter().map(|(a, b)| format!("{} {}", tokens[a as usize], tokens[b as usize])));
    }
    OwnedLists { model: "gpt2", pre: Some(if keeps_pieces { keeping } else { merging }), tokens, types, merges }
}
