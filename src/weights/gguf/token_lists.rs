//! Reads the lists of a vocabulary (tokens, types and merges) in the metadata of a GGUF file. This module does not know the meaning of the
//! lists.

use super::Header;
use crate::error::{Error, Result};

/// The value of `tokenizer.ggml.token_type` for a normal token, which text may contain.
const NORMAL: i32 = 1;

/// The lists of a vocabulary in a GGUF file, as the file has them. The texts borrow the file's map.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLists<'a> {
    /// The kind of the vocabulary, `tokenizer.ggml.model`: `rwkv`, `gpt2`, …
    pub model: String,
    /// The name of the rule that splits text before merges, `tokenizer.ggml.pre`. `None` if the file has no such key.
    pub pre: Option<String>,
    /// The tokens, one per id, in the file's notation.
    pub tokens: Vec<&'a str>,
    /// The type of each token: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub types: Vec<i32>,
    /// The merges of a BPE vocabulary, in order. Empty for other vocabularies.
    pub merges: Vec<&'a str>,
}

impl<'a> TokenLists<'a> {
    /// Reads the lists of a GGUF file. Returns `None` if the file has no tokens.
    ///
    /// # Errors
    ///
    /// `File` if a list has another type than expected, is too long, or has another length than the tokens.
    pub(crate) fn read(file: &'a [u8]) -> Result<Option<TokenLists<'a>>> {
        let header = Header::read(file)?;
        let (Some(model), Some(tokens)) = (header.metadata.get("tokenizer.ggml.model"), header.texts("tokenizer.ggml.tokens")?) else {
            return Ok(None);
        };
        let key = "tokenizer.ggml.token_type";
        let types = header.whole_numbers(key)?.unwrap_or_else(|| vec![NORMAL; tokens.len()]);
        if types.len() != tokens.len() {
            return Err(Error::file(format!("expected a type for each of {} tokens, found {}", tokens.len(), types.len())).at(key));
        }
        let merges = header.texts("tokenizer.ggml.merges")?.unwrap_or_default();
        let pre = header.metadata.get("tokenizer.ggml.pre").cloned();
        Ok(Some(TokenLists { model: model.clone(), pre, tokens, types, merges }))
    }
}
