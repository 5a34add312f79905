//! Tests that every text is completed if its limit allows enough tokens, whichever tokens are drawn.

use crate::constrain::{Constraint, Follower, Grammar, Pieces, draw};
use crate::vocab::Vocab;
use serde_json::{Value, json};

/// A function that draws a token from masked logits.
type Drawer = Box<dyn FnMut(&[f32]) -> u32>;

fn allowed(logits: &[f32]) -> Vec<u32> {
    (0..logits.len() as u32).filter(|&id| logits[id as usize] > f32::NEG_INFINITY).collect()
}

/// Returns a function that draws random tokens.
fn at_random(seed: u64) -> Drawer {
    let mut number = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    Box::new(move |logits| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let ids = allowed(logits);
        ids[(number >> 33) as usize % ids.len()]
    })
}

/// Returns a function that draws the allowed token that contains the most characters of `characters`.
fn fond_of(vocab: &Vocab, characters: &str) -> Drawer {
    let liked = |id: &u32| vocab.token(*id).iter().filter(|b| characters.as_bytes().contains(b)).count();
    let mut ids: Vec<u32> = (0..=vocab.max_id()).collect();
    ids.sort_by_cached_key(|id| std::cmp::Reverse(liked(id)));
    Box::new(move |logits| *ids.iter().find(|&&id| logits[id as usize] > f32::NEG_INFINITY).unwrap())
}

/// Draws a text of at most `longest` tokens with `by`. Returns the text and whether it is complete.
fn text(follower: &Follower, vocab: &Vocab, n_ids: usize, longest: usize, by: &mut Drawer) -> (String, bool) {
    let (mut follower, mut bytes) = (follower.clone(), Vec::new());
    for n in 0..longest {
        let allowed = follower.allowed().unwrap();
        if allowed.is_complete() {
            break;
        }
        let mut logits = vec![0.0; n_ids];
        allowed.mask(&mut logits, &[0]);
        let drawn = draw(&mut follower, &mut logits, &[0], longest - n, &mut |l| Ok(by(l))).unwrap();
        let Some(id) = drawn.token else { break };
        if id == 0 {
            break;
        }
        bytes.extend(vocab.token(id));
        follower.accept(id).unwrap();
    }
    let is_whole = follower.allowed().unwrap().may_end;
    (String::from_utf8_lossy(&bytes).into_owned(), is_whole)
}

fn drawers(vocab: &Vocab, n_seeds: u64) -> Vec<Drawer> {
    let fond = [" \n", "abcdefghijklmnopqrstuvwxyz ", "[", "{\"", "0123456789", "\\", "\"", ":,-."];
    (0..n_seeds).map(at_random).chain(fond.map(|characters| fond_of(vocab, characters))).collect()
}

/// Returns the number of tokens of the shortest text that the follower knows at the beginning. With at least this token limit, every drawn text must
/// be complete and pass `check`.
fn from_which_on(grammar: &Grammar, vocab: &Vocab, n_ids: usize, n_seeds: u64, check: &dyn Fn(&Value) -> bool) -> usize {
    let follower = Pieces::new(vocab, n_ids).unwrap().follow(grammar).unwrap();
    let least = follower.clone().closing().unwrap_or_else(|| panic!("no ending of {grammar:?}")).len();
    for longest in [1, 2, least.max(2) - 1, least, least + 1, least + 2, least + 5, least + 11, least + 40] {
        for (which, mut by) in drawers(vocab, n_seeds).into_iter().enumerate() {
            let (text, is_whole) = text(&follower, vocab, n_ids, longest, &mut by);
            assert!(is_whole || longest < least, "{longest} tokens, {least} are enough, drawer {which}: {text}");
            match serde_json::from_str::<Value>(&text) {
                Ok(value) => assert!(!is_whole || check(&value), "{text}"),
                // The grammar allows numbers of any size and any nesting. The JSON parser limits both, for example to 128 levels.
                Err(e) => {
                    assert!(!is_whole || e.to_string().contains("out of range") || e.to_string().contains("recursion"), "{text}: {e}")
                }
            }
        }
    }
    least
}

/// A function that returns whether a JSON value follows a schema.
type Check = fn(&Value) -> bool;

fn schemas() -> Vec<(Value, Check)> {
    vec![
        (
            json!({ "type": "object", "required": ["name", "at", "tags"], "additionalProperties": false, "properties": {
                "name": { "type": "string", "minLength": 3, "maxLength": 8 },
                "note": { "type": "string" },
                "at": { "type": "object", "required": ["x", "y"], "properties": { "x": { "type": "number" }, "y": { "type": "integer", "minimum": 17 } } },
                "tags": { "type": "array", "minItems": 2, "maxItems": 4, "items": { "enum": ["long-winded", "curt", "other"] } }
            } }),
            |v| {
                let name = v["name"].as_str().unwrap().chars().count();
                (3..=8).contains(&name)
                    && v["at"]["x"].is_number()
                    && v["at"]["y"].as_f64().unwrap() >= 17.0
                    && (2..=4).contains(&v["tags"].as_array().unwrap().len())
            },
        ),
        (
            json!({ "anyOf": [
                { "type": "object", "required": ["kind", "a", "b", "c"], "properties": { "kind": { "const": "big" }, "a": { "type": "string" }, "b": { "type": "string" }, "c": { "type": "boolean" } } },
                { "type": "object", "required": ["kind"], "properties": { "kind": { "const": "zero" } } }
            ] }),
            |v| v["kind"] == "zero" || v["c"].is_boolean(),
        ),
        (json!({ "type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}(x[ab]+)?$" }), |v| v.as_str().unwrap().len() >= 6),
        (json!({ "type": "string", "format": "date" }), |v| v.as_str().unwrap().len() == 10),
        (
            json!({ "$ref": "#/$defs/node", "$defs": { "node": { "type": "object", "required": ["value", "next"], "additionalProperties": false,
                "properties": { "value": { "type": "integer" }, "next": { "anyOf": [{ "$ref": "#/$defs/node" }, { "type": "null" }] } } } } }),
            |v| v["value"].is_number(),
        ),
        (json!({ "type": "array", "minItems": 7, "items": { "type": "number" }, "x-guidance": { "whitespace_flexible": true } }), |v| {
            v.as_array().unwrap().len() >= 7
        }),
        (json!({ "const": { "a": [1, "two", null] } }), |v| *v == json!({ "a": [1, "two", null] })),
    ]
}

#[cfg(feature = "embedded-model")]
#[test]
fn json_is_completed_whenever_the_tokens_are_enough() {
    let vocab = Vocab::tiny();
    let least = |grammar: &Grammar, check: &dyn Fn(&Value) -> bool| from_which_on(grammar, &vocab, 2048, 5, check);
    let shortest = |text: &str| vocab.encode(text.as_bytes()).unwrap().len();
    assert!(least(&Grammar::json_object(), &Value::is_object) <= shortest("{}"));
    assert_eq!(least(&Grammar::json_value(), &|_| true), 1);
    for (schema, check) in schemas() {
        let least = least(&Grammar::json_schema(&schema).unwrap(), &check);
        println!("{least} tokens are enough for {schema}");
    }
    let zero = Grammar::json_schema(&schemas()[1].0).unwrap();
    assert!(least(&zero, &|_| true) <= shortest("{\"kind\": \"zero\"}"), "the shorter one of two objects is known");
}

#[test]
fn unusual_vocabularies_work() {
    let vocab = |tokens: &[&str]| {
        let line = |(i, t): (usize, &&str)| format!("{} {} {}\n", i + 1, json!(t), t.len());
        Vocab::parse(tokens.iter().enumerate().map(line).collect::<String>().as_bytes()).unwrap()
    };
    // in this vocabulary, a closing brace occurs only at the end of longer tokens, and a colon only after a quote in the same token
    let odd = vocab(&["{\"", "{}", "\": ", "\"}", "\", \"", "a", "b", "\"\"}", "[", "]", "1", "1}", ", \"", "\"a\"", "[]", "}]", ", "]);
    assert_eq!(from_which_on(&Grammar::json_object(), &odd, 18, 30, &Value::is_object), 1);
    let letters: Vec<String> = (b' '..=b'~').map(|b| char::from(b).to_string()).collect();
    let letters = vocab(&letters.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(from_which_on(&Grammar::json_object(), &letters, 96, 10, &Value::is_object), 2);
    for (schema, check) in schemas() {
        from_which_on(&Grammar::json_schema(&schema).unwrap(), &letters, 96, 2, &check);
    }
    // no ending exists, because no token contains a closing brace
    let open = vocab(&["{", "\"", "a", ": ", "1", ", "]);
    let mut follower = Pieces::new(&open, 7).unwrap().follow(&Grammar::json_object()).unwrap();
    assert!(follower.closing().is_none() && follower.closes_within(1, 0));
}

#[test]
fn grammars_are_completed_if_requested() {
    let vocab = Vocab::parse(b"1 'a' 1\n2 'b' 1\n3 'c' 1\n4 '(' 1\n5 ')' 1\n6 'ab' 2\n7 '\\n' 1\n").unwrap();
    let pieces = Pieces::new(&vocab, 8).unwrap();
    for (rules, least) in [
        ("root ::= s\ns ::= \"a\" s | \"b\"", 1),
        ("root ::= (\"ab\")* \"c\"", 1),
        ("root ::= s\ns ::= \"(\" s \")\" | \"a\" s | \"c\"", 1),
        ("root ::= x\nx ::= \"a\" x x | \"(\" y\ny ::= \")\" | \"a\" y", 2),
        ("root ::= [^\\n]{4} [^\\n]* \"\\n\"", 5),
        ("root ::= \"a\"*", 0),
    ] {
        let grammar = Grammar::gbnf(rules).unwrap();
        assert_eq!(pieces.follow(&grammar).unwrap().closing(), None, "not requested");
        let follower = pieces.follow(&grammar.close(true)).unwrap();
        assert_eq!(follower.clone().closing().map(<[u32]>::len), Some(least), "{rules}");
        for longest in least.max(1)..20 {
            for mut by in drawers(&vocab, 10) {
                let (text, is_whole) = text(&follower, &vocab, 8, longest, &mut by);
                assert!(is_whole, "{longest} tokens of {rules}: {text:?}");
            }
        }
    }
}

#[test]
fn a_ban_also_applies_to_the_ending() {
    let vocab = Vocab::parse(b"1 'a' 1\n2 'b' 1\n").unwrap();
    let grammar = Grammar::gbnf("root ::= \"a\"* \"b\"").unwrap().close(true);
    let mut follower = Pieces::new(&vocab, 3).unwrap().follow(&grammar).unwrap();
    let no_b = |logits: &[f32]| {
        let error = || crate::error::Error::input("nothing is left");
        (0..2).find(|&id| logits[id as usize] == 0.0).ok_or_else(error)
    };
    let mut logits = [f32::NEG_INFINITY, 0.0, 0.0];
    let drawn = draw(&mut follower, &mut logits, &[0], 1, &mut |logits| no_b(logits));
    assert_eq!(drawn.unwrap().token, Some(1));
}
