//! Tests that a GGUF file with tokens needs no other file.

use super::*;
use crate::session::{Model, ModelSource, Options};
use crate::vocab::Vocab;
use crate::weights::testing::{Gguf, as_stored, put, tiny_gguf};
use std::path::PathBuf;

/// Adds the tiny vocabulary to a GGUF file. Each byte of a token is written as an escape, such as `\x41`.
fn own(g: &mut Gguf) -> &mut Gguf {
    let tiny = Vocab::tiny();
    let escaped = |id: u32| tiny.token(id).iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
    let texts: Vec<String> = (1..=tiny.max_id()).map(escaped).collect();
    let tokens: Vec<(&str, i32)> = std::iter::once(("<s>", 3)).chain(texts.iter().map(|text| (text.as_str(), 1))).collect();
    g.tokens("rwkv", &tokens)
}

fn load(path: PathBuf) -> Model {
    let options = Options { device: "cpu".parse().unwrap(), ..Options::default() };
    Model::load(&ModelSource::Path(path), &options, &mut |_, _| ()).unwrap()
}

#[test]
fn one_file_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let model = load(put(&dir, "m.gguf", &own(&mut tiny_gguf(&as_stored)).finish()));
    let vocab = model.vocab().unwrap();
    assert_eq!((vocab.first_difference(&Vocab::tiny()), vocab.len()), (None, Vocab::tiny().len()));
    let text = "In the beginning <s>".as_bytes();
    assert_eq!(vocab.encode(text).unwrap(), Vocab::tiny().encode(text).unwrap());
    assert_eq!(model.notes(), [""; 0]);
}

#[test]
fn a_file_beside_replaces_unusable_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let path = put(&dir, "m.gguf", &tiny_gguf(&as_stored).tokens("t5", &[("a", 1)]).finish());
    let checkpoint = Checkpoint::open(&path).unwrap();
    let (choice, note) = vocabulary(&checkpoint, 2048);
    let Choice::Missing { hint } = choice else { panic!("found a vocabulary") };
    assert!(note.is_none() && hint.contains("cannot be used: unsupported kind of vocabulary (tokenizer.ggml.model) \"t5\""), "{hint}");
    put(&dir, "vocab.txt", include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/vocab/tiny.txt")));
    let (choice, note) = vocabulary(&checkpoint, 2048);
    assert!(matches!(choice, Choice::Found(vocab) if vocab.max_id() == Vocab::tiny().max_id()));
    assert!(note.unwrap().contains("the vocabulary in the model's file cannot be used"));
}

#[test]
fn a_sentence_piece_vocabulary_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let (texts, types) = (["<unk>", "▁", "a", "b", "ab"], [2, 1, 1, 1, 1]);
    let tokens: Vec<(&str, i32)> = texts.into_iter().zip(types).collect();
    let scores: Vec<u8> = [0.0f32, -9.0, -8.0, -7.0, -1.0].iter().flat_map(|score| score.to_le_bytes()).collect();
    let scores = [6u32.to_le_bytes().as_slice(), &5u64.to_le_bytes(), &scores].concat();
    let mut g = tiny_gguf(&as_stored);
    g.tokens("llama", &tokens).value("tokenizer.ggml.scores", 9, &scores).value("tokenizer.ggml.add_space_prefix", 7, &[0]);
    let model = load(put(&dir, "m.gguf", &g.finish()));
    assert_eq!(model.vocab().unwrap().encode("aab c".as_bytes()).unwrap(), [2, 4, 1, 0]);
}
