//! Tests the RWKV formats and damaged files, greedy match, golden ids, and text in pieces.

use super::*;
use crate::error::Kind;

/// A random number generator with a seed: splitmix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

fn parse(text: &str) -> Vocab {
    Vocab::parse(text.as_bytes()).unwrap()
}

fn refusal(text: &[u8]) -> String {
    let e = Vocab::parse(text).unwrap_err();
    assert_eq!(e.kind, Kind::File);
    e.to_string()
}

#[cfg(feature = "embedded-model")]
mod embedded {
    use super::*;

    const WORLD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/vocab/rwkv_vocab_v20230424.txt"));
    const GOLDEN: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/golden/world_tokens.jsonl"));

    /// Returns the input of a golden line: `text`, or `bytes` in hexadecimal.
    fn input(case: &serde_json::Value) -> Vec<u8> {
        if let Some(text) = case["text"].as_str() {
            return text.as_bytes().to_vec();
        }
        let hex = case["bytes"].as_str().unwrap();
        (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
    }

    /// Returns the numbers of the lines in a golden file that the vocabulary encodes or decodes differently.
    fn mismatches(vocab: &Vocab, golden: &str) -> Vec<usize> {
        let is_wrong = |line: &str| {
            let case: serde_json::Value = serde_json::from_str(line).unwrap();
            let ids: Vec<u32> = case["ids"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect();
            vocab.encode(&input(&case)).unwrap() != ids || vocab.decode(&ids) != input(&case)
        };
        (1..).zip(golden.lines()).filter(|(_, line)| is_wrong(line)).map(|(n, _)| n).collect()
    }

    #[test]
    fn world_matches_the_golden_ids() {
        assert!(GOLDEN.lines().count() > 100);
        assert_eq!(mismatches(&Vocab::world(), GOLDEN), [0; 0]);
    }

    #[test]
    fn the_comparer_finds_a_wrong_id() {
        let wrong = GOLDEN.replacen("33155", "33156", 1);
        assert_ne!(wrong, GOLDEN);
        assert_eq!(mismatches(&Vocab::world(), &wrong), [6]);
    }

    #[test]
    fn world_matches_the_published_examples() {
        let cases: [(&str, &[u32]); 7] = [
            ("\nIn a shocking finding", &[11, 1136, 332, 57212, 51746]),
            ("User: hi\n\nAssistant: <think", &[24281, 59, 4571, 261, 5585, 41693, 59, 295, 35762]),
            ("Assistant: <think>\n</think>", &[5585, 41693, 59, 295, 35762, 63, 11, 754, 35762, 63]),
            ("Hello, world!\n\n\n\nfoo", &[33155, 45, 40213, 34, 19239, 7578]),
            ("你好，世界", &[10464, 11685, 19137, 10267, 14610]),
            ("😀 ok", &[3319, 153, 129, 4709]),
            ("def f(x):\n    return x\n", &[7334, 337, 41, 121, 501, 28352, 42178, 355, 11]),
        ];
        for (text, ids) in cases {
            assert_eq!(Vocab::world().encode(text.as_bytes()).unwrap(), ids, "{text}");
        }
    }

    #[test]
    fn every_token_encodes_to_itself() {
        for (vocab, n) in [(Vocab::world(), 65529), (Vocab::tiny(), 2047)] {
            assert_eq!((vocab.len(), vocab.max_id()), (n, n as u32));
            for id in 1..=n as u32 {
                assert_eq!(vocab.encode(vocab.token(id)).unwrap(), [id]);
            }
            assert_eq!(vocab.token(0), b"");
            assert_eq!(vocab.decode(&[0, n as u32 + 1, u32::MAX]), b"");
        }
    }

    #[test]
    fn random_bytes_come_back() {
        let mut rng = Rng(1);
        for vocab in [Vocab::world(), Vocab::tiny()] {
            for n in 0..200 {
                let bytes = rng.bytes(n);
                assert_eq!(vocab.decode(&vocab.encode(&bytes).unwrap()), bytes);
                // the bytes of random tokens, without the first bytes, so that the text can begin within a token
                let ids: Vec<u32> = (0..n).map(|_| (rng.next() % vocab.len() as u64) as u32 + 1).collect();
                let bytes = &vocab.decode(&ids)[n / 2..];
                assert_eq!(vocab.decode(&vocab.encode(bytes).unwrap()), bytes);
            }
        }
    }

    /// Finds the longest token with which `text` begins by comparing every token.
    fn longest_by_search(vocab: &Vocab, text: &[u8]) -> u32 {
        let matching = (1..=vocab.max_id()).filter(|&id| text.starts_with(vocab.token(id)));
        matching.max_by_key(|&id| vocab.token(id).len()).unwrap()
    }

    #[test]
    fn the_longest_match_is_taken() {
        let vocab = Vocab::tiny();
        let mut rng = Rng(2);
        let ids: Vec<u32> = (0..400).map(|_| (rng.next() % 2047) as u32 + 1).collect();
        let text = vocab.decode(&ids);
        let mut rest = text.as_slice();
        for id in vocab.encode(&text).unwrap() {
            assert_eq!(id, longest_by_search(&vocab, rest));
            rest = &rest[vocab.token(id).len()..];
        }
    }

    #[test]
    fn line_ends_do_not_matter() {
        let lf: Vec<u8> = WORLD.iter().copied().filter(|&b| b != b'\r').collect();
        let cr_lf = String::from_utf8(lf.clone()).unwrap().replace('\n', "\r\n").into_bytes();
        let cut = |v: &[u8], n: usize| v[..v.len() - n].to_vec();
        for text in [cut(&lf, 1), cut(&cr_lf, 1), cut(&cr_lf, 2), lf, cr_lf] {
            let vocab = Vocab::parse(&text).unwrap();
            assert_eq!((vocab.len(), vocab.token(65529)), (65529, Vocab::world().token(65529)));
            assert_eq!(vocab.token(65530), b"");
        }
    }

    #[test]
    fn streamed_text_survives_the_replacement_character() {
        let vocab = Vocab::world();
        assert_eq!(vocab.token(19232), "\u{fffd}".as_bytes());
        let mut stream = Utf8Stream::new();
        let pieces: Vec<String> = [19232, 3319, 153, 129, 34].iter().map(|&id| stream.push(vocab.token(id)).to_string()).collect();
        assert_eq!(pieces, ["\u{fffd}", "", "", "😀", "!"]);
    }
}

#[test]
fn literals_are_read_as_python_reads_them() {
    let vocab = parse(concat!(
        "1 ' ' 1\n2 ' a b ' 5\n3 \"it's\" 4\n4 '\\xa0' 2\n5 b'\\xa0' 1\n6 '\\u00e9\\U0001f600' 6\n7 'é\u{2028}' 5\n",
        "8 '\\a\\b\\f\\v\\0\\r\\n\\t\\\\\\'\\\"' 11\n9 '\\1018' 2\n10 b'\\377\\12' 2\n11 b\"'\" 1\n12 '' 0\n13 '\"' 1",
    ));
    let want: [&[u8]; 13] = [
        b" ",
        b" a b ",
        b"it's",
        b"\xc2\xa0",
        b"\xa0",
        "é😀".as_bytes(),
        "é\u{2028}".as_bytes(),
        b"\x07\x08\x0c\x0b\0\r\n\t\\'\"",
        b"A8",
        b"\xff\n",
        b"'",
        b"",
        b"\"",
    ];
    for (id, want) in (1..).zip(want) {
        assert_eq!(vocab.token(id), want, "id {id}");
    }
    assert_eq!((vocab.len(), vocab.max_id()), (13, 13));
}

#[test]
fn ids_may_be_unsorted_and_the_last_of_equal_tokens_wins() {
    let vocab = parse("\u{feff}7 'abc' 3\n\n3 'a' 1\n900 'ab' 2\n5 b'abc' 3\n2 'b' 1\n0 'c' 1\n");
    assert_eq!(vocab.encode(b"abcababac").unwrap(), [5, 900, 900, 3, 0]);
    assert_eq!((vocab.token(7), vocab.token(5), vocab.token(4)), (&b"abc"[..], &b"abc"[..], &b""[..]));
    assert_eq!((vocab.len(), vocab.max_id()), (6, 900));
    assert!(vocab.encode(b"").unwrap().is_empty());
    let e = vocab.encode(b"ab\xf0").unwrap_err();
    assert_eq!(e.kind, Kind::Input);
    assert!(e.message.contains("0xf0") && e.message.contains("at byte 2"), "{e}");
}

#[test]
fn damaged_files_are_refused_by_line() {
    let cases: [(&str, &str); 26] = [
        ("", "found no line"),
        ("\n\r\n", "found no line"),
        ("1", "expected a token as ID 'TEXT' LENGTH"),
        ("1 'a'", "expected a token as ID 'TEXT' LENGTH"),
        ("[1, 2]", "looks like JSON"),
        ("[\"a\"]", "looks like JSON"),
        ("1099511627776 'a' 1", "expected a token id below"),
        ("99999999999999999999999 'a' 1", "expected a token id below"),
        ("1048576 'a' 1", "expected a token id below"),
        ("-1 'a' 1", "expected a token id below"),
        ("+1 'a' 1", "expected a token id below"),
        (" 'a' 1", "expected a token id below"),
        ("1 'a' 2", "has 1 byte, but the LENGTH in its line is 2"),
        ("1 'a' +1", "the LENGTH in its line is +1"),
        ("1 'a' ", "has 1 byte, but the LENGTH in its line is missing"),
        ("1 a 1", "must be"),
        ("1 'a 1", "must be"),
        ("1 ' 1", "must be"),
        ("1 'a'' 2", "unescaped '"),
        ("1 '\\' 1", "escape"),
        ("1 '\\d' 2", "escape"),
        ("1 '\\x+1' 1", "escape"),
        ("1 '\\ud800' 3", "escape"),
        ("1 '\\xé' 1", "escape"),
        ("1 b'\\u0041' 1", "escape"),
        ("1 b'é' 2", "outside ASCII"),
    ];
    for (text, want) in cases {
        let message = refusal(text.as_bytes());
        assert!(message.contains(want), "{text:?}: {message}");
        let later = refusal(format!("5 'x' 1\r\n\n6 'y' 1\n{text}\n7 'z' 2").as_bytes());
        let n_line = if text.trim().is_empty() { if text.is_empty() { 5 } else { 7 } } else { 4 };
        assert!(later.starts_with(&format!("line {n_line}: ")), "{text:?}: {later}");
    }
    assert!(refusal(b"1 'a' 1\n2 '\xff' 1").starts_with("line 2: expected UTF-8"));
    assert!(refusal(b"1 'a' 1\n1 'b' 1").contains("two tokens have the id 1"));
    assert!(refusal(b"1 '' 0\n1 'b' 1").contains("two tokens have the id 1"));
    assert!(refusal(b"1 b'\\400' 1").contains("escape"));
}

#[test]
fn the_json_form_is_the_same_vocabulary() {
    let text = r#"{ "1": "a", "257": "\n\u00e9😀", "9": [226, 130, 0], "3": "", "4": [97] }"#;
    let want: [(u32, &[u8]); 6] = [(1, b"a"), (257, b"\n\xc3\xa9\xf0\x9f\x98\x80"), (9, b"\xe2\x82\0"), (3, b""), (4, b"a"), (2, b"")];
    for json in [text.into(), format!("\u{feff}\r\n{text}\n")] {
        let vocab = parse(&json);
        for (id, bytes) in want {
            assert_eq!(vocab.token(id), bytes, "id {id}");
        }
        assert_eq!((vocab.len(), vocab.max_id()), (5, 257));
        assert_eq!(vocab.encode(b"\n\xc3\xa9\xf0\x9f\x98\x80a\xe2\x82\0").unwrap(), [257, 4, 9]);
        assert_eq!(vocab.encode_prompt(b"aa").unwrap(), [4, 4]);
        assert_eq!(vocab.encode(b"b").unwrap_err().kind, Kind::Input);
    }
}

#[test]
fn damaged_json_is_refused() {
    let cases = [
        (r#"{"1": "a""#, "the JSON ends inside an object"),
        (r#"{"1": "a", "1": "b"}"#, "two tokens have the id 1"),
        (r#"{"1": "a", "01": "b"}"#, "two tokens have the id 1"),
        (r#"{"1": [256]}"#, "instead of a whole number from 0 to 255"),
        (r#"{"1": [-1]}"#, "instead of a whole number from 0 to 255"),
        (r#"{"1": 1}"#, "instead of a string or an array of bytes"),
        (r#"{"1": null}"#, "instead of a string or an array of bytes"),
        (r#"{"1": [[1]]}"#, "instead of a whole number from 0 to 255"),
        (r#"{"1": "a", "x": "b"}"#, "expected a token id below 1048576, found x"),
        (r#"{"1": "a", "-2": "b"}"#, "found -2"),
        (r#"{"1048576": "a"}"#, "expected a token id below"),
        (r#"{"99999999999999999999": "a"}"#, "expected a token id below"),
        (r#"{"1": "a"} 2"#, "more text follows the JSON value"),
        (r#"{"1": "\ud800"}"#, "line 1, column"),
        (r#"{}"#, "tokenizer.json"),
        (r#"{"a": 1}"#, "the key \"model\" is missing"),
    ];
    for (text, want) in cases {
        let message = refusal(text.as_bytes());
        assert!(message.contains(want), "{text}: {message}");
    }
    assert!(refusal(b"{\"1\": \"\xff\"}").contains("line 1, column"));
    let deep = format!("{{\"1\": {}", "[".repeat(100_000));
    assert!(refusal(deep.as_bytes()).contains("instead of a whole number from 0 to 255"));
    // 65 536 different tokens of two bytes
    let many: Vec<String> = (0..65_536).map(|i| format!("\"{i}\": [{}, {}]", i >> 8, i & 255)).collect();
    assert_eq!(parse(&format!("{{{}}}", many.join(","))).encode(b"\xff\x01\0\x07").unwrap(), [0xff01, 7]);
}

#[test]
fn an_absent_file_is_an_error_with_its_path() {
    let e = Vocab::open(Path::new("/nowhere/vocab.txt")).unwrap_err();
    assert_eq!(e.kind, Kind::File);
    assert_eq!(e.place.as_deref(), Some("/nowhere/vocab.txt"));
}

#[test]
fn a_vocabulary_is_shared_between_threads() {
    fn check<T: Send + Sync + Clone>() {}
    check::<Vocab>();
}

/// Decodes `bytes` cut at `cuts`. Returns the concatenated results.
fn streamed(bytes: &[u8], cuts: &[usize]) -> String {
    let mut stream = Utf8Stream::new();
    let (mut text, mut from) = (String::new(), 0);
    for &cut in cuts.iter().chain([&bytes.len()]) {
        text += stream.push(&bytes[from..cut]);
        assert!(stream.pending.len() <= 3);
        from = cut;
    }
    text + &stream.finish()
}

#[test]
fn utf8_in_pieces_equals_utf8_at_once() {
    let hard: &[u8] = b"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xef\xbf\xbd\xff\xc0\xaf\xe2\x82x\xf0\x9f\x98\xed\xa0\x80\xf4\x90\xe2\x82";
    let whole = String::from_utf8_lossy(hard);
    for i in 0..=hard.len() {
        for j in i..=hard.len() {
            assert_eq!(streamed(hard, &[i, j]), whole);
        }
    }
    let every_byte: Vec<usize> = (0..hard.len()).collect();
    assert_eq!(streamed(hard, &every_byte), whole);

    let mut rng = Rng(3);
    for _ in 0..500 {
        // mostly lead and continuation bytes, so that many sequences are almost valid
        let bytes: Vec<u8> =
            rng.bytes(40).iter().map(|&b| if b & 1 == 0 { b | 0x80 } else { b"\xe2\x9f\xf0\x80z"[b as usize % 5] }).collect();
        let mut cuts: Vec<usize> = (0..8).map(|_| rng.next() as usize % 41).collect();
        cuts.sort_unstable();
        assert_eq!(streamed(&bytes, &cuts), String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn invalid_bytes_do_not_wait() {
    let mut stream = Utf8Stream::new();
    assert_eq!(stream.push(b"\xff"), "\u{fffd}");
    assert_eq!(stream.push(b"\xe2\x82"), "");
    assert_eq!(stream.push(b"A"), "\u{fffd}A");
    assert_eq!(stream.push(b"\xf0\x9f"), "");
    assert_eq!(stream.finish(), "\u{fffd}");
    assert_eq!(stream.finish(), "");
}

/// Filters `text` in pieces of `n` characters. Returns the text that passes, and whether a stop text was found.
fn stop_at(stops: &[&str], text: &str, n: usize) -> (String, bool) {
    let mut filter = StopTexts::new(stops.iter().map(|s| s.to_string()).collect());
    let (mut out, mut stopped) = (String::new(), false);
    let chars: Vec<char> = text.chars().collect();
    for piece in chars.chunks(n) {
        let (certain, now) = filter.push(&String::from_iter(piece));
        assert!(!stopped || (certain.is_empty() && now));
        out += certain;
        stopped = now;
    }
    (out + &filter.finish(), stopped)
}

#[test]
fn stop_texts_end_the_text_however_it_is_cut() {
    let cases: [(&[&str], &str, &str, bool); 12] = [
        (&[], "abc", "abc", false),
        (&[""], "abc", "abc", false),
        (&["\n\n"], "one\ntwo\n\nthree", "one\ntwo", true),
        (&["\n\n"], "one\n", "one\n", false),
        (&["User:", "\n\n"], "hello User: x", "hello ", true),
        (&["User:"], "UserUser:", "User", true),
        (&["aab"], "aaaab", "aa", true),
        (&["abc", "b"], "zabc", "za", true),         // `b` is complete first
        (&["yabc", "bc", "c"], "xyabcd", "x", true), // all are complete at the same byte: the longest wins
        (&["日本"], "日曜日日本語", "日曜日", true),
        (&["abcd"], "abcabcabc", "abcabcabc", false),
        (&["x"], "x", "", true),
    ];
    for (stops, text, want, stopped) in cases {
        for n in 1..=text.chars().count() {
            assert_eq!(stop_at(stops, text, n), (want.to_string(), stopped), "{stops:?} in {text:?} by {n}");
        }
    }
}

#[test]
fn only_the_beginning_of_a_stop_text_is_held_back() {
    let mut filter = StopTexts::new(vec!["<end>".into()]);
    assert_eq!(filter.push("a <e"), ("a ", false));
    assert_eq!(filter.push("n<en"), ("<en", false));
    assert_eq!(filter.push("d"), ("", false));
    assert_eq!(filter.push("> more"), ("", true));
    assert_eq!(filter.push("still"), ("", true));
    assert_eq!(filter.finish(), "");
}
