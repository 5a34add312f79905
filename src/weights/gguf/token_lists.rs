//! Reads the lists of a vocabulary (tokens, types and merges) in the metadata of a GGUF file. This module does not know the meaning of the
//! lists.

use super::Header;
use crate::error::{Error, Result};

/// The value that marks a normal token in the list `tokenizer.ggml.token_type`. If a file lacks this list, all tokens are normal.
const NORMAL: i32 = 1;

/// The lists of a vocabulary in a GGUF file, unchanged. The texts borrow the file's memory map.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLists<'a> {
    /// The kind of the vocabulary, `tokenizer.ggml.model`: `rwkv`, `gpt2`, `llama`, …
    pub model: String,
    /// The name of the rule that splits text before merges, `tokenizer.ggml.pre`. `None` if the file has no such key.
    pub pre: Option<String>,
    /// The tokens, one per id, in the file's notation.
    pub tokens: Vec<&'a str>,
    /// The type of each token: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub types: Vec<i32>,
    /// The merges of a BPE vocabulary, in order. Empty for other vocabularies.
    pub merges: Vec<&'a str>,
    /// The score of each token of a SentencePiece vocabulary. Empty if the file has no scores.
    pub scores: Vec<f32>,
    /// The value of `tokenizer.ggml.add_space_prefix`. `None` if the file has no such key.
    pub adds_space: Option<bool>,
    /// The value of `tokenizer.ggml.remove_extra_whitespaces`. `None` if the file has no such key.
    pub removes_spaces: Option<bool>,
}

impl<'a> TokenLists<'a> {
    /// Reads the lists of a GGUF file. Returns `None` if the file has no tokens.
    ///
    /// # Errors
    ///
    /// `File` if a list has another type than expected or is too long. Also `File` if the number of token types differs from the number of tokens.
    pub(crate) fn read(file: &'a [u8]) -> Result<Option<TokenLists<'a>>> {
        let header = Header::read(file, file.len() as u64)?;
        let (Some(model), Some(tokens)) = (header.metadata.get("tokenizer.ggml.model"), header.texts("tokenizer.ggml.tokens")?) else {
            return Ok(None);
        };
        let key = "tokenizer.ggml.token_type";
        let types = header.whole_numbers(key)?.unwrap_or_else(|| vec![NORMAL; tokens.len()]);
        if types.len() != tokens.len() {
            return Err(Error::file(format!("expected a type for each of {} tokens, found {} types", tokens.len(), types.len())).at(key));
        }
        let merges = header.texts("tokenizer.ggml.merges")?.unwrap_or_default();
        let pre = header.metadata.get("tokenizer.ggml.pre").cloned();
        let scores = header.floats("tokenizer.ggml.scores")?.unwrap_or_default();
        let is_true = |key: &str| header.metadata.get(key).map(|value| value == "true");
        let (adds_space, removes_spaces) = (is_true("tokenizer.ggml.add_space_prefix"), is_true("tokenizer.ggml.remove_extra_whitespaces"));
        Ok(Some(TokenLists { model: model.clone(), pre, tokens, types, merges, scores, adds_space, removes_spaces }))
    }
}
