//! Tests two small tokenizers, damaged files, and the published file if a copy exists.

use super::*;
use crate::error::Kind as ErrorKind;
use crate::vocab::{Utf8Stream, Vocab};
use serde_json::{Value, json};
use std::path::Path;

/// Returns a byte-level BPE like GPT-NeoX-20B's: two special tokens, all bytes from id 2, merges, and runs of 4, 3 and 2 spaces.
pub(in crate::vocab) fn small_bpe() -> Value {
    let added = |id: usize, content: &str, special: bool| {
        json!({"id": id, "content": content, "special": special, "normalized": !special,
               "single_word": false, "lstrip": false, "rstrip": false})
    };
    let mut vocab = json!({"<|endoftext|>": 0, "<|padding|>": 1});
    for byte in 0..=255u8 {
        vocab[byte_chars::char(byte).to_string()] = json!(2 + byte as u32);
    }
    let merges = ["Ċ Ċ", "h e", "l l", "he ll", "hell o", "Ġ hello", "Ã ©", "ä ½", "ä½ ł"];
    for (i, merge) in merges.iter().enumerate() {
        vocab[merge.replace(' ', "")] = json!(258 + i);
    }
    let n = 258 + merges.len();
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [
            added(0, "<|endoftext|>", true), added(1, "<|padding|>", true),
            added(n, "    ", false), added(n + 1, "   ", false), added(n + 2, "  ", false),
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "vocab": vocab, "merges": merges,
        }
    })
}

pub(in crate::vocab) const WORDS: &str = r#"{
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [
        {"id": 0, "content": "<pad>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
        {"id": 1, "content": "<start>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
        {"id": 5, "content": "<extra0>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": true, "special": false}
    ],
    "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
    "model": {"type": "WordLevel", "vocab": {"<pad>": 0, "<start>": 1, "t1": 2, "p:3c:7": 3, "p:3c:0": 4}, "unk_token": "<pad>"}
}"#;

const NEWLINE: u32 = 2 + b'\n' as u32;
const TWO_NEWLINES: u32 = 258;
const HELLO: u32 = 262;
const SPACE_HELLO: u32 = 263;
const E_ACUTE: u32 = 264;
const NI: u32 = 266;
const FOUR: u32 = 267;
const THREE: u32 = 268;
const TWO: u32 = 269;

fn parse(value: &Value) -> Vocab {
    Vocab::parse(value.to_string().as_bytes()).unwrap()
}

/// Returns `small_bpe` with the value at `pointer` replaced.
fn changed(pointer: &str, value: Value) -> Value {
    let mut json = small_bpe();
    *json.pointer_mut(pointer).unwrap() = value;
    json
}

#[test]
fn byte_level_text_comes_back() {
    let vocab = parse(&small_bpe());
    let cases: [(&str, &[u32]); 9] = [
        ("", &[]),
        ("hello hello", &[HELLO, SPACE_HELLO]),
        ("é", &[E_ACUTE]),
        ("e\u{301}", &[E_ACUTE]), // NFC
        ("你", &[NI]),
        ("😀", &[2 + 0xf0, 2 + 0x9f, 2 + 0x98, 2 + 0x80]),
        ("\0\u{7f}\u{ad}", &[2, 2 + 0x7f, 2 + 0xc2, 2 + 0xad]),
        ("a<|endoftext|>hello", &[2 + b'a' as u32, 0, HELLO]),
        ("\r\n", &[2 + b'\r' as u32, NEWLINE]),
    ];
    for (text, ids) in cases {
        assert_eq!(vocab.encode(text.as_bytes()).unwrap(), ids, "{text:?}");
        let want = text.replace("e\u{301}", "é").replace("<|endoftext|>", "");
        assert_eq!(vocab.decode(ids), want.as_bytes());
        let mut stream = Utf8Stream::new();
        let pieces: String = ids.iter().map(|&id| stream.push(vocab.token(id)).to_string()).collect();
        assert_eq!(pieces + &stream.finish(), want);
    }
    assert_eq!((vocab.len(), vocab.max_id()), (270, 269));
    for byte in 0..=255u8 {
        assert_eq!(vocab.token(2 + byte as u32), [byte]);
    }
    for id in [0, 1, 270, u32::MAX] {
        assert_eq!(vocab.token(id), b"", "id {id}");
    }
}

#[test]
fn runs_of_spaces_are_taken_leftmost_and_longest() {
    let vocab = parse(&small_bpe());
    let x = 2 + b'x' as u32;
    let cases: [(&str, &[u32]); 6] = [
        ("  x", &[TWO, x]),
        ("   x", &[THREE, x]),
        ("    x", &[FOUR, x]),
        ("     x", &[FOUR, 2 + b' ' as u32, x]),
        ("       ", &[FOUR, THREE]),
        ("x          x", &[x, FOUR, FOUR, TWO, x]),
    ];
    for (text, ids) in cases {
        assert_eq!(vocab.encode(text.as_bytes()).unwrap(), ids, "{text:?}");
        assert_eq!(vocab.decode(ids), text.as_bytes());
    }
}

#[test]
fn two_newlines_that_end_a_prompt_are_two_tokens() {
    let vocab = parse(&small_bpe());
    // (text, ids of the text, ids of the prompt)
    let cases: [(&str, &[u32], &[u32]); 6] = [
        ("hello\n\n", &[HELLO, TWO_NEWLINES], &[HELLO, NEWLINE, NEWLINE]),
        ("\n\n", &[TWO_NEWLINES], &[NEWLINE, NEWLINE]),
        ("\n\nhello", &[NEWLINE, NEWLINE, HELLO], &[NEWLINE, NEWLINE, HELLO]),
        ("hello\n", &[HELLO, NEWLINE], &[HELLO, NEWLINE]),
        ("hello", &[HELLO], &[HELLO]),
        ("", &[], &[]),
    ];
    for (text, ids, prompt) in cases {
        assert_eq!(vocab.encode(text.as_bytes()).unwrap(), ids, "{text:?}");
        assert_eq!(vocab.encode_prompt(text.as_bytes()).unwrap(), prompt, "{text:?}");
        assert_eq!(vocab.decode(ids), vocab.decode(prompt));
    }
    // the two newlines at the end of a prompt are separate tokens with byte-level files only
    let rwkv = Vocab::parse(b"1 '\\n' 1\n2 '\\n\\n' 2").unwrap();
    assert_eq!(rwkv.encode_prompt(b"\n\n\n\n").unwrap(), [2, 2]);
}

#[test]
fn words_have_spaces_between_them() {
    let vocab = Vocab::parse(WORDS.as_bytes()).unwrap();
    let ids = [0, 1, 3, 2, 4, 5];
    assert_eq!(vocab.encode(b"<pad> <start> P:3c:7\n t1  p:3c:0 <extra0>").unwrap(), ids);
    assert_eq!(vocab.decode(&ids), b"p:3c:7 t1 p:3c:0 <extra0>");
    assert_eq!(ids.map(|id| vocab.token(id)), [&b""[..], b"", b" p:3c:7", b" t1", b" p:3c:0", b" <extra0>"]);
    assert_eq!((vocab.len(), vocab.max_id()), (6, 5));
    assert_eq!(vocab.encode(b"t1 t999").unwrap(), [2, 0], "an unknown word is <pad>");
    assert_eq!(vocab.encode_prompt(b"t1\n\n").unwrap(), [2]);
    assert_eq!(vocab.decode(&[]), b"");
    assert_eq!(vocab.decode(&[0, 0]), b"");

    let strict = Vocab::parse(WORDS.replace(r#""unk_token": "<pad>""#, r#""unk_token": "<none>""#).as_bytes()).unwrap();
    assert_eq!(strict.encode(b"t1").unwrap(), [2]);
    assert_eq!(strict.encode(b"t1 t999").unwrap_err().kind, ErrorKind::Input);
}

#[test]
fn truncation_padding_and_post_processors_are_ignored() {
    let mut json = small_bpe();
    json["truncation"] = json!({"max_length": 1, "strategy": "LongestFirst", "stride": 0, "direction": "Right"});
    json["padding"] = json!({"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 1, "pad_type_id": 0, "pad_token": "<|padding|>"});
    json["post_processor"] = json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}}});
    assert_eq!(parse(&json).encode(b"hello hello").unwrap(), [HELLO, SPACE_HELLO]);
}

#[test]
fn newer_files_are_accepted() {
    let mut json = small_bpe();
    let split = |merge: &Value| Value::from(merge.as_str().unwrap().split(' ').collect::<Vec<_>>());
    json["model"]["merges"] = json["model"]["merges"].as_array().unwrap().iter().map(split).collect();
    json["normalizer"] = json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Sequence", "normalizers": []}]});
    json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": r"\s?\p{L}+|\s+(?!\S)|\s"}, "behavior": "Isolated", "invert": false},
        {"type": "Digits", "individual_digits": true},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
    ]});
    let vocab = parse(&json);
    assert_eq!(vocab.encode("hello hello12e\u{301}".as_bytes()).unwrap(), [HELLO, SPACE_HELLO, 2 + 49, 2 + 50, E_ACUTE]);
    assert_eq!(vocab.encode_prompt(b"hello\n\n").unwrap(), [HELLO, NEWLINE, NEWLINE]);
}

#[test]
fn invalid_utf8_is_an_input_error() {
    for vocab in [parse(&small_bpe()), Vocab::parse(WORDS.as_bytes()).unwrap()] {
        let e = vocab.encode(b"ab\xff").unwrap_err();
        assert_eq!(e.kind, ErrorKind::Input);
        assert!(e.message.contains("UTF-8") && e.message.contains("0xff at byte 2"), "{e}");
        assert_eq!(vocab.encode_prompt(b"\xe2\x82").unwrap_err().kind, ErrorKind::Input);
    }
}

#[test]
fn a_byte_without_a_token_is_not_dropped() {
    let mut json = small_bpe();
    json["model"]["vocab"].as_object_mut().unwrap().remove("z").unwrap();
    // the crate numbers added tokens after the vocabulary, so the vocabulary must keep its length
    json["model"]["vocab"]["zz"] = json!(2 + b'z' as u32);
    let e = parse(&json).encode(b"hello z").unwrap_err();
    assert!(e.kind == ErrorKind::Input && e.message.contains("byte 6, which is 0x7a"), "{e}");
    json["model"]["unk_token"] = json!("<|padding|>");
    assert_eq!(parse(&json).encode(b"helloz").unwrap(), [HELLO, 1]);
}

#[test]
fn damaged_tokenizers_are_refused() {
    let deep = |n: usize, kind: &str, key: &str| (0..n).fold(json!({"type": "NFC"}), |inner, _| json!({"type": kind, key: [inner]}));
    let absurd = [("a", u32::MAX), ("b", 1 << 20)].map(|(text, id)| json!({text: id}));
    let cases: Vec<(Value, &str)> = vec![
        (changed("/model", Value::Null), "line 1"),
        (changed("/model", json!({})), "the key \"type\" is missing"),
        (changed("/model", json!({"type": "BPE"})), "the key \"vocab\" is missing"),
        (changed("/model/type", json!("Unigram")), "found \"Unigram\" instead of one of"),
        (changed("/model/vocab", json!({})), "entry 0 of merges needs the token"),
        (changed("/model/vocab", json!([])), "found an array instead of an object"),
        (changed("/model/vocab", absurd[0].clone()), "expected a token id below 1048576, found 4294967295"),
        (changed("/model/vocab", absurd[1].clone()), "expected a token id below 1048576, found 1048576"),
        (changed("/model/vocab", json!({"a": -1})), "instead of a whole number of at least 0"),
        (changed("/model/vocab/a", json!(7)), "two tokens have the id 7"),
        (changed("/added_tokens/2/id", json!(12)), "two tokens have the id 12"),
        (changed("/added_tokens/2/id", json!(9999)), "expected the next free id 267 for the added token"),
        (changed("/added_tokens/4/id", json!(u32::MAX)), "expected a token id below"),
        (changed("/added_tokens/2/content", json!("")), "cannot be added to the vocabulary"),
        (changed("/added_tokens/3/content", json!("    ")), "found the id 268"),
        (
            changed("/added_tokens/3/content", json!("x".repeat(1 << 18))),
            "expected tokens of at most 1024 bytes, found 262144 bytes for the token with id 268",
        ),
        (changed("/added_tokens/0", json!({"id": 0})), "is missing"),
        (changed("/model/merges/0", json!("ab")), "expected 2 tokens in entry 0 of merges"),
        (changed("/model/merges/0", json!("a b")), "needs the token \"ab\""),
        (changed("/model/merges/0", json!("a b c")), "needs the token \"b c\""),
        (changed("/model/merges/0", json!(["a"])), "did not match"),
        (changed("/model/dropout", json!(0.5)), "with the setting dropout"),
        (changed("/model/unk_token", json!("nope")), "the vocabulary lacks the token \"nope\""),
        (changed("/model/continuing_subword_prefix", json!("é")), "with the setting continuing_subword_prefix"),
        (changed("/model/end_of_word_suffix", json!("</w>")), "with the setting end_of_word_suffix"),
        (changed("/pre_tokenizer", Value::Null), "needs a ByteLevel pre_tokenizer"),
        (changed("/pre_tokenizer", json!({"type": "Metaspace"})), "found \"Metaspace\" instead of one of"),
        (changed("/pre_tokenizer", deep(60, "Sequence", "pretokenizers")), "found \"NFC\" instead of one of"),
        (changed("/pre_tokenizer", deep(1000, "Sequence", "pretokenizers")), "nested too deep"),
        (changed("/normalizer", deep(1000, "Sequence", "normalizers")), "nested too deep"),
        (changed("/normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"})), "found \"Precompiled\" instead of one of"),
        (
            changed("/pre_tokenizer", json!({"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": false})),
            "the pre_tokenizer has an unsupported pattern",
        ),
        (
            changed("/pre_tokenizer", json!({"type": "Split", "pattern": {"Regex": "((a{999}){999}){999}"}, "behavior": "Isolated"})),
            "the pre_tokenizer has an unsupported pattern",
        ),
    ];
    for (json, want) in cases {
        let e = Vocab::parse(json.to_string().as_bytes()).map(|_| ()).expect_err(want);
        assert_eq!(e.kind, ErrorKind::File);
        assert!(e.to_string().contains(want), "expected {want}: {e}");
        assert!(e.to_string().len() < 400, "{e}");
    }
    let texts = [
        (r#"{"model": {"type": "WordLevel", "vocab": {"a": 0, "a": 1}, "unk_token": "a"}}"#, "the token \"a\" occurs twice"),
        (r#"{"model": {"type": "WordLevel", "vocab": {}, "unk_token": "a"}}"#, "has no tokens"),
        (r#"{"model": {"type": "WordLevel", "vocab": {"a": 0}}, "decoder": {"type": "Fuse"}}"#, "with a decoder"),
        (r#"{"model": {"type": "WordLevel", "vocab": {"a": 0}}, "model": null}"#, "occurs twice"),
        ("{\"model\":", "the JSON ends"),
        ("{", "the JSON ends"),
    ];
    for (text, want) in texts {
        let e = Vocab::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(e.contains(want), "{text}: {e}");
    }
    assert!(Vocab::parse(format!("{{\"a\":{}", "[".repeat(1 << 20)).as_bytes()).is_err());
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let text = small_bpe().to_string();
    for end in (1..text.len()).filter(|&n| text.is_char_boundary(n)) {
        assert!(Vocab::parse(&text.as_bytes()[..end]).is_err(), "cut at {end}");
    }
}

/// Replaces values of the file by other values of the file, and encodes a text with each file that opens.
#[test]
fn a_shuffled_file_does_not_panic() {
    let mut seed = 1u64;
    let mut random = |n: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % n
    };
    fn pointers(value: &Value, at: String, out: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                map.iter().for_each(|(k, v)| pointers(v, format!("{at}/{}", k.replace('~', "~0").replace('/', "~1")), out))
            }
            Value::Array(list) => list.iter().enumerate().for_each(|(i, v)| pointers(v, format!("{at}/{i}"), out)),
            _ => {}
        }
        out.push(at);
    }
    let originals: [Value; 2] = [small_bpe(), serde_json::from_str(WORDS).unwrap()];
    let mut n_opened = 0;
    for round in 0..3000 {
        let mut json = originals[round % 2].clone();
        let mut all = Vec::new();
        pointers(&json, String::new(), &mut all);
        // most JSON pointers point to tokens, so pointers to other values are chosen more often
        let outer: Vec<String> = all.iter().filter(|p| !p.starts_with("/model/vocab/")).cloned().collect();
        let list = if random(4) == 0 { &all } else { &outer };
        let (to, from) = (&list[random(list.len())], &list[random(list.len())]);
        let value = json.pointer(from).unwrap().clone();
        *json.pointer_mut(to).unwrap() = value;
        if let Ok(vocab) = Vocab::parse(json.to_string().as_bytes()) {
            n_opened += 1;
            let ids = vocab.encode_prompt("hello  <pad> t1 é😀\n\n".as_bytes()).unwrap_or_default();
            assert!(ids.iter().all(|&id| id <= vocab.max_id()));
            vocab.decode(&ids);
        }
    }
    assert!((100..2900).contains(&n_opened), "{n_opened} of 3000 opened");
}

/// Lists the golden texts with wrong ids or wrong decoded text, one line each.
fn mistakes(vocab: &Vocab, golden: &[(&str, &[u32], &[u32])]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (text, ids, prompt) in golden {
        let found = (vocab.encode(text.as_bytes()).unwrap(), vocab.encode_prompt(text.as_bytes()).unwrap());
        if found != (ids.to_vec(), prompt.to_vec()) || vocab.decode(ids) != text.as_bytes() {
            wrong.push(format!("{text:?}: {found:?}"));
        }
    }
    wrong
}

/// The published file is too large for the repository. The environment variable `WINGBEAT_20B_TOKENIZER` names a copy.
#[test]
fn gpt_neox_20b_matches_the_golden_ids() {
    let Some(path) = std::env::var_os("WINGBEAT_20B_TOKENIZER") else {
        println!("SKIPPED gpt_neox_20b_matches_the_golden_ids: WINGBEAT_20B_TOKENIZER does not name a copy of 20B_tokenizer.json");
        return;
    };
    let vocab = Vocab::open(Path::new(&path)).unwrap();
    assert_eq!((vocab.len(), vocab.max_id()), (50277, 50276));
    assert_eq!((vocab.token(187), vocab.token(535), vocab.token(0), vocab.token(1)), (&b"\n"[..], &b"\n\n"[..], &b""[..], &b""[..]));
    for n in 2..=24 {
        assert_eq!(vocab.token(50278 - n as u32), " ".repeat(n).as_bytes());
    }
    let bob: &[u32] = &[26845, 27, 14260, 187, 187, 2422, 547, 27];
    let golden: [(&str, &[u32], &[u32]); 5] = [
        ("Bob: hi\n\nAlice:", bob, bob),
        ("hello\n\n", &[25521, 535], &[25521, 187, 187]),
        ("The end.\n\n", &[510, 990, 15, 535], &[510, 990, 15, 187, 187]),
        ("    return x", &[50274, 2309, 1269], &[50274, 2309, 1269]),
        ("，：？！", &[6238, 18140, 26443, 26680], &[6238, 18140, 26443, 26680]),
    ];
    assert_eq!(mistakes(&vocab, &golden), [""; 0]);
    assert_eq!(mistakes(&vocab, &[("hello\n\n", &[25521, 535], &[25521, 535])]).len(), 1, "the comparer missed a wrong id");
    let whole = "It's 2024: naïve 😀 日本語 \u{fffd}\t\r\n  x";
    assert_eq!(vocab.decode(&vocab.encode(whole.as_bytes()).unwrap()), whole.as_bytes());
}
