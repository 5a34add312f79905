//! Compares the allowed tokens with the tokens that a simple recogniser allows. Also tests schemas, and grammars that try to use much time or
//! memory.

use super::gbnf::{Chars, Expr, Rules, parse};
use super::*;
use crate::vocab::Vocab;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Returns a vocabulary of these tokens. Their ids count from 1. Id 0 ends the text.
fn vocab(tokens: &[&str]) -> Vocab {
    let escaped = |token: &str| token.replace('\\', "\\\\").replace('\n', "\\n");
    let line = |(i, token): (usize, &&str)| format!("{} '{}' {}\n", i + 1, escaped(token), token.len());
    Vocab::parse(tokens.iter().enumerate().map(line).collect::<String>().as_bytes()).unwrap()
}

fn pieces(vocab: &Vocab) -> Pieces {
    Pieces::new(vocab, vocab.max_id() as usize + 1).unwrap()
}

fn is_allowed(follower: &mut Follower, id: u32) -> bool {
    let allowed = follower.allowed().unwrap();
    allowed.ids.get(id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1)
}

/// For a rule and the place in the text where its match begins: all places where the match may end. The sets grow until none changes any more.
type Known = HashMap<(usize, usize), BTreeSet<usize>>;

fn is_char(chars: &Chars, c: char) -> bool {
    chars.ranges.iter().any(|&(from, to)| (from..=to).contains(&c)) != chars.is_negated
}

fn ends(expr: &Expr, text: &[char], from: usize, known: &mut Known) -> BTreeSet<usize> {
    match expr {
        Expr::Char(chars) => text.get(from).filter(|c| is_char(chars, **c)).map(|_| from + 1).into_iter().collect(),
        Expr::Rule(rule) => known.entry((*rule, from)).or_default().clone(),
        Expr::Sequence(all) => {
            let begin = BTreeSet::from([from]);
            all.iter().fold(begin, |starts, e| starts.iter().flat_map(|&s| ends(e, text, s, known)).collect())
        }
        Expr::Either(all) => all.iter().flat_map(|e| ends(e, text, from, known)).collect(),
        Expr::Repeat(one, least, most) => {
            let (mut at, mut all) = (BTreeSet::from([from]), BTreeSet::new());
            // more repetitions than characters cannot add a match
            for n in 0..=most.unwrap_or(u32::MAX).min(text.len() as u32 + *least) {
                if n >= *least {
                    all.extend(&at);
                }
                at = at.iter().flat_map(|&s| ends(one, text, s, known)).collect();
            }
            all
        }
    }
}

/// Returns whether the text follows the rules: extends all known matches until no match is new.
fn follows(rules: &Rules, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let mut known = Known::from([((rules.root, 0), BTreeSet::new())]);
    loop {
        let before = known.clone();
        for (rule, from) in before.keys() {
            let found = ends(&rules.bodies[*rule], &text, *from, &mut known);
            known.get_mut(&(*rule, *from)).unwrap().extend(found);
        }
        if known == before {
            return known[&(rules.root, 0)].contains(&text.len());
        }
    }
}

/// Checks for every text of at most `longest` characters that the follower and the recogniser agree on whether the text follows the grammar.
fn agrees(grammar: &str, alphabet: &str, longest: usize) {
    let rules = parse(grammar).unwrap();
    let chars: Vec<String> = alphabet.chars().map(String::from).collect();
    let vocab = vocab(&chars.iter().map(String::as_str).collect::<Vec<_>>());
    let start = pieces(&vocab).follow(&Grammar::gbnf(grammar).unwrap()).unwrap();
    // the follower is `None` if the text is not allowed
    let mut wait = vec![(String::new(), Some(start))];
    let mut n_texts = 0;
    while let Some((text, mut follower)) = wait.pop() {
        let may_end = follower.as_mut().is_some_and(|f| f.allowed().unwrap().may_end);
        let expected = follows(&rules, &text);
        assert_eq!(may_end, expected, "{text:?} and {grammar}");
        n_texts += usize::from(expected);
        if text.chars().count() < longest {
            for (id, c) in (1..).zip(&chars) {
                let mut next = follower.clone().filter(|f| is_allowed(&mut f.clone(), id));
                if let Some(next) = &mut next {
                    next.accept(id).unwrap();
                }
                wait.push((format!("{text}{c}"), next));
            }
        }
    }
    assert!(n_texts > 0, "no text of {longest} characters follows {grammar}");
}

#[test]
fn followers_agree_with_a_plain_recogniser() {
    let grammars = [
        // a greedy lexer would refuse some texts of these grammars
        r#"root ::= [a-c]* "c""#,
        r#"root ::= "a" "b" | "ab" "c""#,
        r#"root ::= ("a" | "ab") ("c" | "bc")"#,
        "root ::= x x\nx ::= \"a\"+ | \"b\" x",
        "root ::= word (\"b\" word)*\nword ::= [ab]+",
        "root ::= s\ns ::= \"a\" s \"b\" | \"a\"* \"c\" | \"ab\"",
        "root ::= s\ns ::= s s | \"a\" | \"ab\" | \"b\" s \"c\"",
        // left and right recursion, empty parts, nested repetitions
        "root ::= root \"a\" | \"b\"",
        "root ::= \"a\" root | \"b\" |",
        "root ::= (\"a\"? \"b\"?){2,3}",
        "root ::= x{2}\nx ::= \"a\" x? \"b\"?",
        "root ::= p\np ::= \"a\" p \"a\" | \"b\" p \"b\" | [abc]?",
        "root ::= ws p ws\nws ::= [c]*\np ::= \"a\" ws (p ws)* \"b\"",
        "root ::= (x | y)+\nx ::= \"a\" y?\ny ::= \"b\" x? | \"c\"",
        "root ::= \"\" | e\ne ::= \"a\" e* \"\" ",
        "root ::= [^b] .? [^a-b]*",
    ];
    for grammar in grammars {
        agrees(grammar, "abc", 6);
    }
    agrees("root ::= [а-яé-ü]{2} \"→\"? | \"\\u00e9\" .", "aéж→", 4);
}

#[test]
fn well_known_grammars_follow_texts_token_by_token() {
    let tokens =
        ["a", "b", "x", "1", "23", " ", "+", "=", "\n", "(", ")", "x+", "1)", "- ", "*", "-", "e4", "Nf3", "1.", " e5", "O-O", ". "];
    let vocab = vocab(&tokens);
    let pieces = pieces(&vocab);
    let arithmetic = "root ::= (expr \"=\" ws term \"\\n\")+\nexpr ::= term ([-+*/] term)*\nterm ::= ident | num | \"(\" ws expr \")\" ws\n\
                      ident ::= [a-z] [a-z0-9_]* ws\nnum ::= [0-9]+ ws\nws ::= [ \\t\\n]*\n";
    let list = "root ::= item+\nitem ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"\n";
    let chess = "root ::= \"1. \" move \" \" move \"\\n\" ([1-9] [0-9]? \". \" move \" \" move \"\\n\")*\n\
                 move ::= (pawn | piece | castle) [+#]?\npawn ::= ([a-h] \"x\")? [a-h] [1-8] (\"=\" [NBQR])?\n\
                 piece ::= [NBKQR] [a-h]? [1-8]? \"x\"? [a-h] [1-8]\ncastle ::= \"O-O\" \"-O\"?\n";
    let cases = [
        (arithmetic, vec!["x+", "1", "=", "23", "\n"], true),
        (arithmetic, vec!["(", "x+", "1)", "*", "b", " ", "=", "x"], false),
        (list, vec!["- ", "a", "Nf3", "\n", "- ", "1", "\n"], true),
        (chess, vec!["1.", " ", "e4", " e5", "\n"], true),
        (chess, vec!["1", ". ", "Nf3", " ", "O-O", "+", "\n"], true),
        (chess, vec!["1", ". ", "Nf3", " ", "O-O"], false),
    ];
    for (grammar, text, may_end) in cases {
        let rules = parse(grammar).unwrap();
        assert_eq!(follows(&rules, &text.concat()), may_end, "{text:?}");
        let mut follower = pieces.follow(&Grammar::gbnf(grammar).unwrap()).unwrap();
        for token in &text {
            follower.accept(tokens.iter().position(|t| t == token).unwrap() as u32 + 1).unwrap_or_else(|e| panic!("{text:?} {token}: {e}"));
        }
        assert_eq!(follower.allowed().unwrap().may_end, may_end, "{text:?}");
    }
}

/// Draws random allowed tokens. Returns the text, or `None` if the text is not complete after `longest` tokens.
fn walk(follower: &mut Follower, vocab: &Vocab, seed: u64, longest: usize) -> Option<String> {
    let mut numbers = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = Vec::new();
    for _ in 0..longest {
        let allowed = follower.allowed().unwrap();
        let ids: Vec<u32> = (0..allowed.ids.len() as u32 * 32).filter(|id| allowed.ids[*id as usize / 32] >> (id % 32) & 1 == 1).collect();
        numbers = numbers.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if ids.is_empty() || allowed.may_end && numbers >> 60 < 4 {
            assert!(allowed.may_end);
            return Some(String::from_utf8(text).unwrap());
        }
        let id = ids[(numbers >> 33) as usize % ids.len()];
        text.extend(vocab.token(id));
        follower.accept(id).unwrap();
    }
    None
}

#[cfg(feature = "embedded-model")]
#[test]
fn random_walks_through_json_parse() {
    let vocab = Vocab::tiny();
    let pieces = pieces(&vocab);
    let schema = json!({
        "type": "object",
        "properties": { "name": { "type": "string", "maxLength": 8 }, "age": { "type": "integer", "minimum": 0, "maximum": 120 }, "kind": { "enum": ["cat", "dog"] } },
        "required": ["name", "age", "kind"],
        "additionalProperties": false
    });
    let of_schema = pieces.follow(&Grammar::json_schema(&schema).unwrap()).unwrap();
    let of_gbnf =
        pieces.follow(&Grammar::gbnf(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/grammars/json.gbnf"))).unwrap()).unwrap();
    let any = pieces.follow(&Grammar::json_value()).unwrap();
    let mut n_whole = [0; 3];
    for seed in 0..100 {
        for (which, follower) in [&of_schema, &of_gbnf, &any].into_iter().enumerate() {
            let Some(text) = walk(&mut follower.clone(), &vocab, seed, 60) else { continue };
            n_whole[which] += 1;
            // the grammar allows JSON numbers of any size, but the JSON parser does not
            let value: Value = match serde_json::from_str(&text) {
                Err(e) if e.to_string().contains("out of range") => continue,
                other => other.unwrap_or_else(|e| panic!("{text:?}: {e}")),
            };
            if which == 0 {
                let object = value.as_object().unwrap();
                assert_eq!(object.keys().collect::<Vec<_>>(), ["name", "age", "kind"]);
                assert!(value["name"].as_str().unwrap().chars().count() <= 8 && value["age"].as_u64().unwrap() <= 120);
                assert!(["cat", "dog"].contains(&value["kind"].as_str().unwrap()));
            }
        }
    }
    assert!(n_whole.iter().all(|&n| n > 20), "{n_whole:?}");
}

#[test]
fn a_text_is_complete_if_no_token_may_follow() {
    let vocab = vocab(&["y", "e", "s", "yes", "no", "n"]);
    let pieces = pieces(&vocab);
    let mut follower = pieces.follow(&Grammar::gbnf("root ::= \"yes\" | \"no\"").unwrap()).unwrap();
    assert!(!follower.allowed().unwrap().may_end);
    assert!(follower.accept(3).is_err() && follower.accept(0).is_err() && follower.accept(7).is_err());
    let mut other = follower.clone();
    follower.accept(4).unwrap();
    assert!(follower.allowed().unwrap().is_complete());
    other.accept(1).unwrap();
    assert!(!other.allowed().unwrap().is_complete() && is_allowed(&mut other, 2) && !is_allowed(&mut other, 3));
    let mut empty = pieces.follow(&Grammar::gbnf("root ::=").unwrap()).unwrap();
    assert!(empty.allowed().unwrap().is_complete());
    // no token of the vocabulary continues the text
    let mut stuck = pieces.follow(&Grammar::gbnf("root ::= \"yet\"").unwrap()).unwrap();
    stuck.accept(1).unwrap();
    let error = stuck.accept(2).and_then(|()| stuck.allowed().map(|_| ())).unwrap_err();
    assert!(error.to_string().contains("grammar"), "{error}");
}

#[test]
fn logits_are_masked_and_ends_follow_the_grammar() {
    let mask = |may_end| {
        let mut logits = [0.0f32; 70];
        Allowed { ids: &[0b1011, u32::MAX], may_end }.mask(&mut logits, &[0, 65, 99]);
        (0..70).filter(|&i| logits[i] == 0.0).collect::<Vec<_>>()
    };
    let text: Vec<usize> = [1, 3].into_iter().chain(32..64).collect();
    assert_eq!(mask(false), text);
    assert_eq!(mask(true), [&[0], text.as_slice(), &[65]].concat());
}

#[test]
fn tokens_may_be_parts_of_characters() {
    // The tokens: é's first byte, é's last byte, a byte that never occurs in UTF-8, é's last byte with the first byte of another é, and `a`.
    let vocab = Vocab::parse(b"1 b'\\xc3' 1\n2 b'\\xa9' 1\n3 b'\\xff' 1\n4 b'\\xa9\\xc3' 2\n5 'a' 1\n").unwrap();
    let mut follower = pieces(&vocab).follow(&Grammar::gbnf("root ::= .{2}").unwrap()).unwrap();
    let allowed = |f: &mut Follower| (1..6).filter(|&id| is_allowed(f, id)).collect::<Vec<_>>();
    assert_eq!(allowed(&mut follower), [1, 5]);
    follower.accept(1).unwrap();
    assert_eq!(allowed(&mut follower), [2, 4]);
    follower.accept(4).unwrap();
    assert_eq!(allowed(&mut follower), [2]);
    follower.accept(2).unwrap();
    assert!(follower.allowed().unwrap().is_complete());
}

#[test]
fn hostile_grammars_end_soon() {
    let vocab = vocab(&["a", "b", "ab", "(", ")"]);
    let pieces = pieces(&vocab);
    let chain: String = (0..5000).map(|i| format!("r{i} ::= \"a\" r{} \"b\"\n", i + 1)).collect();
    let backwards: String = (0..5000).rev().map(|i| format!("r{i} ::= \"a\" r{} | r0 \"b\"\n", i + 1)).collect();
    let doubling: String = (0..60).map(|i| format!("r{i} ::= r{n} r{n}\n", n = i + 1)).collect();
    let cases = [
        format!("root ::= r0\n{chain}r5000 ::= \"\""),
        format!("root ::= r0\n{backwards}r5000 ::= \"a\""),
        format!("root ::= r0\n{doubling}r60 ::= \"a\""),
        format!("root ::= \"a\"{}", "?".repeat(60_000)),
        "root ::= ((((\"a\"{1000}){1000}){1000}){1000}){1000}".into(),
        "root ::= x{1,100000}\nx ::= \"a\"? x{0,100000} | \"b\"".into(),
        "root ::= (\"a\"* \"a\"*){0,1000} s\ns ::= s s | \"a\" | \"a\"{3} |".into(),
        format!("root ::= {}\"a\"", "\"a\"? ".repeat(3000)),
        format!("root ::= s\ns ::= \"b\" s \"b\" | {}", (0..1500).map(|i| format!("\"a{i:b}\"")).collect::<Vec<_>>().join(" | ")),
        // long chains of rules, which recursive code follows deeply
        format!("root ::= r0\n{}r30000 ::= \"a\"", (0..30_000).map(|i| format!("r{i} ::= r{} | \"b\"\n", i + 1)).collect::<String>()),
        format!(
            "root ::= r0\n{}",
            (0..20_000)
                .map(|i| format!("r{i} ::= r{} \"a\" | r{} \"b\" | \"ab{i:b}\"\n", (i + 1) % 20_000, i * 7919 % 20_000))
                .collect::<String>()
        ),
        // grammars whose work grows with the square of their size
        format!("root ::= \"{}\"", "ab".repeat(100_000)),
        format!("root ::= s\ns ::= \"(\" s \")\" | {}", (0..10_000).map(|i| format!("\"{i:b}a\"")).collect::<Vec<_>>().join(" | ")),
        format!("root ::= s\ns ::= \"b\" | {}", (0..5000).map(|i| format!("[ab]+ s \"{i:b}\"")).collect::<Vec<_>>().join(" | ")),
        format!("root ::= s\ns ::= \"b\" | {}", (0..300).map(|i| format!("\"{i:b}\" [ab]+ (s | \"a\")")).collect::<Vec<_>>().join(" | ")),
        format!("root ::= {}", "s ".repeat(20_000)) + "\ns ::= \"(\" s \")\" | ",
    ];
    for (i, grammar) in cases.iter().enumerate() {
        let started = Instant::now();
        // the grammar is either followed, or refused with a message of one line
        let followed = Grammar::gbnf(grammar).and_then(|g| pieces.follow(&g)).and_then(|mut f| {
            for _ in 0..3 {
                let first = (1..6).find(|&id| f.allowed().is_ok_and(|a| a.ids[0] >> id & 1 == 1));
                first.map_or(Ok(()), |id| f.accept(id))?;
            }
            f.allowed().map(|_| ())
        });
        if let Err(error) = &followed {
            assert!(!error.to_string().contains(['\n', '<']) && !error.to_string().contains("panic"), "{i}: {error}");
        }
        println!("{i}: {:?}, {followed:?}", started.elapsed());
        assert!(started.elapsed() < Duration::from_secs(20), "{i}: {:?}", started.elapsed());
    }
}

#[test]
fn schemas_that_cannot_be_followed_are_refused() {
    let vocab = vocab(&["{", "}", "\"", "a", ":", "1"]);
    let pieces = pieces(&vocab);
    for (schema, said) in [
        (json!(false), "allows no value"),
        (json!(7), "an object"),
        (json!({ "type": "strin" }), "strin"),
        (json!({ "type": "object", "dependentSchemas": { "a": {} } }), "dependentSchemas"),
        (json!({ "$ref": "#/nowhere" }), "nowhere"),
        (json!({ "type": "integer", "minimum": 3, "maximum": 2 }), "minimum"),
        (json!({ "$ref": "#" }), "root of the schema: no text of the vocabulary's tokens matches this schema, whose \"$ref\" is #"),
    ] {
        let error = Grammar::json_schema(&schema).and_then(|g| pieces.follow(&g)).err().unwrap_or_else(|| panic!("{schema} is taken"));
        assert!(error.to_string().contains(said) && !error.to_string().contains('\n'), "{schema}: {error}");
    }
}

#[test]
fn a_wrapper_around_a_schema_is_removed() {
    let vocab = vocab(&["7", "\"", "true"]);
    let pieces = pieces(&vocab);
    let first = |schema: Value| {
        let mut follower = pieces.follow(&Grammar::json_schema(&schema).unwrap()).unwrap();
        (1..4).filter(|&id| is_allowed(&mut follower, id)).collect::<Vec<_>>()
    };
    let schema = json!({ "type": "boolean" });
    assert_eq!(first(json!({ "name": "k", "description": "x", "strict": true, "schema": schema })), [3]);
    assert_eq!(first(json!({ "schema": schema })), [3]);
    // beside a keyword of a schema, `schema` is an unknown keyword and not a wrapper
    assert_eq!(first(json!({ "type": "integer", "schema": schema })), [1]);
    assert_eq!(first(json!({ "description": "x" })), [1, 2, 3]);
}

#[test]
fn large_grammars_are_refused_before_a_text_begins() {
    let vocab = vocab(&["a", "b", "0", "1"]);
    let pieces = pieces(&vocab);
    let choices = |n: usize| (0..n).map(|i| format!("\"a{i:b}\"")).collect::<Vec<_>>().join(" | ");
    let of = |n: usize| Grammar::gbnf(&format!("root ::= {}", choices(n)));
    let error = of(45_000).err().unwrap().to_string();
    assert!(error.starts_with("a rule has 45000 alternatives that are not plain text"), "{error}");
    // 19 000 alternatives that are plain texts are supported
    let mut follower = pieces.follow(&of(19_000).unwrap()).unwrap();
    for id in [1, 4, 4] {
        follower.accept(id).unwrap();
        assert!(is_allowed(&mut follower, 3));
    }
    // alternatives that refer to a recursive rule are not plain texts
    let refused = |grammar: &str| Grammar::gbnf(grammar).err().unwrap().to_string();
    let parts = (0..3000).map(|i| format!("\"a{i:b}\" s")).collect::<Vec<_>>().join(" | ");
    let error = refused(&format!("root ::= s\ns ::= \"b\" | {parts}"));
    assert!(error.starts_with("a rule has 3001 alternatives that are not plain text, at most 2000 are supported"), "{error}");
    let error = refused(&format!("root ::= {}\ns ::= \"(\" s \")\" | ", "s ".repeat(3000)));
    assert!(error.starts_with("a rule has 3000 elements in a row, at most 2000 are supported"), "{error}");
    let chain: String = (0..5000).map(|i| format!("r{i} ::= \"a\" r{} \"b\"\n", i + 1)).collect();
    let error = refused(&format!("root ::= r0\n{chain}r5000 ::= r0 | \"\""));
    assert!(error.starts_with("rules refer to one another more than 4000 deep"), "{error}");
}

#[test]
fn a_text_that_is_too_ambiguous_ends_with_an_error() {
    let vocab = vocab(&["a", "aa", "aaa"]);
    let many = (2..60).map(|n| "s ".repeat(n)).collect::<Vec<_>>().join("| ");
    let mut follower = pieces(&vocab).follow(&Grammar::gbnf(&format!("root ::= s\ns ::= {many}| \"a\"")).unwrap()).unwrap();
    let started = Instant::now();
    let error = (0..20).find_map(|_| follower.accept(1).and_then(|()| follower.allowed().map(|_| ())).err()).unwrap().to_string();
    assert_eq!(error, "the grammar cannot be followed further: the grammar is too ambiguous here");
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn errors_name_the_smallest_part_that_does_not_compile() {
    let vocab = vocab(&["{", "}", "\"", "a", ":", "1"]);
    let pieces = pieces(&vocab);
    let within = |part: Value| {
        let mut all: serde_json::Map<String, Value> = (0..40).map(|i| (format!("p{i}"), json!({ "type": "boolean" }))).collect();
        all.insert("age".into(), json!({ "type": "array", "minItems": 1, "items": part }));
        json!({ "type": "object", "properties": all, "required": ["age"] })
    };
    for (part, want) in [
        (json!({ "type": "integer", "minimum": 3, "maximum": 2 }), "\"minimum\" is larger than \"maximum\""),
        (json!({ "type": "string", "minLength": 3, "maxLength": 2 }), "\"minLength\" is larger than \"maxLength\""),
        (json!({ "allOf": [{ "type": "string" }, { "type": "null" }] }), "no JSON matches this schema: its parts contradict each other"),
        (
            json!({ "oneOf": [{ "type": "string" }, { "pattern": "a" }] }),
            "\"oneOf\" is unsupported if several of its schemas can match (use \"anyOf\")",
        ),
        (json!({ "patternProperties": { "a": {}, "b": {} } }), "two patterns of \"patternProperties\" can match the same name"),
        (
            json!({ "type": "object", "properties": { "a": {}, "b": {} }, "maxProperties": 1 }),
            "\"minProperties\" and \"maxProperties\" are unsupported with optional properties",
        ),
        (json!({ "type": "string", "format": "email", "minLength": 1000 }), "a pattern with its length bounds is too large to compile"),
    ] {
        let error =
            Grammar::json_schema(&within(part.clone())).and_then(|g| pieces.follow(&g)).err().unwrap_or_else(|| panic!("{part} is taken"));
        assert!(error.to_string().starts_with(&format!("schema at /properties/age/items: {want}")), "{part}: {error}");
    }
}

#[test]
fn a_lead_may_hold_any_character() {
    let vocab = vocab(&["\u{7f}", "a", "\"", "\n", "\\"]);
    let grammar = Grammar::gbnf("root ::= \"a\"").unwrap();
    for (id, lead) in [(1, "\u{7f}"), (3, "\""), (4, "\n"), (5, "\\")] {
        let grammar = grammar.with_lead(lead);
        assert!(!grammar.source().grammars[0].lark_grammar.as_ref().unwrap().contains('\u{7f}'), "{lead:?}");
        let mut follower = pieces(&vocab).follow(&grammar).unwrap();
        assert!(is_allowed(&mut follower, id) && !is_allowed(&mut follower, 2), "{lead:?}");
        follower.accept(id).unwrap();
        assert!(is_allowed(&mut follower, 2), "{lead:?}");
    }
}
