//! Tests pieces, merges and damaged files with small vocabularies, and the published file if a copy exists.

use super::*;
use crate::error::Kind;
use crate::vocab::{Utf8Stream, Vocab};
use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use std::path::Path;
use std::sync::Arc;

/// Returns the lines of a file: all bytes, then `merges`.
pub(in crate::vocab) fn lines(merges: &[&[u8]]) -> Vec<String> {
    let bytes = byte_order();
    let tokens = bytes.chunks(1).chain(merges.iter().copied());
    tokens.enumerate().map(|(rank, token)| format!("{} {rank}\n", STANDARD.encode(token))).collect()
}

/// Returns made-up tokens that, after the 256 single bytes, fill a file to the published number: all pairs of bytes, then triples.
pub(super) fn full_merges() -> Vec<Vec<u8>> {
    let pairs = (0..=u16::MAX).map(|pair| pair.to_be_bytes().to_vec());
    let triples = (0..u32::MAX).map(|triple| triple.to_be_bytes()[1..].to_vec());
    pairs.chain(triples).take(N_RANKS - 256).collect()
}

/// Returns a file with the published number of tokens.
pub(in crate::vocab) fn full_file() -> String {
    lines(&full_merges().iter().map(Vec::as_slice).collect::<Vec<_>>()).concat()
}

/// Returns a vocabulary of all bytes and `merges`, then the special tokens.
pub(in crate::vocab) fn of(merges: &[&[u8]]) -> Vocab {
    Vocab { scheme: Arc::new(Glm4Vocab::from_lines(lines(merges).concat().as_bytes(), 256 + merges.len()).unwrap()) }
}

/// Returns a vocabulary like [`of`], with further special tokens that decoded text shows.
pub(in crate::vocab) fn with_more(merges: &[&[u8]], more: &[&str]) -> Vocab {
    let mut glm4 = Glm4Vocab::from_lines(lines(merges).concat().as_bytes(), 256 + merges.len()).unwrap();
    for text in more {
        let id = glm4.table.max_id() + 1;
        glm4.table.add(id, text.as_bytes()).unwrap();
        glm4.special.insert(text.to_string(), id);
    }
    Vocab { scheme: Arc::new(glm4) }
}

pub(in crate::vocab) const MERGES: [&[u8]; 12] = [
    b"he",
    b"ll",
    b"hell",
    b"hello",
    b" hello",
    b"lo",
    "你".as_bytes(),
    "你好".as_bytes(), // found as a whole piece, never by merging its parts
    b" \xf0\x9f",
    b"aa",
    b"aaa",
    b"\xf0\x9f",
];

fn small() -> Vocab {
    of(&MERGES)
}

fn pieces(text: &str) -> Vec<&str> {
    Pieces::of(text).collect()
}

#[test]
fn text_is_cut_as_the_pattern_cuts_it() {
    let cases: [(&str, &[&str]); 17] = [
        ("Hello, world!", &["Hello", ",", " world", "!"]),
        ("1234567890.5", &["123", "456", "789", "0", ".", "5"]),
        ("a\r\n \r\n  b", &["a", "\r\n \r\n", " ", " b"]),
        ("x = f(1)\n    return y\n\n\n", &["x", " =", " f", "(", "1", ")\n", "   ", " return", " y", "\n\n\n"]),
        ("\n \n\n  x", &["\n \n\n", " ", " x"]),
        ("你好，世界 12", &["你好", "，世界", " ", "12"]),
        ("trailing   ", &["trailing", "   "]),
        ("!!!\n\n?? \n", &["!!!\n\n", "??", " \n"]),
        ("naïve cafe\u{301} ½Ⅷ²", &["naïve", " cafe", "\u{301}", " ", "½Ⅷ²"]),
        ("'Re 'S ''ll", &["'Re", " '", "S", " ''", "ll"]),
        ("\u{a0}x\u{3000}y", &["\u{a0}x", "\u{3000}y"]),
        ("កាន់តែពិសេស", &["ក", "ាន", "់ត", "ែព", "ិស", "េស"]),
        ("'Sx 'ſx", &["'S", "x", " '", "ſx"]),
        ("it'ſ", &["it", "'ſ"]),
        ("\u{85}\u{200b}\u{1c} \u{a0}\t", &["\u{85}", "\u{200b}\u{1c}", " \u{a0}\t"]),
        ("a \u{a0}\t1", &["a", " \u{a0}", "\t", "1"]),
        ("", &[]),
    ];
    let mut wrong = Vec::new();
    for (text, want) in cases {
        if pieces(text) != want {
            wrong.push((text, pieces(text)));
        }
    }
    assert_eq!(wrong, []);
}

#[test]
fn pieces_merge_by_rank() {
    let vocab = small();
    let byte = |b: u8| byte_order().iter().position(|&x| x == b).unwrap() as u32;
    let m = |nth: u32| 256 + nth;
    let cases: [(&str, &[u32]); 9] = [
        ("", &[]),
        ("hello hello", &[m(3), m(4)]),
        ("hellolo", &[m(3), m(5)]),
        ("llo", &[m(1), byte(b'o')]),
        ("aaaa", &[m(9), m(9)]), // both pairs merge before the triple
        ("aaa", &[m(10)]),
        ("你好", &[m(7)]),
        ("你", &[m(6)]),
        ("!~ ", &[0, 93, 220]),
    ];
    for (text, ids) in cases {
        assert_eq!(vocab.encode(text.as_bytes()).unwrap(), ids, "{text:?}");
    }
}

/// Splits a piece by the plain rule: joins the adjacent parts with the lowest rank until no two parts can be joined.
fn split_by_search(vocab: &Vocab, piece: &[u8]) -> Vec<u32> {
    let rank = |bytes: &[u8]| (0..vocab.len() as u32 - 14).find(|&id| vocab.token(id) == bytes);
    if let Some(id) = rank(piece) {
        return vec![id];
    }
    let mut parts: Vec<Vec<u8>> = piece.iter().map(|&b| vec![b]).collect();
    while let Some((_, i)) = (1..parts.len()).filter_map(|i| rank(&parts[i - 1..=i].concat()).map(|rank| (rank, i))).min() {
        let right = parts.remove(i);
        parts[i - 1].extend(right);
    }
    parts.iter().map(|part| rank(part).unwrap()).collect()
}

#[test]
fn the_heap_joins_as_the_plain_rule() {
    // with two letters nearly all parts merge, in an order that does not depend on length
    let tokens = ["ba", "abb", "aa", "bab", "ab", "aaba", "bb", "babaa", "aab", "bbb", "abbba"];
    let tokens: Vec<&[u8]> = tokens.iter().map(|t| t.as_bytes()).collect();
    let vocab = Vocab { scheme: Arc::new(Glm4Vocab::from_lines(lines(&tokens).concat().as_bytes(), 256 + tokens.len()).unwrap()) };
    for n in 1..=11 {
        for bits in 0..1u32 << n {
            let piece: Vec<u8> = (0..n).map(|i| b"ab"[(bits >> i & 1) as usize]).collect();
            let ids = vocab.encode(&piece).unwrap();
            assert_eq!(ids, split_by_search(&vocab, &piece), "{}", String::from_utf8_lossy(&piece));
        }
    }
}

const HARD: &str =
    "It's 2024: naïve 😀 日本語 \u{fffd}\t\r\n  x\u{0}\u{301}\u{200d}👩‍👩‍👧 ﷽ \u{10ffff}\u{e000}\u{85}\u{2028} \u{a0}កាន់ ½Ⅷ² 'ſ hello  ";

#[test]
fn text_comes_back() {
    let vocab = small();
    let chars: Vec<char> = HARD.chars().collect();
    for i in 0..chars.len() {
        let text = String::from_iter(chars[i..].iter().chain(&chars[..i]).chain(&chars[i / 2..i]));
        assert_eq!(pieces(&text).concat(), text);
        assert_eq!(vocab.decode(&vocab.encode(text.as_bytes()).unwrap()), text.as_bytes());
    }
    for c in '\0'..=char::MAX {
        let text = c.encode_utf8(&mut [0; 4]).to_string();
        assert_eq!(pieces(&text), [&text]);
    }
    let e = vocab.encode(b"ab\xff").unwrap_err();
    assert_eq!((e.kind, e.to_string().contains("0xff at byte 2")), (Kind::Input, true), "{e}");
}

#[test]
fn long_pieces_take_no_quadratic_time() {
    let vocab = small();
    for part in ["a", "hellolo", "你好", " ", "\n ", "!", " \u{a0}"] {
        let text = part.repeat(1_000_000 / part.len());
        assert_eq!(vocab.decode(&vocab.encode(text.as_bytes()).unwrap()), text.as_bytes());
    }
}

/// Returns the tokens that are one piece of text but encode to other ids.
fn tokens_lost(vocab: &Vocab) -> Vec<u32> {
    let is_lost = |&id: &u32| match std::str::from_utf8(vocab.token(id)) {
        Ok(text) if !text.is_empty() && pieces(text).len() == 1 => vocab.encode(text.as_bytes()).unwrap() != [id],
        _ => false,
    };
    (0..=vocab.max_id()).filter(is_lost).collect()
}

#[test]
fn a_token_that_is_one_piece_encodes_to_itself() {
    assert_eq!(tokens_lost(&small()), [0; 0]);
    assert_eq!(tokens_lost(&Vocab::parse(full_file().as_bytes()).unwrap()), [0; 0]);
}

#[test]
fn special_tokens_have_ids_and_no_text() {
    let vocab = Vocab::parse(full_file().as_bytes()).unwrap();
    assert_eq!((vocab.len(), vocab.max_id()), (151_343, 151_342));
    let ids = [("<|endoftext|>", 151_329), ("[gMASK]", 151_331), ("<sop>", 151_333), ("<|system|>", 151_335), ("<|user|>", 151_336)];
    let more = [("<|assistant|>", 151_337), ("<|observation|>", 151_338), ("<|end_of_video|>", 151_342)];
    for (text, id) in ids.into_iter().chain(more) {
        assert_eq!(vocab.special(text), Some(id));
    }
    for text in ["", "hello", "<eos>", "<|user|> ", "<|USER|>"] {
        assert_eq!(vocab.special(text), None);
    }
    for special in SPECIAL {
        let text = format!("a{special} {special}{special}");
        let ids = vocab.encode(text.as_bytes()).unwrap();
        assert!(ids.iter().all(|&id| id < N_RANKS as u32), "{special}: {ids:?}");
        assert_eq!(vocab.decode(&ids), text.as_bytes());
    }
    // ids of special tokens, ids of unused embeddings, and unassigned ids
    for id in (151_329..151_600).chain([u32::MAX]) {
        assert_eq!((vocab.token(id), vocab.decode(&[0, id, 1])), (&b""[..], b"!\"".to_vec()));
    }
}

#[test]
fn a_prompt_begins_as_the_official_tokenizer_begins_it() {
    let vocab = Vocab::parse(full_file().as_bytes()).unwrap();
    for text in ["", "hello", "[gMASK]<sop>hello"] {
        let ids = vocab.encode(text.as_bytes()).unwrap();
        assert!(!ids.iter().any(|&id| id >= N_RANKS as u32), "{text}");
        let prompt = vocab.encode_prompt(text.as_bytes()).unwrap();
        assert_eq!((&prompt[..2], &prompt[2..]), (&[151_331, 151_333][..], &ids[..]));
        assert_eq!(vocab.decode(&prompt), text.as_bytes());
    }
    assert_eq!(vocab.encode_prompt(b"\xff").unwrap_err().kind, Kind::Input);
}

#[test]
fn a_character_in_several_tokens_is_streamed_whole() {
    let vocab = small();
    let ids = vocab.encode("hello: 🚀".as_bytes()).unwrap();
    let mut stream = Utf8Stream::new();
    let chunks: Vec<String> = ids.iter().map(|&id| stream.push(vocab.token(id)).to_string()).collect();
    assert_eq!(chunks, ["hello", ":", " ", "", "🚀"]);
    assert_eq!(stream.finish(), "");
}

/// Returns the error for a small file with changed lines.
fn refusal(change: impl Fn(&mut Vec<String>)) -> String {
    let mut lines = lines(&MERGES);
    change(&mut lines);
    let e = Glm4Vocab::from_lines(lines.concat().as_bytes(), 256 + MERGES.len()).err().unwrap();
    assert_eq!(e.kind, Kind::File);
    let text = e.to_string();
    assert!(!text.contains('\n') && text.len() < 250, "{text}");
    text
}

#[test]
fn errors_name_the_line() {
    let line = |nth: usize, text: &str| refusal(|lines| lines[nth - 1] = format!("{text}\n"));
    let cases = [
        (line(7, "Jw==6"), "line 7: expected a token as BASE64 RANK, found \"Jw==6"),
        (line(7, " 6"), "line 7: expected a token as BASE64 RANK"),
        (line(7, "Jw== "), "line 7: expected a token as BASE64 RANK"),
        (line(7, "Jw== 6 "), "line 7: expected a token as BASE64 RANK"),
        (line(7, "Jw== +6"), "line 7: expected a token as BASE64 RANK"),
        (line(7, "Jw= 6"), "line 7: expected a token as BASE64 RANK"),
        (line(7, "Jw=A 6"), "line 7: expected a token as BASE64 RANK"),
        (line(7, "J=== 6"), "line 7: expected a token as BASE64 RANK"),
        (line(7, "==== 6"), "line 7: expected a token as BASE64 RANK"),
        (line(7, "Jx== 6"), "line 7: expected a token as BASE64 RANK"),
        (line(7, "J-== 6"), "line 7: expected a token as BASE64 RANK"),
        (line(7, "\u{fffd} 6"), "line 7: expected a token as BASE64 RANK"),
        (line(7, &"x".repeat(10_000)), "line 7: expected a token as BASE64 RANK"),
        (line(7, "Jw== 268"), "line 7: expected a rank below 268, found 268"),
        (line(7, "Jw== 18446744073709551615"), "line 7: expected a rank below 268"),
        (line(7, "Jw== 99999999999999999999999"), "line 7: expected a token as BASE64 RANK"),
        (line(7, "Jw== 5"), "line 7: two tokens have the rank 5"),
        (line(7, "Jg== 6"), "line 7: expected the token of rank 6 to be byte 0x27, found \"&\""),
        (line(7, "Jw== 267"), "line 8: no token has the rank 6; the next rank is 7"),
        (line(258, "aGU= 257"), "line 258: ranks 256 and 257 have the same token"),
        (line(258, "bGw= 256"), "line 258: two tokens have the rank 256"),
        (refusal(|lines| drop(lines.pop())), "expected 268 tokens, found 267: ranks from 267 are missing"),
        (refusal(Vec::clear), "expected 268 tokens, found 0"),
    ];
    for (found, want) in cases {
        assert!(found.contains(want), "{found}, not {want}");
    }
}

#[test]
fn order_and_line_ends_do_not_matter() {
    let unix = lines(&MERGES);
    let windows: String = unix.iter().rev().map(|line| line.replace('\n', "\r\n\r\n")).collect();
    let vocab = Glm4Vocab::from_lines(windows.trim_end().as_bytes(), unix.len()).unwrap();
    assert_eq!(vocab.encode(b" hello").unwrap(), [260]);
}

#[test]
fn random_damage_never_panics() {
    let text = lines(&MERGES).concat();
    for i in 0..text.len() {
        for byte in *b"\0\n =A9\xff" {
            let mut damaged = text.clone().into_bytes();
            damaged[i] = byte;
            _ = Glm4Vocab::from_lines(&damaged, 256 + MERGES.len());
            _ = Glm4Vocab::from_lines(&damaged[..i], 256 + MERGES.len());
        }
    }
}

#[test]
fn the_format_is_recognised_by_content() {
    let said = |file: &[u8]| Vocab::parse(file).unwrap_err().to_string();
    // files of the same format with too few or too many tokens
    let few = said(lines(&MERGES).concat().as_bytes());
    assert!(few.contains("expected 151329 tokens, found 268") && few.contains("GLM-4"), "{few}");
    let many = said(format!("{}{} 151329\n", full_file(), STANDARD.encode(b"\xff\xff\xff\xff")).as_bytes());
    assert!(many.contains("line 151330: expected a rank below 151329, found 151329") && many.contains("GLM-4"), "{many}");
    // one space, but not base64
    assert!(said(b"abc 1\n").contains("expected a token as ID 'TEXT' LENGTH"));
}

/// The text by which llama.cpp's converters identify pre-tokenizers. `CHECK_IDS` are its published ids.
const CHECK: &str = "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n🚀 (normal) 😶\u{200d}🌫️ (multiple emojis concatenated) ✅ 🦙🦙 3 33 333 3333 33333 333333 \
    3333333 33333333 3.3 3..3 3...3 កាន់តែពិសេសអាច😁 ?我想在apple工作1314151天～ ------======= нещо на Български ''''''```````\"\"\"\"......!!!!!!?????? \
    I've been 'told he's there, 'RE you sure? 'M not sure I'll make it, 'D you like some tea? We'Ve a'lL";
#[rustfmt::skip]
const CHECK_IDS: [u32; 165] = [
    198, 4710, 14721, 65020, 7847, 1572, 2303, 78043, 10942, 9281, 248, 222, 320, 8251, 8, 26440, 114, 124564, 9281, 234, 104, 30423, 320,
    35495, 98226, 96714, 8, 25442, 227, 11157, 99, 247, 9281, 99, 247, 220, 18, 220, 100702, 220, 121577, 220, 121577, 18, 220, 121577,
    100702, 220, 121577, 121577, 220, 121577, 121577, 18, 220, 121577, 121577, 100702, 220, 18, 13, 18, 220, 18, 496, 18, 220, 18, 1112,
    18, 220, 20833, 222, 96709, 241, 44002, 233, 20833, 237, 44002, 224, 20833, 244, 20833, 115, 20833, 253, 44002, 223, 20833, 253,
    20833, 95, 96709, 227, 74764, 223, 937, 101446, 98319, 22320, 98538, 118901, 19, 99082, 16, 98411, 21168, 55088, 52883, 18625, 131040,
    13065, 146335, 78377, 3355, 4605, 4605, 13865, 13865, 73022, 3014, 3014, 28052, 17066, 2928, 26524, 7646, 358, 3003, 1012, 364, 83,
    813, 566, 594, 1052, 11, 364, 787, 498, 2704, 30, 364, 44, 537, 2704, 358, 3278, 1281, 432, 11, 364, 35, 498, 1075, 1045, 15231, 30,
    1205, 6, 42368, 264, 63409, 43,
];

/// Returns the texts of `golden` that the vocabulary encodes or decodes differently.
fn mistakes(vocab: &Vocab, golden: &[(&str, &[u32])]) -> Vec<String> {
    let found = |text: &str| vocab.encode(text.as_bytes()).unwrap();
    let is_wrong = |(text, ids): &&(&str, &[u32])| found(text) != *ids || vocab.decode(ids) != text.as_bytes();
    golden.iter().filter(is_wrong).map(|(text, _)| format!("{text:?}: {:?}", found(text))).collect()
}

/// The published file is too large for the repository. The environment variable `WINGBEAT_GLM_VOCAB` names a copy.
#[test]
fn glm4_matches_the_published_ids() {
    let Some(path) = std::env::var_os("WINGBEAT_GLM_VOCAB") else {
        println!("SKIPPED glm4_matches_the_published_ids: WINGBEAT_GLM_VOCAB does not name a copy of GLM-4's tokenizer.model");
        return;
    };
    let vocab = Vocab::open(Path::new(&path)).unwrap();
    let brown_fox: &[u32] = &[785, 3974, 13867, 38627, 34041, 916, 279, 15666, 5562, 220, 108714, 100461, 21, 100928, 24, 15, 13];
    let golden: [(&str, &[u32]); 11] = [
        (CHECK, &CHECK_IDS),
        ("你好", &[109377]),
        ("Hello, world!", &[9703, 11, 1879, 0]),
        ("你好，世界", &[109377, 3837, 99011]),
        ("Привет, мир!", &[148366, 8177, 11, 130422, 0]),
        ("I'm don't we've they'll it's", &[40, 2776, 1513, 944, 582, 3003, 807, 3278, 432, 594]),
        ("What is 2+2?", &[3838, 374, 220, 17, 10, 17, 30]),
        ("  leading and  double  spaces\t\ttabs\n\nblank\n", &[220, 6388, 323, 220, 1990, 220, 12615, 197, 3244, 3435, 271, 10184, 198]),
        ("Emoji: 🚀😀", &[91952, 25, 11157, 248, 222, 74764, 222]),
        ("def f(x):\n    return x * 2\n", &[750, 282, 2075, 982, 262, 470, 856, 353, 220, 17, 198]),
        ("The quick brown fox jumps over the lazy dog 1234567890.", brown_fox),
    ];
    assert_eq!(mistakes(&vocab, &golden), [""; 0]);
    assert_eq!(mistakes(&vocab, &[("你好", &[109378])]).len(), 1, "the comparer missed a wrong id");
    assert_eq!(tokens_lost(&vocab), [0; 0]);
    let mut stream = Utf8Stream::new();
    let chunks: Vec<String> = [91952, 25, 11157, 248, 222].iter().map(|&id| stream.push(vocab.token(id)).to_string()).collect();
    assert_eq!(chunks, ["Emoji", ":", " ", "", "🚀"]);
    assert_eq!(vocab.decode(&vocab.encode(HARD.as_bytes()).unwrap()), HARD.as_bytes());
}
