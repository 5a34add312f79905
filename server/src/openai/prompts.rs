//! The prompts of `/v1/completions` and the inputs of `/v1/embeddings`.

use crate::failure::{Answer, Failure};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use utoipa::ToSchema;
use wingbeat::engine::Input;
use wingbeat::low_level::session::Model;

/// One or several prompts, as texts or as token ids.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Prompts {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

/// Reads a value in one pass. serde's own code for such a type first builds a tree of the value, which takes 16 times the memory of a list of ids.
impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Prompts, D::Error> {
        // serde reports a missing field as an error of its value.
        match Item::deserialize(from).map_err(|e| if e.to_string().starts_with("missing field") { e } else { wrong() })? {
            Item::Text(text) => Ok(Prompts::Text(text)),
            Item::All(all) => Ok(all),
            Item::Token(_) => Err(wrong()),
        }
    }
}

/// A string, a token id, or a list of items of one kind.
enum Item {
    Text(String),
    Token(u32),
    All(Prompts),
}

fn wrong<E: serde::de::Error>() -> E {
    E::custom("expected a string, an array of strings, token ids, or arrays of token ids, found another type")
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Item, D::Error> {
        struct Items;
        impl<'de> Visitor<'de> for Items {
            type Value = Item;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a token id or an array")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Item, E> {
                Ok(Item::Text(text.into()))
            }

            fn visit_string<E: serde::de::Error>(self, text: String) -> Result<Item, E> {
                Ok(Item::Text(text))
            }

            fn visit_u64<E: serde::de::Error>(self, token: u64) -> Result<Item, E> {
                u32::try_from(token).map(Item::Token).map_err(|_| wrong())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Item, A::Error> {
                let mut found = match all.next_element::<Item>()? {
                    None => return Ok(Item::All(Prompts::Texts(Vec::new()))),
                    Some(Item::Text(text)) => Prompts::Texts(vec![text]),
                    Some(Item::Token(token)) => Prompts::Tokens(vec![token]),
                    Some(Item::All(first)) => Prompts::TokenLists(vec![tokens(first)?]),
                };
                while let Some(next) = all.next_element::<Item>()? {
                    match (&mut found, next) {
                        (Prompts::Texts(texts), Item::Text(text)) => texts.push(text),
                        (Prompts::Tokens(tokens), Item::Token(token)) => tokens.push(token),
                        (Prompts::TokenLists(lists), Item::All(list)) => lists.push(tokens(list)?),
                        _ => return Err(wrong()),
                    }
                }
                Ok(Item::All(found))
            }
        }
        // A value of any other type is an error, because the visitor accepts only strings, numbers and arrays.
        from.deserialize_any(Items)
    }
}

/// Returns the token ids of a list within a list. An empty list arrives as `Texts`, because no item shows its type.
fn tokens<E: serde::de::Error>(list: Prompts) -> Result<Vec<u32>, E> {
    match list {
        Prompts::Tokens(tokens) => Ok(tokens),
        Prompts::Texts(none) if none.is_empty() => Ok(Vec::new()),
        _ => Err(wrong()),
    }
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
