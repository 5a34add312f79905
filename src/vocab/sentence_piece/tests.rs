//! Compares ids with the official package. Tests ChatGLM3's special tokens and damaged models.

use super::*;
use crate::error::Kind as ErrorKind;
use crate::vocab::{Utf8Stream, Vocab};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// Small models, and the official package's ids for texts. Written by `sentence_piece.py` in the same folder.
const GOLDEN: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/golden/sentence_piece.jsonl"));

fn hex(value: &Value) -> Option<Vec<u8>> {
    let hex = value.as_str()?;
    Some((0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect())
}

/// Returns the models, each with its texts and ids.
fn golden() -> Vec<(Vec<u8>, Vec<Value>)> {
    let mut models: Vec<(Vec<u8>, Vec<Value>)> = Vec::new();
    let mut trained = Vec::new();
    for line in GOLDEN.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if let Some(model) = hex(&line["model"]) {
            trained = model;
            models.push((trained.clone(), vec![]));
        } else if let Some(more) = hex(&line["append"]) {
            models.push(([&trained[..], &more].concat(), vec![]));
        } else {
            models.last_mut().unwrap().1.push(line);
        }
    }
    models
}

fn parse(file: &[u8]) -> Vocab {
    Vocab::parse(file).unwrap()
}

/// Returns the golden texts that the vocabulary encodes or decodes differently, one line each.
fn mistakes(vocab: &Vocab, lines: &[Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    for line in lines {
        let ids: Vec<u32> = line["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
        if let Some(text) = line["text"].as_str() {
            let found = vocab.encode(text.as_bytes()).unwrap();
            if found != ids {
                wrong.push(format!("{text:?}: {found:?}, not {ids:?}"));
            }
        }
        let unknown = (0..vocab.max_id()).find(|&id| vocab.token(id).is_empty()).unwrap();
        let text = line["decoded"].as_str().or(line["text"].as_str()).unwrap();
        let found = vocab.decode(&ids);
        if !ids.contains(&unknown) && found != text.as_bytes() {
            wrong.push(format!("{ids:?}: {:?}, not {text:?}", String::from_utf8_lossy(&found)));
        }
    }
    wrong
}

#[test]
fn ids_match_the_official_package() {
    let models = golden();
    assert_eq!(models.len(), 7);
    for (nth, (file, lines)) in models.iter().enumerate() {
        assert!(lines.len() > 80, "model {nth}");
        assert_eq!(mistakes(&parse(file), lines), [""; 0], "model {nth}");
    }
    // `mistakes` reports texts if the ids come from another model
    assert!(mistakes(&parse(&models[1].0), &models[0].1).len() > 50);
    assert!(mistakes(&parse(&models[6].0), &models[5].1).len() > 50);
}

#[test]
fn long_texts_take_no_quadratic_time() {
    for (file, _) in [&golden()[0], &golden()[4], &golden()[6]] {
        let vocab = parse(file);
        for part in ["a", "ab", "你好", " ", "hello world", "<n>", "abb"] {
            vocab.encode(part.repeat(1_000_000 / part.len()).as_bytes()).unwrap();
        }
    }
}

#[test]
fn each_text_has_a_space_of_its_own_before_it() {
    let vocab = parse(&golden()[0].0);
    let [a, b] = ["hello", "world"].map(|text| vocab.encode(text.as_bytes()).unwrap());
    assert_ne!(vocab.encode(b"helloworld").unwrap(), [a.clone(), b.clone()].concat());
    assert_eq!(vocab.decode(&[a.clone(), b.clone()].concat()), b"hello world");
    // streamed tokens keep their first space, because the text may continue an earlier text
    let mut stream = Utf8Stream::new();
    let text: String = a.iter().chain(&b).map(|&id| stream.push(vocab.token(id)).to_string()).collect();
    assert_eq!(text, " hello world");
    assert_eq!(vocab.encode_prompt(b"hello").unwrap(), a, "only ChatGLM3's prompts have tokens before the text");
    let e = vocab.encode(b"ab\xff").unwrap_err();
    assert_eq!((e.kind, e.to_string().contains("0xff at byte 2")), (ErrorKind::Input, true), "{e}");
}

#[test]
fn bytes_are_streamed_as_whole_characters() {
    let vocab = parse(&golden()[0].0);
    let ids = vocab.encode("a🚀\0".as_bytes()).unwrap();
    let mut stream = Utf8Stream::new();
    let chunks: Vec<String> = ids.iter().map(|&id| stream.push(vocab.token(id)).to_string()).collect();
    assert_eq!(chunks, [" a", "", "", "", "🚀", "\0"]);
    let byte = |byte: u8| (0..300).find(|&id| vocab.token(id) == [byte]).unwrap();
    let half = [byte(0xf0), byte(0x9f), byte(b'a')];
    assert_eq!(vocab.decode(&half), b"\xf0\x9fa");
    // decoding does not remove a space that comes from a byte piece
    assert_eq!(vocab.decode(&[3 + 0x20, 3 + b'a' as u32]), b" a");
}

/// Returns a protobuf field with bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let len = bytes.len() as u8;
    let len = if bytes.len() < 128 { vec![len] } else { vec![len | 0x80, (bytes.len() >> 7) as u8] };
    [&[number << 3 | 2][..], &len, bytes].concat()
}

fn piece(text: &str, score: f32, kind: u8) -> Vec<u8> {
    field(1, &[&field(1, text.as_bytes())[..], &[0x15], &score.to_le_bytes(), &[0x18, kind]].concat())
}

/// Returns the fields `trainer_spec` and `normalizer_spec` of a BPE model with `byte_fallback` that removes no spaces.
fn specs() -> Vec<u8> {
    [field(2, &[0x18, 2, 0x98, 2, 1]), field(3, &[0x20, 0])].concat()
}

/// Returns a model with as many pieces as ChatGLM3, of the same kinds in the same order.
pub(in crate::vocab) fn like_chatglm3() -> Vec<u8> {
    let mut file = [piece("<unk>", 0.0, 2), piece("<s>", 0.0, 3), piece("</s>", 0.0, 3)].concat();
    file.extend((0..=255u8).flat_map(|byte| piece(&format!("<0x{byte:02X}>"), 0.0, 6)));
    let words = ["▁", "h", "i", "hi", "▁hi", "你", "好", "你好", "<", "|", ">"];
    let fill = (0..).map(|n| format!("x{n}"));
    let words = words.into_iter().map(String::from).chain(fill).take(N_CHATGLM3 - 259);
    file.extend(words.enumerate().flat_map(|(n, word)| piece(&word, -(n as f32), 1)));
    [file, specs()].concat()
}

#[test]
fn chatglm3_has_its_special_tokens() {
    let vocab = parse(&like_chatglm3());
    assert_eq!((vocab.len(), vocab.max_id()), (64_798, 64_797));
    let ids = CHATGLM3.map(|text| vocab.special(text).unwrap());
    assert_eq!(ids.to_vec(), (64_789..=64_797).collect::<Vec<_>>());
    assert_eq!((vocab.special("</s>"), vocab.special("<s>")), (Some(2), Some(1)));
    for text in ["<unk>", "<sop>", "<|endoftext|>", "hi", "<0x0A>", ""] {
        assert_eq!(vocab.special(text), None, "{text}");
    }
    // user text never becomes a special token
    for text in CHATGLM3.into_iter().chain(["</s>", "<unk>", "<0x0A>"]) {
        let ids = vocab.encode(text.as_bytes()).unwrap();
        assert!(ids.iter().all(|&id| (3..64_789).contains(&id)), "{text}: {ids:?}");
        assert_eq!(vocab.decode(&ids), text.as_bytes());
    }
    // ids of unused embeddings, and unassigned ids
    for id in (64_789..65_024).chain([0, 1, 2, u32::MAX]) {
        assert_eq!((vocab.token(id), vocab.decode(&[id])), (&b""[..], vec![]));
    }
}

#[test]
fn chatglm3_prompts_begin_as_the_official_tokenizer_begins_them() {
    let vocab = parse(&like_chatglm3());
    assert_eq!(vocab.encode(b"\n").unwrap(), [259, 3 + 10]);
    assert_eq!(vocab.encode("你好".as_bytes()).unwrap(), [259, 266]);
    assert_eq!(vocab.encode_prompt(b"hi").unwrap(), [64_790, 64_792, 263]);
    assert_eq!(vocab.encode_prompt(b"").unwrap(), [64_790, 64_792]);
    // the parts of a chat are encoded separately, and decoding removes the space of each part
    let chat = [64_790, 64_792, 64_795, 259, 13, 263, 64_796, 259, 13, 263, 2];
    assert_eq!(vocab.decode(&chat), b"\n hi\n hi");
    assert_eq!(vocab.decode(&[64_796, 263, 64_795, 263]), b"hihi");
    assert_eq!(vocab.decode(&[263, 259, 263]), b"hi  hi");
}

/// Calls `read` with the lists that llama.cpp's converter writes for a model: its pieces, then `more` with their types.
fn as_lists<T>(file: &[u8], more: &[(&str, i32)], read: impl FnOnce(&crate::vocab::Lists) -> T) -> T {
    let SentencePieceModel { pieces, spaces, .. } = SentencePieceModel::parse(file).unwrap();
    let number = |kind: PieceKind| match kind {
        PieceKind::Normal => 1,
        PieceKind::Unknown => 2,
        PieceKind::Control => 3,
        PieceKind::UserDefined => 4,
        PieceKind::Byte => 6,
    };
    let tokens: Vec<&str> = pieces.iter().map(|p| p.text.as_str()).chain(more.iter().map(|(text, _)| *text)).collect();
    let types: Vec<i32> = pieces.iter().map(|p| number(p.kind)).chain(more.iter().map(|(_, kind)| *kind)).collect();
    let scores: Vec<f32> = pieces.iter().map(|p| p.score).chain(more.iter().map(|_| 0.0)).collect();
    read(&crate::vocab::Lists {
        model: "llama",
        tokens: &tokens,
        types: &types,
        scores: &scores,
        adds_space: Some(spaces.add_dummy_prefix),
        removes_spaces: Some(spaces.remove_extra),
        ..Default::default()
    })
}

#[test]
fn lists_give_the_ids_of_the_file() {
    for (nth, (file, lines)) in golden().iter().enumerate() {
        let vocab = as_lists(file, &[("[PAD]", UNUSED)], |lists| Vocab::from_lists(lists).unwrap());
        assert_eq!(mistakes(&vocab, lines), [""; 0], "model {nth}");
        assert_eq!((vocab.first_difference(&parse(file)), vocab.len()), (None, parse(file).len()), "model {nth}");
    }
    let file = like_chatglm3();
    // The types of special tokens differ between converters.
    let mut special = CHATGLM3.map(|text| (text, 3)).to_vec();
    special[4].1 = 4;
    special.extend([("[PAD64798]", UNUSED), ("[PAD64799]", UNUSED)]);
    let (own, vocab) = (parse(&file), as_lists(&file, &special, |lists| Vocab::from_lists(lists).unwrap()));
    assert_eq!((vocab.first_difference(&own), vocab.len(), vocab.max_id()), (None, own.len(), own.max_id()));
    for text in ["hi 你好", "  hi", "[gMASK]sop<|user|>\n hi", "\n", ""] {
        assert_eq!(vocab.encode_prompt(text.as_bytes()).unwrap(), own.encode_prompt(text.as_bytes()).unwrap(), "{text:?}");
    }
    assert_eq!(CHATGLM3.map(|text| vocab.special(text)), CHATGLM3.map(|text| own.special(text)));
    let refusal = |change: fn(&mut crate::vocab::Lists)| {
        as_lists(&golden()[0].0, &[], |lists| {
            let mut lists = *lists;
            change(&mut lists);
            Vocab::from_lists(&lists).unwrap_err().to_string()
        })
    };
    assert!(refusal(|lists| lists.scores = &[]).contains("expected a score for each of "));
    assert!(refusal(|lists| (lists.tokens, lists.types, lists.scores) = (&["a"], &[1], &[0.0])).contains("no piece for unknown text"));
    assert!(
        refusal(|lists| (lists.tokens, lists.types, lists.scores) = (&["a"], &[9], &[0.0]))
            .contains("token 0: expected a piece of type 1 to 6")
    );
    assert!(refusal(|lists| (lists.tokens, lists.types, lists.scores) = (&["a"], &[1], &[f32::NAN])).contains("expected a finite number"));
}

#[test]
fn unsupported_models_are_refused_by_name() {
    let unk = || piece("<unk>", 0.0, 2);
    let a = || piece("a", 0.0, 1);
    let bytes = || (0..=255u8).flat_map(|byte| piece(&format!("<0x{byte:02X}>"), 0.0, 6)).collect::<Vec<u8>>();
    let bpe = || field(2, &[0x18, 2]);
    assert!(SentencePiece::parse(&[unk(), a(), bpe()].concat()).is_ok());
    assert!(SentencePiece::parse(&[unk(), a(), bytes(), specs()].concat()).is_ok());
    let wide = |n: u8| [unk(), a(), vec![n << 3 | 1], vec![0; 8], bpe()].concat();
    assert!(SentencePiece::parse(&wide(9)).is_ok());
    let cases: [(Vec<u8>, &str); 25] = [
        ([unk(), a()].concat(), "trainer_spec: expected a SentencePiece model of type BPE, found Unigram"),
        ([unk(), a(), field(2, &[0x18, 3])].concat(), "found Word"),
        ([unk(), a(), field(2, &[0x18, 0])].concat(), "found type 0"),
        ([unk(), a(), field(2, &[0x18, 99])].concat(), "found type 99"),
        ([unk(), a(), bpe(), field(2, &[0xc0, 1, 1])].concat(), "a SentencePiece model with treat_whitespace_as_suffix is not supported"),
        ([unk(), a(), bpe(), field(3, &[0x28, 0])].concat(), "normalizer_spec: a SentencePiece model without escape_whitespaces"),
        (
            [unk(), a(), bpe(), field(3, &field(2, b"x"))].concat(),
            "normalizer_spec: a SentencePiece model with text normalisation is not supported",
        ),
        (
            [unk(), a(), bpe(), field(5, &field(2, b"x"))].concat(),
            "denormalizer_spec: a SentencePiece model with text normalisation is not supported",
        ),
        ([unk(), piece("a", 0.0, 5), bpe()].concat(), "piece 1: a SentencePiece model with unused pieces is not supported"),
        ([unk(), piece("a", 0.0, 7), bpe()].concat(), "piece 1: expected a piece of type 1 to 6, found type 7"),
        ([unk(), piece("a", f32::NAN, 1), bpe()].concat(), "piece 1: expected a finite number as score of the piece, found NaN"),
        ([unk(), piece("a", f32::INFINITY, 1), bpe()].concat(), "piece 1: expected a finite number as score of the piece, found inf"),
        ([unk(), piece("", 0.0, 1), bpe()].concat(), "piece 1: the piece has no text"),
        ([unk(), field(1, &field(1, b"\xff")), bpe()].concat(), "piece 1: the text of the piece is not UTF-8"),
        ([unk(), a(), a(), bpe()].concat(), "piece 2: the piece has the same text as piece 1"),
        ([unk(), a(), piece("a", 0.0, 3), bpe()].concat(), "piece 2: the piece has the same text"),
        ([unk(), piece("b", 0.0, 2), bpe()].concat(), "piece 1: the SentencePiece model has two pieces for unknown text"),
        ([a(), bpe()].concat(), "the SentencePiece model has no piece for unknown text"),
        ([unk(), a(), bytes(), bpe()].concat(), "the SentencePiece model has 256 byte pieces, but byte_fallback is off"),
        ([unk(), a(), specs()].concat(), "byte_fallback needs 256 byte pieces, found 0 byte pieces"),
        (
            [unk(), piece("<0x0a>", 0.0, 6), bpe()].concat(),
            "piece 1: expected the text of a byte piece, <0x00> to <0xFF>, found \"<0x0a>\"",
        ),
        ([unk(), piece("<0x+A>", 0.0, 6), bpe()].concat(), "piece 1: expected the text of a byte piece"),
        ([unk(), a(), bpe(), vec![0x0b]].concat(), "invalid data 1 byte before the end"),
        ([unk(), a(), bpe(), vec![0x80; 11]].concat(), "invalid data 11 bytes before the end"),
        ([unk(), a(), bpe(), vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]].concat(), "invalid data"),
    ];
    for (file, want) in cases {
        let e = SentencePiece::parse(&file).map(|_| ()).expect_err(want);
        let text = e.to_string();
        assert!(e.kind == ErrorKind::File && text.contains(want) && !text.contains('\n') && text.len() < 250, "{text}, not {want}");
    }
}

#[test]
fn damage_never_panics() {
    let (file, _) = &golden()[4];
    for i in 0..file.len() {
        _ = Vocab::parse(&file[..i]);
        for change in [1u8, 0x80, 0xff] {
            let mut damaged = file.clone();
            damaged[i] ^= change;
            if let Ok(vocab) = Vocab::parse(&damaged) {
                _ = vocab.decode(&vocab.encode("hello <n> 你好".as_bytes()).unwrap_or_default());
            }
        }
    }
}

#[test]
fn the_format_is_recognised_by_content() {
    // the length of the first piece is 123, the code of `{`
    let long = piece(&"u".repeat(114), 0.0, 2);
    assert_eq!(long[1], b'{');
    let vocab =
        Vocab { scheme: Arc::new(SentencePiece::parse(&[long.clone(), piece("a", 0.0, 1), field(2, &[0x18, 2])].concat()).unwrap()) };
    assert_eq!(parse(&[long, piece("a", 0.0, 1), field(2, &[0x18, 2])].concat()).len(), vocab.len());
    let e = Vocab::parse(b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02\n\x0c\n\x03<s>").unwrap_err().to_string();
    assert!(e.contains("SentencePiece"), "{e}");
}

/// The published file is too large for the repository. The environment variable `WINGBEAT_CHATGLM3_VOCAB` names a copy.
#[test]
fn chatglm3_matches_the_published_ids() {
    let Some(path) = std::env::var_os("WINGBEAT_CHATGLM3_VOCAB") else {
        println!("SKIPPED chatglm3_matches_the_published_ids: WINGBEAT_CHATGLM3_VOCAB does not name a copy of its tokenizer.model");
        return;
    };
    let vocab = Vocab::open(Path::new(&path)).unwrap();
    assert_eq!((vocab.len(), vocab.max_id()), (64_798, 64_797));
    let hello: &[u32] = &[
        36474, 54591, 243, 162, 148, 142, 31404, 33030, 34797, 42481, 22011, 10461, 30944, 30966, 30941, 30978, 30949, 31123, 48895, 35214,
        54622, 31123, 32616, 39905, 31901, 31639, 31155,
    ];
    let main: &[u32] = &[884, 1301, 9427, 13, 296, 4466, 2029, 15616, 30914, 993, 3387, 12, 31010, 30174];
    let round: &[u32] = &[790, 30951, 517, 30910, 30939, 30996, 13, 13, 54761, 31211, 39701, 13, 13, 55437, 31211];
    let golden: [(&str, &[u32]); 8] = [
        ("\n", &[30910, 13]),
        ("hi", &[14980]),
        ("你好", &[36474, 54591]),
        ("晚上睡不着应该怎么办", &[30910, 32820, 54266, 31876, 35153]),
        ("Using a Transformer network is simple", &[6316, 260, 3107, 17639, 2804, 323, 2718]),
        ("你好👋！我是人工智能助手 ChatGLM3-6B，很高兴见到你，欢迎问我任何问题。", hello),
        ("def main():\n    print('hello world')\t# greeting", main),
        ("[Round 1]\n\n问：你好\n\n答：", round),
    ];
    for (text, ids) in golden {
        assert_eq!(vocab.encode(text.as_bytes()).unwrap(), ids, "{text:?}");
        assert_eq!(vocab.decode(ids), text.as_bytes());
        assert_eq!(vocab.encode_prompt(text.as_bytes()).unwrap(), [&[64_790, 64_792], ids].concat());
    }
}
