//! The JSON format of an RWKV vocabulary, as web-rwkv writes it: `{"1": "TEXT" or [BYTE, …], …}`.
//!
//! A token is a text, whose bytes are its UTF-8, or an array of bytes. Text becomes ids by greedy longest match, as with the line format in
//! `rwkv.rs`.

use super::rwkv::{Rwkv, number};
use super::table::{ID_LIMIT, TokenTable};
use crate::error::{Error, Result, short, with_place};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Returns whether a JSON object is a vocabulary of the form `{"ID": …}`: its first key begins with a digit.
pub(super) fn is_web(json: &[u8]) -> bool {
    let mut marks = json.iter().filter(|b| !b.is_ascii_whitespace());
    (marks.next(), marks.next()) == (Some(&b'{'), Some(&b'"')) && marks.next().is_some_and(u8::is_ascii_digit)
}

pub(super) fn parse(json: &[u8]) -> Result<Rwkv> {
    let Pairs(pairs): Pairs<TokenBytes> = serde_json::from_slice(json).map_err(|e| {
        let text = format!("expected a vocabulary as a JSON object {{\"ID\": \"TEXT\" or [BYTES], …}}: {}", with_place(&e));
        Error::file(text).caused_by(e)
    })?;
    let mut table = TokenTable::default();
    let mut entries = Vec::with_capacity(pairs.len());
    for (id, TokenBytes(bytes)) in pairs {
        let id = number(&id)
            .and_then(|id| u32::try_from(id).ok())
            .ok_or_else(|| Error::file(format!("expected a token id below {ID_LIMIT}, found {}", short(&id, 24))))?;
        entries.push(table.add(id, &bytes)?);
    }
    Ok(Rwkv::new(table, &entries))
}

/// A JSON object as pairs in the order of the file. A map would silently drop one of two equal keys.
pub(super) struct Pairs<V>(pub Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct PairsVisitor<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for PairsVisitor<V> {
            type Value = Pairs<V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor(PhantomData))
    }
}

/// The bytes of a token. An untagged enum would accept the same JSON, but its errors would name neither the wrong byte nor the byte's place.
struct TokenBytes(Vec<u8>);

impl<'de> Deserialize<'de> for TokenBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct TokenVisitor;
        impl<'de> Visitor<'de> for TokenVisitor {
            type Value = TokenBytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an array of bytes")
            }
            fn visit_str<E>(self, text: &str) -> std::result::Result<TokenBytes, E> {
                Ok(TokenBytes(text.as_bytes().to_vec()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> std::result::Result<TokenBytes, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = array.next_element()? {
                    bytes.push(byte);
                }
                Ok(TokenBytes(bytes))
            }
        }
        deserializer.deserialize_any(TokenVisitor)
    }
}
