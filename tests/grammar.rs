//! Tests output under grammars and schemas. The output follows the rules for every seed, and an error names the part of the rules that is wrong.

use crate::support::{options, tiny};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use wingbeat::constrain::{Allowed, Constraint, Grammar, Pieces};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::sample::{Sampler, Sampling};
use wingbeat::low_level::session::{Finish, Limits, Model, Session, Text};

const SLOTS: usize = 100;
const JSON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/grammars/json.gbnf");
/// A grammar of nested lists in parentheses. A list has one to three items: words, numbers or lists.
const LISTS: &str = r#"
root   ::= list
list   ::= "(" item ("," " "? item){0,2} ")"
item   ::= word | number | list
word   ::= [a-z]{1,4} "'"?
number ::= "-"? ("0" | [1-9] [0-9]{0,3})
"#;

/// Generates `n_seeds` texts with the tiny RWKV-7, one per seed. Returns each text and its finish reason.
fn texts(grammar: &Grammar, n_seeds: u64, max_tokens: usize) -> Vec<(String, Finish)> {
    let model = tiny(&options("cpu"));
    let pieces = Pieces::new(model.vocab().unwrap(), model.facts().n_vocab).unwrap();
    let follower = pieces.follow(grammar).unwrap();
    let mut session = Session::new(&model, SLOTS).unwrap();
    let begun = session.open().unwrap();
    let prompt = session.encode(&"And these are the names:\n".into()).unwrap();
    session.prefill(begun, &prompt).unwrap();
    let limits = Limits::new(max_tokens);
    let mut all = Vec::new();
    for first in (0..n_seeds).step_by(SLOTS - 1) {
        let seeds = first..n_seeds.min(first + SLOTS as u64 - 1);
        let start = |seed| {
            let slot = session.fork(begun).unwrap();
            let mut continuation = Text::after(slot, Sampler::new(Sampling { seed, ..Sampling::rwkv() }), &limits);
            continuation.spec.constraint = Some(Box::new(follower.clone()));
            continuation
        };
        let mut continuations: Vec<Text> = seeds.map(start).collect();
        session.continue_many(&mut continuations, &mut |_| ControlFlow::Continue(())).unwrap();
        for continuation in continuations {
            session.close(continuation.slot).unwrap();
            all.push((continuation.text, continuation.finish.unwrap()));
        }
    }
    all
}

/// Checks that every complete text passes `check`, and that more than 80 % of the texts are complete.
fn all_pass(texts: &[(String, Finish)], check: impl Fn(&str) -> bool) {
    let whole: Vec<&str> = texts.iter().filter(|(_, finish)| *finish == Finish::Eos).map(|(text, _)| text.as_str()).collect();
    assert!(texts.iter().all(|(_, finish)| matches!(finish, Finish::Eos | Finish::Length)));
    assert!(whole.len() * 10 > texts.len() * 8, "{} of {} are complete", whole.len(), texts.len());
    whole.iter().for_each(|text| assert!(check(text), "{text:?}"));
    let mut different = whole.clone();
    different.sort_unstable();
    different.dedup();
    assert!(different.len() * 2 > whole.len(), "{} of {} texts differ", different.len(), whole.len());
}

#[test]
fn a_thousand_seeds_give_json_that_the_schema_allows() {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "minLength": 1, "maxLength": 6 },
            "age": { "type": "integer", "minimum": 0, "maximum": 969 },
            "kin": { "type": "array", "items": { "enum": ["son", "father"] }, "maxItems": 2 }
        },
        "required": ["name", "age"],
        "additionalProperties": false
    });
    let texts = texts(&Grammar::json_schema(&schema).unwrap(), 1000, 56);
    all_pass(&texts, |text| {
        let value: Value = serde_json::from_str(text).unwrap();
        let is_kin = |kin: &Value| kin.as_array().unwrap().iter().all(|k| k == "son" || k == "father");
        let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
        keys[..2] == ["name", "age"]
            && keys[2..].iter().all(|key| *key == "kin" && is_kin(&value["kin"]))
            && (1..=6).contains(&value["name"].as_str().unwrap().chars().count())
            && value["age"].as_u64().is_some_and(|age| age <= 969)
    });
}

/// Reads one list of the grammar [`LISTS`]. Returns the text after the list, or `None` if `text` does not begin with a list.
fn list(text: &str) -> Option<&str> {
    let mut rest = text.strip_prefix('(')?;
    for n in 1.. {
        let word = rest.trim_start_matches(|c: char| c.is_ascii_lowercase());
        let digits = rest.strip_prefix('-').unwrap_or(rest);
        let number = digits.trim_start_matches(|c: char| c.is_ascii_digit());
        let (n_letters, n_digits) = (rest.len() - word.len(), digits.len() - number.len());
        rest = match (n_letters, n_digits) {
            (1..=4, _) => word.strip_prefix('\'').unwrap_or(word),
            (0, 1) => number,
            (0, 2..=4) if !digits.starts_with('0') => number,
            _ => list(rest)?,
        };
        if let Some(end) = rest.strip_prefix(')') {
            return (n <= 3).then_some(end);
        }
        rest = rest.strip_prefix(", ").or(rest.strip_prefix(','))?;
    }
    None
}

#[test]
fn a_thousand_seeds_follow_a_grammar() {
    for (text, left) in
        [("(a)", Some("")), ("(abc',-12, (0,z))x", Some("x")), ("(a,b,c,d)", None), ("(01)", None), ("(abcde)", None), ("()", None)]
    {
        assert_eq!(list(text), left, "the recogniser on {text}");
    }
    let texts = texts(&Grammar::gbnf(LISTS).unwrap(), 1000, 48);
    all_pass(&texts, |text| list(text) == Some(""));
}

#[test]
fn the_example_grammar_gives_json() {
    let texts = texts(&Grammar::gbnf(&std::fs::read_to_string(JSON).unwrap()).unwrap(), 60, 100);
    let whole: Vec<&String> = texts.iter().filter(|(_, finish)| *finish == Finish::Eos).map(|(text, _)| text).collect();
    assert!(whole.len() > 10, "{} are complete", whole.len());
    whole.iter().for_each(|text| assert!(serde_json::from_str::<Value>(text).is_ok_and(|v| v.is_object()), "{text:?}"));
}

/// A constraint that allows exactly three tokens, all with even ids.
struct ThreeEven(Vec<u32>);

impl Constraint for ThreeEven {
    fn allowed(&mut self) -> Result<Allowed<'_>> {
        let is_done = self.0.len() == 3;
        Ok(Allowed { ids: if is_done { &[] } else { &[0x5555_5555; 64] }, may_end: is_done })
    }
    fn accept(&mut self, id: u32) -> Result<()> {
        self.0.push(id);
        if id.is_multiple_of(2) { Ok(()) } else { Err(Error::input("an odd id")) }
    }
}

fn continued(model: &Model, sampling: Sampling, limits: &Limits, set: impl Fn(&mut Text)) -> Result<Text> {
    let mut session = Session::new(model, 1).unwrap();
    let slot = session.open().unwrap();
    session.prefill(slot, &[74, 111]).unwrap();
    let mut continuations = [Text::after(slot, Sampler::new(sampling), limits)];
    set(&mut continuations[0]);
    session.continue_many(&mut continuations, &mut |_| ControlFlow::Continue(()))?;
    let [continuation] = continuations;
    assert_eq!(session.n_tokens(slot).unwrap(), 2 + continuation.tokens.len(), "the slot has the tokens of its text");
    Ok(continuation)
}

#[test]
fn a_callers_constraint_applies_after_the_processor() {
    let model = tiny(&options("cpu"));
    let limits = Limits::new(10);
    let three = |continuation: &mut Text| continuation.spec.constraint = Some(Box::new(ThreeEven(Vec::new())));
    let continuation = continued(&model, Sampling::rwkv(), &limits, three).unwrap();
    assert_eq!((continuation.tokens.len(), continuation.finish), (3, Some(Finish::Eos)));
    assert!(continuation.tokens.iter().all(|id| id % 2 == 0 && *id != 0), "{:?}", continuation.tokens);
    // the processor prefers the odd ids, and next one even id that depends on the number of tokens; the constraint excludes the odd ids
    let continuation = continued(&model, Sampling::greedy(0), &limits, |continuation| {
        three(continuation);
        continuation.spec.processor = Some(Box::new(|tokens, logits| {
            logits.iter_mut().skip(1).step_by(2).for_each(|logit| *logit = 1e4);
            logits[10 + 2 * tokens.len()] = 1e3;
        }));
    });
    assert_eq!(continuation.unwrap().tokens, [10, 12, 14]);
    // bans that exclude every token that the constraint allows are an error
    let ban: Vec<u32> = (0..2048).step_by(2).collect();
    let error = continued(&model, Sampling { ban, ..Sampling::rwkv() }, &limits, three).err().unwrap();
    assert!(error.to_string().contains("the grammar allows only tokens that are banned"), "{error}");
}

#[test]
fn stop_ids_only_end_a_text() {
    let model = tiny(&options("cpu"));
    let vocab = model.vocab().unwrap();
    let a = vocab.encode(b"a").unwrap()[0];
    let pieces = Pieces::new(vocab, model.facts().n_vocab).unwrap();
    let run = |grammar: &str, stop_ids: Option<Vec<u32>>, bias: f32| {
        let follower = pieces.follow(&Grammar::gbnf(grammar).unwrap()).unwrap();
        let sampling = Sampling { logit_bias: vec![(0, bias), (a, bias)], ..Sampling::greedy(0) };
        let limits = Limits { stop_ids, ..Limits::new(12) };
        continued(&model, sampling, &limits, |continuation| continuation.spec.constraint = Some(Box::new(follower.clone()))).unwrap()
    };
    // the model prefers to end at once, but the grammar allows the end only after four digits
    let continuation = run("root ::= [0-9]{4} [0-9]*", None, 1e4);
    assert_eq!((continuation.text.len(), continuation.finish), (4, Some(Finish::Eos)));
    // without stop ids, the text continues until the token limit
    let continuation = run("root ::= [0-9]{4} [0-9]*", Some(Vec::new()), 0.0);
    assert_eq!((continuation.tokens.len(), continuation.finish), (12, Some(Finish::Length)));
    let continuation = run("root ::= [0-9]{4}", Some(Vec::new()), 0.0);
    assert_eq!((continuation.text.len(), continuation.finish), (4, Some(Finish::Eos)));
    // at the token limit, a text counts as complete only if the grammar allows no further token
    for (grammar, finish) in [("root ::= \"a\"", Finish::Eos), ("root ::= \"a\"+", Finish::Length)] {
        let follower = pieces.follow(&Grammar::gbnf(grammar).unwrap()).unwrap();
        let set = |continuation: &mut Text| continuation.spec.constraint = Some(Box::new(follower.clone()));
        let continuation = continued(&model, Sampling::greedy(0), &Limits::new(1), set).unwrap();
        assert_eq!((continuation.tokens.len(), continuation.finish), (1, Some(finish)), "{grammar}");
    }
    // the text of a stop id is not part of the output
    let continuation = run("root ::= [ab]{3} \"!\"?", Some(vec![a]), 1e3);
    assert_eq!((continuation.text.as_str(), continuation.finish), ("bbb", Some(Finish::Eos)));
    // a grammar that allows only the empty text
    assert!(run("root ::= \"\"", None, 0.0).tokens.is_empty());
}
