//! The prompts of `/v1/completions` and the inputs of `/v1/embeddings`.

use crate::engine::Input;
use crate::serve::failure::{Answer, Failure};
use crate::session::Model;
use serde::Deserialize;
use utoipa::ToSchema;

/// One or several prompts, as texts or as token ids.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "found another type than a string, an array of strings, token ids, or arrays of token ids")]
pub enum Prompts {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

impl Prompts {
    /// Returns the prompts as inputs of requests, each with its path in the body. `field` is the name of the field with the prompts.
    pub fn inputs(self, field: &str) -> Vec<(String, Input)> {
        let several = |inputs: Vec<Input>| inputs.into_iter().enumerate().map(|(i, input)| (format!("{field}[{i}]"), input)).collect();
        match self {
            Prompts::Text(text) => vec![(field.into(), Input::Text(text))],
            Prompts::Texts(all) => several(all.into_iter().map(Input::Text).collect()),
            Prompts::Tokens(tokens) => vec![(field.into(), Input::Tokens(tokens))],
            Prompts::TokenLists(all) => several(all.into_iter().map(Input::Tokens).collect()),
        }
    }
}

/// Checks that the model knows all token ids of inputs. Each input comes with its path in the body.
///
/// # Errors
/// 400 with the path of the first unknown id.
pub fn check_ids(inputs: &[(String, Input)], model: &Model) -> Answer<()> {
    inputs.iter().try_for_each(|(path, input)| match input {
        Input::Tokens(tokens) => check_tokens(path, tokens, model),
        _ => Ok(()),
    })
}

/// Checks that the model knows all token ids of a list. `path` is the path of the list in the body.
///
/// # Errors
/// 400 with the path of the first unknown id.
pub fn check_tokens(path: &str, tokens: &[u32], model: &Model) -> Answer<()> {
    let n_vocab = model.facts().n_vocab;
    match tokens.iter().position(|token| *token as usize >= n_vocab) {
        Some(i) => Err(Failure::field(&format!("{path}[{i}]"), format!("expected a token id below {n_vocab}, found {}", tokens[i]))),
        None => Ok(()),
    }
}
