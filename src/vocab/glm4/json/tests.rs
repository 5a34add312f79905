//! Tests that `tokenizer.model`, `tokenizer.json` and the `tokenizers` crate give the same ids, and that damaged files are refused.

use crate::error::Kind;
use crate::vocab::glm4::tests::{full_merges, lines};
use crate::vocab::glm4::{Glm4Vocab, N_RANKS, N_RANKS_EDGE, SPECIAL, byte_order, pieces};
use crate::vocab::{MAX_FILE_BYTES, MAX_JSON_BYTES, Scheme, Vocab, byte_chars};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }

    /// Returns random text that consists of short runs of the character classes in the pattern.
    fn text(&mut self) -> String {
        let parts = [
            "a", "b", "c", "ab", "ca", " ", "  ", "\n", "\r\n", "\t", "1", "22", "!", "?!", "'s", "'RE", "é", "e\u{301}", "你", "好", "🚀",
            "\u{a0}",
        ];
        (0..self.below(24)).map(|_| parts[self.below(parts.len())]).collect()
    }
}

/// Returns `n` tokens, each the concatenation of two earlier tokens or bytes, as in BPE training.
fn merges(n: usize, random: &mut Random) -> Vec<Vec<u8>> {
    let mut tokens: Vec<Vec<u8>> = "abc \n\r\t12!?'sREé\u{301}你好🚀\u{a0}".bytes().map(|b| vec![b]).collect();
    let n_bytes = tokens.len();
    let mut known: HashSet<Vec<u8>> = tokens.iter().cloned().collect();
    while tokens.len() < n_bytes + n {
        let token = [0, 1].map(|_| tokens[random.below(tokens.len())].clone()).concat();
        if token.len() <= 9 && known.insert(token.clone()) {
            tokens.push(token);
        }
    }
    tokens.split_off(n_bytes)
}

fn spelt(token: &[u8]) -> String {
    token.iter().map(|&b| byte_chars::char(b)).collect()
}

/// Returns a `tokenizer.json` as converters write it.
fn file(merges: &[Vec<u8>]) -> Value {
    let tokens: Vec<Vec<u8>> = byte_order().into_iter().map(|b| vec![b]).chain(merges.iter().cloned()).collect();
    let rank: HashMap<&[u8], usize> = tokens.iter().enumerate().map(|(rank, token)| (token.as_slice(), rank)).collect();
    let halves = |token: &Vec<u8>| {
        let mut ways: Vec<[usize; 2]> = (1..token.len()).filter_map(|i| Some([*rank.get(&token[..i])?, *rank.get(&token[i..])?])).collect();
        ways.sort();
        ways.into_iter().map(|[a, b]| json!([spelt(&tokens[a]), spelt(&tokens[b])])).collect::<Vec<_>>()
    };
    let added = |(nth, content): (usize, &&str)| {
        json!({"id": tokens.len() + nth, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": SPECIAL.iter().enumerate().map(added).collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pieces::PUBLISHED}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        ]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
            "vocab": tokens.iter().enumerate().map(|(rank, token)| (spelt(token), json!(rank))).collect::<serde_json::Map<_, _>>(),
            "merges": tokens.iter().flat_map(halves).collect::<Vec<_>>(),
        }
    })
}

fn from_json(json: &Value, n_ranks: usize) -> Glm4Vocab {
    Glm4Vocab::from_json(json.to_string().as_bytes(), &[n_ranks]).unwrap().unwrap()
}

#[test]
fn both_files_give_the_same_ids() {
    let mut random = Random(1);
    for n_merges in [0, 40, 300, 2000] {
        let merges = merges(n_merges, &mut random);
        let n_ranks = 256 + n_merges;
        let json = file(&merges);
        let theirs = from_json(&json, n_ranks);
        let lines = lines(&merges.iter().map(Vec::as_slice).collect::<Vec<_>>()).concat();
        let ours = Glm4Vocab::from_lines(lines.as_bytes(), n_ranks).unwrap();
        let judge: tokenizers::Tokenizer = json.to_string().parse().unwrap();
        for _ in 0..2000 {
            let text = random.text();
            let ids = ours.encode(text.as_bytes()).unwrap();
            assert_eq!(theirs.encode(text.as_bytes()).unwrap(), ids, "{text:?}");
            assert_eq!(theirs.encode_prompt(text.as_bytes()).unwrap(), ours.encode_prompt(text.as_bytes()).unwrap());
            assert_eq!(judge.encode(text.as_str(), false).unwrap().get_ids(), ids, "{text:?}");
            assert_eq!((theirs.decode(&ids), ours.decode(&ids)), (text.clone().into_bytes(), text.into_bytes()));
        }
        assert_eq!(SPECIAL.map(|s| theirs.special(s)), SPECIAL.map(|s| ours.special(s)));
        assert_eq!(theirs.special("<sop>"), judge.token_to_id("<sop>"));
    }
}

#[test]
fn without_ignore_merges_words_would_get_other_ids() {
    // a word that is a token, but no two of its parts together are a token
    let mut json = file(&["你好".as_bytes().to_vec()]);
    let [with, without] = [true, false].map(|ignore| {
        json["model"]["ignore_merges"] = json!(ignore);
        let judge: tokenizers::Tokenizer = json.to_string().parse().unwrap();
        judge.encode("你好", false).unwrap().get_ids().len()
    });
    assert_eq!((with, without), (1, 6));
    json["model"]["ignore_merges"] = json!(true);
    assert_eq!(from_json(&json, 257).encode("你好".as_bytes()).unwrap(), [256]);
}

#[test]
fn equivalent_forms_are_accepted() {
    let merges = merges(50, &mut Random(2));
    let text = "ab ca\n\n你好 '!s 1  ".as_bytes();
    let ids = from_json(&file(&merges), 306).encode(text).unwrap();
    let mut json = file(&merges);
    // older converters list the added tokens among the other tokens, in any order
    for (nth, special) in SPECIAL.iter().enumerate() {
        json["model"]["vocab"][special] = json!(306 + nth);
    }
    json["added_tokens"].as_array_mut().unwrap().reverse();
    let split = &mut json["pre_tokenizer"]["pretokenizers"][0];
    (split["behavior"], split["invert"]) = (json!("Removed"), json!(true));
    json["post_processor"] = json!({"type": "TemplateProcessing", "single": "anything"});
    json["model"]["merges"] = json!(["not", {"looked": "at"}]);
    assert_eq!(from_json(&json, 306).encode(text).unwrap(), ids);
    let vocab = Vocab { scheme: std::sync::Arc::new(from_json(&json, 306)) };
    assert_eq!((vocab.len(), vocab.max_id()), (320, 319));
}

fn refusal(change: impl FnOnce(&mut Value)) -> String {
    let mut json = file(&merges(4, &mut Random(3)));
    change(&mut json);
    let e = Glm4Vocab::from_json(json.to_string().as_bytes(), &[260]).map(|_| ()).unwrap_err();
    assert_eq!(e.kind, Kind::File);
    let text = e.to_string();
    assert!(!text.contains('\n') && text.len() < 250, "{text}");
    text
}

/// Adds a token that decoded text shows.
fn add(json: &mut Value, id: u32, content: &str) {
    json["added_tokens"].as_array_mut().unwrap().push(json!({"id": id, "content": content, "special": false}));
}

#[test]
fn newer_special_tokens_are_found_by_name_and_not_in_text() {
    let mut json = file(&merges(4, &mut Random(7)));
    add(&mut json, 276, "<think>");
    add(&mut json, 274, "<|image|>");
    json["added_tokens"][15]["special"] = json!(true);
    json["model"]["vocab"]["<think>"] = json!(276);
    let vocab = Vocab { scheme: std::sync::Arc::new(from_json(&json, 260)) };
    assert_eq!(["<think>", "<|image|>", "<|user|>", "<sop>"].map(|s| vocab.special(s)), [Some(276), Some(274), Some(267), Some(264)]);
    assert!(vocab.encode(b"<think><|image|>").unwrap().iter().all(|&id| id < 260));
    assert_eq!((vocab.token(276), vocab.token(274), vocab.max_id()), (&b"<think>"[..], &b""[..], 276));
}

#[test]
fn glm_edge_has_fewer_tokens_and_no_start() {
    // The merges are skipped, so the file needs none.
    let mut json = file(&[]);
    let tokens = full_merges().into_iter().take(N_RANKS_EDGE - 256).enumerate();
    json["model"]["vocab"].as_object_mut().unwrap().extend(tokens.map(|(nth, token)| (spelt(&token), json!(256 + nth))));
    for (nth, added) in json["added_tokens"].as_array_mut().unwrap().iter_mut().enumerate() {
        added["id"] = json!(N_RANKS_EDGE + nth);
    }
    for keeps_pieces in [json!(true), json!(false), Value::Null] {
        json["model"]["ignore_merges"] = keeps_pieces;
        let vocab = Vocab::parse(json.to_string().as_bytes()).unwrap();
        let stops = ["<|endoftext|>", "<|user|>", "<|observation|>"].map(|s| vocab.special(s));
        assert_eq!((stops, vocab.max_id()), ([Some(59246), Some(59253), Some(59255)], 59259));
        let ids = vocab.encode_prompt(b"<|user|>").unwrap();
        assert!(ids.iter().all(|&id| id < 59246), "neither a start nor a special token in text: {ids:?}");
    }
}

#[test]
fn files_that_would_give_other_ids_are_refused() {
    let at = |pointer: &'static str, value: Value| refusal(|json| *json.pointer_mut(pointer).unwrap() = value);
    let cases = [
        (at("/model/ignore_merges", json!(false)), "must set ignore_merges"),
        (at("/model/ignore_merges", Value::Null), "must set ignore_merges"),
        (at("/normalizer", json!({"type": "NFC"})), "must not have a normalizer"),
        (at("/pre_tokenizer", Value::Null), "GLM-4's pattern"),
        (at("/pre_tokenizer/pretokenizers/0/pattern/Regex", json!(r"\s+|\S+")), "GLM-4's pattern"),
        (at("/pre_tokenizer/pretokenizers/0/pattern", json!({"String": " "})), "GLM-4's pattern"),
        (at("/pre_tokenizer/pretokenizers/0/behavior", json!("Removed")), "GLM-4's pattern"),
        (at("/pre_tokenizer/pretokenizers/1/add_prefix_space", json!(true)), "GLM-4's pattern"),
        (at("/pre_tokenizer/pretokenizers/1/use_regex", json!(true)), "GLM-4's pattern"),
        (at("/pre_tokenizer/pretokenizers/1", json!({"type": "Digits"})), "GLM-4's pattern"),
        (at("/added_tokens/4/content", json!("<bos>")), "\"<sop>\" with id 264 is missing, found \"<bos>\" with this id"),
        (at("/added_tokens/4/id", json!(300)), "\"<sop>\" with id 264 is missing ("),
        (refusal(|json| add(json, 274, "<sop>")), "have a new text and an id above 273, found \"<sop>\" with id 274"),
        (refusal(|json| add(json, 259, "<x>")), "have a new text and an id above 273, found \"<x>\" with id 259"),
        (refusal(|json| add(json, 274, "")), "have a new text and an id above 273, found \"\" with id 274"),
        (refusal(|json| drop(json["added_tokens"].as_array_mut().unwrap().pop())), "\"<|end_of_video|>\" with id 273 is missing"),
        (refusal(|json| json["model"]["vocab"]["x"] = json!(260)), "expected a token id below 260, found 260"),
        (refusal(|json| json["model"]["vocab"]["日"] = json!(259)), "spelt with GPT-2's characters for bytes, found \"日\""),
        (refusal(|json| json["model"]["vocab"][""] = json!(259)), "spelt with GPT-2's characters for bytes, found \"\""),
        (
            refusal(|json| drop(json["model"]["vocab"].as_object_mut().unwrap().remove("z"))),
            "no token has the rank 89; the next rank is 90",
        ),
        (refusal(|json| json["model"]["vocab"]["z"] = json!(5)), "two tokens have the rank 5"),
    ];
    for (found, want) in cases {
        assert!(found.contains(want), "{found}, not {want}");
    }
}

#[test]
fn a_file_of_another_family_is_not_read_as_glm4() {
    let mut json = file(&merges(4, &mut Random(4)));
    json["added_tokens"][2]["content"] = json!("<|begin_of_text|>");
    assert!(Glm4Vocab::from_json(json.to_string().as_bytes(), &[260]).unwrap().is_none());
    // the general reader takes the file, and finds its special tokens in text
    json["model"]["merges"] = json!([]);
    let vocab = Vocab::parse(json.to_string().as_bytes()).unwrap();
    assert_eq!(vocab.encode(b"<|begin_of_text|>").unwrap(), [262]);
    assert_eq!(vocab.special("<|user|>"), None);
}

#[test]
fn files_may_have_the_published_size() {
    let merges = full_merges();
    let mut json = file(&merges);
    // the published file has 318 000 merges, because its tokens can be cut in more ways than the made-up tokens
    let list = json["model"]["merges"].as_array_mut().unwrap();
    let last = list[list.len() - 1].clone();
    list.extend(std::iter::repeat_n(last, 318_000 - list.len()));
    let pretty = |json: &Value| serde_json::to_string_pretty(json).unwrap();
    let text = pretty(&json);
    assert!((MAX_FILE_BYTES..MAX_JSON_BYTES).contains(&(text.len() as u64)), "{}", text.len());
    let vocab = Vocab::parse(text.as_bytes()).unwrap();
    assert_eq!((vocab.len(), vocab.max_id(), vocab.special("<|user|>")), (N_RANKS + 14, 151_342, Some(151_336)));
    let ids = vocab.encode("<|user|> 你好".as_bytes()).unwrap();
    assert!(ids.iter().all(|&id| id < N_RANKS as u32), "{ids:?}");

    let refused = |text: &str, want: &str| {
        let e = Vocab::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(e.contains(want) && e.len() < 250, "{e}");
    };
    refused(&text[..text.len() - 9], "expected a Hugging Face tokenizer");
    refused(&(text.clone() + &" ".repeat(16 << 20)), "at most 33554432 bytes");
    // GLM-4.7's file is as large, and the general reader takes it.
    json["added_tokens"] = json!([]);
    assert_eq!(Vocab::parse(pretty(&json).as_bytes()).unwrap().len(), N_RANKS);
}

#[test]
fn random_damage_never_panics() {
    let json = file(&merges(4, &mut Random(5))).to_string().into_bytes();
    let mut random = Random(6);
    for _ in 0..4000 {
        let mut damaged = json.clone();
        let (from, to, n) = (random.below(json.len()), random.below(json.len()), random.below(12));
        let n = n.min(json.len() - from.max(to));
        damaged.copy_within(from..from + n, to);
        if let Ok(Some(vocab)) = Glm4Vocab::from_json(&damaged, &[260]) {
            vocab.encode("ab <sop> 你".as_bytes()).unwrap();
        }
        _ = Glm4Vocab::from_json(&damaged[..to], &[260]);
    }
}
