//! Reads and writes RWKV's World vocabulary as a `tokenizer.json` of Hugging Face, in which `model.type` is `RwkvTrie`. Text becomes ids by
//! greedy longest match over bytes.
//!
//! `model.vocab` maps tokens to ids. Each byte of a token is written as one character ([`byte_chars`]). Text never becomes a special token, such
//! as `<|endoftext|>` with id 0.

use super::byte_chars;
use super::rwkv::Rwkv;
use super::table::TokenTable;
use super::tokenizer_json::{AddedEntry, RwkvTrie};
use super::web::Pairs;
use crate::error::{Error, Result, short};
use serde_json::{Map, Value, json};

/// The special token with id 0, which begins and ends texts.
const END: &str = "<|endoftext|>";

/// Converts the fields `model` and `added_tokens` of a `tokenizer.json` to a vocabulary.
///
/// # Errors
///
/// `File` if the model has no `vocab` or no tokens. `File` if a token is empty, is too long, or contains a character that represents no byte. `File`
/// if an id is too large or occurs twice.
pub(super) fn parse(model: RwkvTrie, added: &[AddedEntry]) -> Result<Rwkv> {
    let Some(Pairs(pairs)) = model.vocab else {
        let e = Error::file("the model of type RwkvTrie has no `vocab`");
        return Err(e.hint("name the World vocabulary instead: rwkv_vocab_v20230424.txt"));
    };
    let mut table = TokenTable::default();
    let mut entries = Vec::with_capacity(pairs.len());
    for (text, id) in pairs {
        let is_special = id == 0 || added.iter().any(|a| a.token.special && a.id == id);
        if is_special {
            continue;
        }
        let token = byte_chars::spelt(&text).filter(|token| !token.is_empty()).ok_or_else(|| {
            Error::file(format!("expected token {id} spelt with GPT-2's characters for bytes, found {:?}", short(&text, 40)))
        })?;
        entries.push(table.add(id, &token)?);
    }
    if entries.is_empty() {
        return Err(Error::file("the vocabulary has no tokens"));
    }
    Ok(Rwkv::new(table, &entries))
}

/// Returns the names and contents of `tokenizer.json` and `tokenizer_config.json` for a vocabulary with greedy longest match.
pub(super) fn files(table: &TokenTable) -> [(String, Vec<u8>); 2] {
    let mut vocab = Map::from_iter([(END.to_string(), Value::from(0))]);
    for id in 1..=table.max_id() {
        let token = table.token(id);
        if !token.is_empty() {
            vocab.insert(token.iter().map(|&byte| byte_chars::char(byte)).collect(), id.into());
        }
    }
    let special =
        json!({ "id": 0, "content": END, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true });
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [special], "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
        "model": { "type": "RwkvTrie", "vocab": vocab },
    });
    let config = json!({
        "tokenizer_class": "RwkvTokenizer", "bos_token": END, "eos_token": END, "add_bos_token": false, "clean_up_tokenization_spaces": false,
    });
    [("tokenizer.json".into(), format!("{tokenizer}\n").into()), ("tokenizer_config.json".into(), format!("{config:#}\n").into())]
}

#[cfg(all(test, feature = "embedded-model"))]
mod tests {
    use crate::vocab::Vocab;

    #[test]
    fn the_world_vocabulary_is_read_back() {
        let world = Vocab::world();
        let [(name, json), _] = world.hugging_face_files().unwrap();
        assert_eq!(name, "tokenizer.json");
        let back = Vocab::parse(&json).unwrap();
        assert_eq!((back.len(), back.max_id()), (world.len(), world.max_id()));
        for id in 0..=world.max_id() {
            assert_eq!(back.token(id), world.token(id), "{id}");
        }
        for text in ["Hello, world!", "你好，世界！\r\n\t\0", "<|endoftext|>"] {
            assert_eq!(back.encode(text.as_bytes()).unwrap(), world.encode(text.as_bytes()).unwrap());
        }
        assert!(back.hugging_face_files().is_some());
    }

    #[test]
    fn a_broken_vocabulary_is_refused() {
        let parse = |model: &str| Vocab::parse(format!(r#"{{"added_tokens":[],"model":{model}}}"#).as_bytes());
        let said = |model: &str| parse(model).unwrap_err().to_string();
        assert!(said(r#"{"type":"RwkvTrie"}"#).contains("RwkvTrie has no `vocab`"));
        assert!(said(r#"{"type":"RwkvTrie","vocab":{"<|endoftext|>":0}}"#).contains("no tokens"));
        assert!(
            said(r#"{"type":"RwkvTrie","vocab":{"a b":1}}"#).contains(r#"token 1 spelt with GPT-2's characters for bytes, found "a b""#)
        );
        assert!(said(r#"{"type":"RwkvTrie","vocab":{"a":1,"b":1}}"#).contains("two tokens have the id 1"));
        let vocab = parse(r#"{"type":"RwkvTrie","vocab":{"<|endoftext|>":0,"a":1,"aĊ":2,"Ċ":3}}"#).unwrap();
        assert_eq!(vocab.encode(b"a\naa\n\n").unwrap(), [2, 1, 2, 3]);
    }
}
