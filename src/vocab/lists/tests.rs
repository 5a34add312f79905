//! Tests that lists in the form of GGUF files give the same ids as the vocabulary's own file.

use super::super::glm4::{SPECIAL, tests as glm4};
use super::super::huggingface::tests::small_bpe;
use super::*;
use crate::error::Kind;

/// Lists that own their texts.
struct Owned {
    model: &'static str,
    pre: Option<&'static str>,
    tokens: Vec<(String, i32)>,
    merges: Vec<String>,
}

impl Owned {
    fn vocab(&self) -> Result<Vocab> {
        let tokens: Vec<&str> = self.tokens.iter().map(|(text, _)| text.as_str()).collect();
        let types: Vec<i32> = self.tokens.iter().map(|(_, kind)| *kind).collect();
        let merges: Vec<&str> = self.merges.iter().map(String::as_str).collect();
        Vocab::from_lists(&Lists { model: self.model, pre: self.pre, tokens: &tokens, types: &types, merges: &merges, ..Lists::default() })
    }

    fn refusal(&self) -> String {
        let e = self.vocab().unwrap_err();
        assert_eq!(e.kind, Kind::File);
        e.to_string()
    }
}

/// Returns bytes as `repr` of Python writes them, without `b'` and `'`. llama.cpp's converter writes RWKV's tokens in this way.
fn python(token: &[u8]) -> String {
    let quote = if token.contains(&b'\'') && !token.contains(&b'"') { b'"' } else { b'\'' };
    let one = |&byte: &u8| match byte {
        b'\t' => r"\t".into(),
        b'\n' => r"\n".into(),
        b'\r' => r"\r".into(),
        b'\\' => r"\\".into(),
        b' '..=b'~' if byte == quote => format!("\\{}", quote as char),
        b' '..=b'~' => (byte as char).to_string(),
        _ => format!("\\x{byte:02x}"),
    };
    token.iter().map(one).collect()
}

fn rwkv(tokens: &[&[u8]], n: usize) -> Owned {
    let mut list = vec![("<s>".to_string(), CONTROL)];
    list.extend(tokens.iter().map(|token| (python(token), NORMAL)));
    list.extend((list.len()..n).map(|id| (format!("[PAD{id}]"), 5)));
    Owned { model: "rwkv", pre: None, tokens: list, merges: vec![] }
}

#[cfg(feature = "embedded-model")]
#[test]
fn the_world_vocabulary_is_recognised() {
    let world = Vocab::world();
    let tokens: Vec<&[u8]> = (1..=world.max_id()).map(|id| world.token(id)).collect();
    let mut lists = rwkv(&tokens, 65536);
    let own = |lists: &Owned, n_vocab: usize| {
        let texts: Vec<&str> = lists.tokens.iter().map(|(text, _)| text.as_str()).collect();
        let types: Vec<i32> = lists.tokens.iter().map(|(_, kind)| *kind).collect();
        crate::vocab::own(n_vocab, &Lists { model: "rwkv", pre: None, tokens: &texts, types: &types, ..Lists::default() })
    };
    let (vocab, note) = own(&lists, 65536).unwrap();
    assert!(Arc::ptr_eq(&vocab.scheme, &world.scheme) && note.is_none());
    lists.tokens[300].0 = "Hello".into();
    let (vocab, note) = own(&lists, 65536).unwrap();
    assert_eq!((vocab.token(300), vocab.first_difference(&world)), (&b"Hello"[..], Some(300)));
    assert!(note.unwrap().contains("differ from the World vocabulary, first at id 300"));
    assert!(own(&lists, 65529).unwrap_err().to_string().contains("ids up to 65529, but the model has 65529 embeddings"));
}

#[test]
fn only_normal_tokens_are_matched() {
    let tokens: [&[u8]; 11] = [b"<", b"s", b">", b"it's", b"\"it's\"", b"\\n", b"\n\t\r\0", b"\xff\xfe", "é".as_bytes(), b"[", b"a'"];
    let vocab = rwkv(&tokens, 14).vocab().unwrap();
    for (id, token) in (1..).zip(tokens) {
        assert_eq!((vocab.token(id), vocab.encode(token).unwrap()), (token, vec![id]));
    }
    assert_eq!((vocab.len(), vocab.token(0), vocab.encode(b"<s>").unwrap()), (11, &b""[..], vec![1, 2, 3]));
    let e = vocab.encode(b"[PAD12]").unwrap_err();
    assert!(e.to_string().contains("no token of the vocabulary matches the text at byte 1, which is 0x50"), "{e}");
}

#[test]
fn damaged_tokens_are_refused() {
    for text in ["\\", "a\\x", "\\x1", "\\xg0", ""] {
        let lists = Owned { model: "rwkv", pre: None, tokens: vec![(text.into(), NORMAL)], merges: vec![] };
        assert!(lists.refusal().contains("token 0 is empty or has an invalid escape"), "{text}");
    }
    let lists = Owned { model: "rwkv", pre: None, tokens: vec![("x".repeat(1025), NORMAL)], merges: vec![] };
    assert!(lists.refusal().contains("at most 1024 bytes"));
    let lists = Owned { model: "rwkv", pre: None, tokens: vec![("a".into(), CONTROL)], merges: vec![] };
    assert!(lists.refusal().contains("no normal tokens"));
    let lists = Owned { model: "t5", ..lists };
    assert!(lists.refusal().contains(r#"unsupported kind of vocabulary (tokenizer.ggml.model) "t5", expected rwkv, gpt2 or llama"#));
    let lists = Owned { model: "gpt2", pre: Some("llama-bpe"), ..lists };
    assert!(lists.refusal().contains(r#"unsupported splitting rule (tokenizer.ggml.pre) "llama-bpe", expected glm4, chatglm-bpe, gpt-2"#));
    assert!(Owned { pre: None, ..lists }.refusal().contains("splitting rule"));
}

/// Returns the lists of GPT-NeoX's small vocabulary, with three unused ids at its end.
fn neox() -> Owned {
    of(&small_bpe(), "olmo")
}

/// Returns the lists of a `tokenizer.json` with byte-level BPE.
fn of(json: &serde_json::Value, pre: &'static str) -> Owned {
    let mut tokens = vec![(String::new(), 5); 273];
    for (text, id) in json["model"]["vocab"].as_object().unwrap() {
        tokens[id.as_u64().unwrap() as usize] = (text.clone(), NORMAL);
    }
    for added in json["added_tokens"].as_array().unwrap() {
        let kind = if added["special"] == true { CONTROL } else { USER_DEFINED };
        tokens[added["id"].as_u64().unwrap() as usize] = (added["content"].as_str().unwrap().into(), kind);
    }
    let merges = json["model"]["merges"].as_array().unwrap().iter().map(|merge| merge.as_str().unwrap().to_string()).collect();
    Owned { model: "gpt2", pre: Some(pre), tokens, merges }
}

#[test]
fn qwen_agrees_with_its_tokenizer_json() {
    let mut json = small_bpe();
    let pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    json["pre_tokenizer"] = serde_json::json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
    ]});
    json["added_tokens"][1]["content"] = "<|im_start|>".into();
    json["model"]["vocab"]["<|im_start|>"] = json["model"]["vocab"].as_object_mut().unwrap().remove("<|padding|>").unwrap();
    let expected = Vocab::parse(json.to_string().as_bytes()).unwrap();
    for pre in QWEN2 {
        let vocab = of(&json, pre).vocab().unwrap();
        assert_eq!((vocab.first_difference(&expected), vocab.special("<|im_start|>")), (None, Some(1)));
        for text in TEXTS.into_iter().chain(["IT'S 12", "hello\n\n", "\n\nhello", "<|im_start|>hello"]) {
            assert_eq!(vocab.encode_prompt(text.as_bytes()).unwrap(), expected.encode_prompt(text.as_bytes()).unwrap(), "{text:?}");
        }
        // Digits are single, two newlines stay one token also at the end of a prompt, and no text becomes a special token.
        let [newlines, digits] = ["hello\n\n", "12"].map(|text| vocab.encode_prompt(text.as_bytes()).unwrap().len());
        assert_eq!((newlines, digits), (2, 2));
        assert!(!vocab.encode_prompt(b"<|im_start|>hello").unwrap().contains(&1));
        assert!(vocab.encode_prompt_marked(b"<|im_start|>hello").unwrap().starts_with(&[1]));
    }
}

const TEXTS: [&str; 6] =
    ["hello hello", "e\u{301} é 你好", "a\n\n", "x  y   z    ", "<|endoftext|>hello<|padding|>", "It's 2024: naïve 😀\t\r\n\0"];

#[test]
fn gpt_neox_agrees_with_its_tokenizer_json() {
    let json = Vocab::parse(small_bpe().to_string().as_bytes()).unwrap();
    let vocab = neox().vocab().unwrap();
    assert_eq!((vocab.first_difference(&json), vocab.max_id()), (None, 269));
    for text in TEXTS {
        assert_eq!(vocab.encode_prompt(text.as_bytes()).unwrap(), json.encode_prompt(text.as_bytes()).unwrap(), "{text:?}");
    }
    // GPT-2 does not normalise
    let gpt2 = Owned { pre: Some("gpt-2"), ..neox() }.vocab().unwrap();
    assert_ne!(gpt2.encode(TEXTS[1].as_bytes()).unwrap(), vocab.encode(TEXTS[1].as_bytes()).unwrap());
    let mut lists = neox();
    lists.merges.push("q q".into());
    assert!(lists.refusal().contains(r#"entry 9 of merges needs the token "qq""#));
    lists.merges[9] = "qq".into();
    assert!(lists.refusal().contains("expected 2 tokens in entry 9 of merges"));
}

/// Returns the lists of GLM-4's small vocabulary, with one unused id at its end.
fn glm() -> Owned {
    let small = glm4::of(&glm4::MERGES);
    let n = 256 + glm4::MERGES.len() as u32;
    let spelt = |id: u32| (small.token(id).iter().map(|&byte| byte_chars::char(byte)).collect(), NORMAL);
    let mut tokens: Vec<(String, i32)> = (0..n).map(spelt).collect();
    tokens.extend(SPECIAL.map(|text| (text.to_string(), CONTROL)));
    tokens.push(("<think>".into(), USER_DEFINED));
    tokens.push(("[PAD283]".into(), 5));
    Owned { model: "gpt2", pre: Some("glm4"), tokens, merges: vec!["h e".into()] }
}

#[test]
fn glm_agrees_with_its_tokenizer_model() {
    let small = glm4::of(&glm4::MERGES);
    for pre in GLM {
        let vocab = Owned { pre: Some(pre), ..glm() }.vocab().unwrap();
        // `<think>` has text when it is decoded, and is never found in text.
        let think = small.max_id() + 1;
        assert_eq!((vocab.first_difference(&small), vocab.len()), (Some(think), small.len() + 1));
        assert_eq!((vocab.special("<think>"), vocab.decode(&[think])), (Some(think), b"<think>".to_vec()));
        for text in TEXTS.into_iter().chain(["[gMASK]<sop><|user|>\nhello<think>"]) {
            assert_eq!(vocab.encode_prompt(text.as_bytes()).unwrap(), small.encode_prompt(text.as_bytes()).unwrap(), "{text:?}");
        }
        for special in SPECIAL {
            assert_eq!(vocab.special(special), small.special(special));
        }
    }
    let changed = |id: usize, text: &str| {
        let mut lists = glm();
        lists.tokens[id].0 = text.into();
        lists.refusal()
    };
    assert!(changed(3, "%").contains("the tokens of id 3 and id 4 are the same"));
    assert!(changed(3, "ab").contains("no token is the single byte 0x24"));
    assert!(changed(257, "a b").contains(r#"expected token 257 spelt with GPT-2's characters for bytes, found "a b""#));
}

fn written(vocab: &Vocab, n_vocab: usize) -> (crate::vocab::OwnedLists, Vocab) {
    let lists = vocab.lists(n_vocab).unwrap();
    assert_eq!((lists.tokens.len(), lists.types.len()), (n_vocab, n_vocab));
    let texts: Vec<&str> = lists.tokens.iter().map(String::as_str).collect();
    let merges: Vec<&str> = lists.merges.iter().map(String::as_str).collect();
    let read = Lists { model: lists.model, pre: lists.pre, tokens: &texts, types: &lists.types, merges: &merges, ..Lists::default() };
    let back = Vocab::from_lists(&read).unwrap();
    (lists, back)
}

#[cfg(feature = "embedded-model")]
#[test]
fn written_lists_of_rwkv_equal_those_of_the_converter() {
    for (vocab, n_vocab) in [(Vocab::tiny(), 2050), (Vocab::world(), 65536)] {
        let tokens: Vec<&[u8]> = (1..=vocab.max_id()).map(|id| vocab.token(id)).collect();
        let (lists, back) = written(&vocab, n_vocab);
        let python = rwkv(&tokens, n_vocab).tokens;
        assert!(lists.tokens.iter().zip(&python).all(|(a, (b, _))| a == b));
        assert!(lists.types.iter().zip(&python).all(|(a, (_, b))| a == b));
        assert_eq!((back.first_difference(&vocab), back.max_id()), (None, vocab.max_id()));
        for text in TEXTS {
            assert_eq!(back.encode(text.as_bytes()).unwrap(), vocab.encode(text.as_bytes()).unwrap(), "{text:?}");
        }
    }
}

#[test]
fn written_lists_of_glm_have_every_merge() {
    let vocab = glm4::with_more(&glm4::MERGES, &["<think>"]);
    let (lists, back) = written(&vocab, 290);
    assert_eq!((lists.model, lists.pre), ("gpt2", Some("glm4")));
    assert_eq!(
        (back.first_difference(&vocab), back.special("<|user|>"), back.special("<think>")),
        (None, vocab.special("<|user|>"), Some(282))
    );
    for text in TEXTS.into_iter().chain(["[gMASK]<sop><|user|>\nhello<think>", "hello aaaa 你好你"]) {
        assert_eq!(back.encode_prompt(text.as_bytes()).unwrap(), vocab.encode_prompt(text.as_bytes()).unwrap(), "{text:?}");
    }
    let merges = ["h e", "l l", "he ll", "hell o", "\u{120} hello", "l o"];
    assert_eq!(lists.merges[..6], merges);
    // The two ways to cut `aaa` are in the order of the ranks of their first parts.
    let of = |token: &str| lists.merges.iter().filter(|merge| merge.replace(' ', "") == token).cloned().collect::<Vec<_>>();
    assert_eq!(of("aaa"), ["a aa", "aa a"]);
    assert_eq!((lists.tokens[283].as_str(), lists.types[283], lists.types[282], lists.types[268]), ("[PAD283]", 5, USER_DEFINED, CONTROL));
}

/// GLM-4.7's `tokenizer.json` has other special tokens than GLM-4's, and is read by another module.
#[test]
fn a_tokenizer_json_of_glm_4_7_is_written() {
    let mut json = small_bpe();
    let added = |id: usize, content: &str, special: bool| {
        serde_json::json!({"id": id, "content": content, "special": special, "normalized": false,
                           "single_word": false, "lstrip": false, "rstrip": false})
    };
    let more = [(267, "[gMASK]", true), (268, "<|user|>", true), (269, "<think>", false)];
    let first = [(0, "<|endoftext|>", true), (1, "<|padding|>", true)];
    json["added_tokens"] = first.into_iter().chain(more).map(|(id, content, special)| added(id, content, special)).collect();
    json["normalizer"] = serde_json::Value::Null;
    for (ignores_merges, pre) in [(true, "glm4"), (false, "chatglm-bpe")] {
        json["model"]["ignore_merges"] = ignores_merges.into();
        let vocab = Vocab::parse(json.to_string().as_bytes()).unwrap();
        let (lists, back) = written(&vocab, 272);
        assert_eq!((lists.model, lists.pre), ("gpt2", Some(pre)));
        let merges: Vec<&str> = json["model"]["merges"].as_array().unwrap().iter().map(|merge| merge.as_str().unwrap()).collect();
        assert_eq!(lists.merges, merges);
        assert_eq!(lists.types[266..], [NORMAL, CONTROL, CONTROL, USER_DEFINED, 5, 5]);
        assert_eq!((back.first_difference(&vocab), back.special("[gMASK]"), back.special("<think>")), (None, Some(267), Some(269)));
        for text in ["hello hello", "你", "[gMASK]<think>hello"] {
            assert_eq!(back.encode(text.as_bytes()).unwrap(), vocab.encode(text.as_bytes()).unwrap(), "{text:?}");
        }
    }
    // The vocabulary of another model is not written.
    assert!(Vocab::parse(small_bpe().to_string().as_bytes()).unwrap().lists(272).is_none());
}
