//! Tests of grammars in every format and with every command that samples.
#![cfg(feature = "grammar")]

use super::*;
use crate::constrain::{Allowed, Constraint, Grammar};
use crate::sample::Sampling;

const ANIMAL: &str = r#"root ::= ("a cat" | "a dog" | "an ox") (" and " [a-z]{3})?"#;

fn is_animal(text: &str) -> bool {
    let rest = ["a cat", "a dog", "an ox"].iter().find_map(|animal| text.strip_prefix(animal));
    rest.is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix(" and ").is_some_and(|end| end.len() == 3 && end.bytes().all(|b| b.is_ascii_lowercase()))
    })
}

fn drawn(seed: u64) -> Settings {
    Settings { sampling: Sampling { temperature: 1.0, ..Sampling::greedy(seed) }, ..Settings::default() }
}

#[test]
fn answers_follow_a_grammar_in_every_format() {
    let grammar = Grammar::gbnf(ANIMAL).unwrap();
    let mut found = std::collections::BTreeSet::new();
    for format in ["tiny", "g1-think", "g1-fast", "g1", "instruct", "raven", "world"] {
        let mut chat = chat_in(format);
        chat.core.settings = drawn(3);
        chat.set_grammar(Some(&grammar)).unwrap();
        for line in ["light", "+", "water", "+qq what", "++", "+qa who", "+i name one", "+gen I see"] {
            let script = Script::of(&mut chat);
            let thinks = format == "g1-think" && ["light", "+", "water"].contains(&line);
            if thinks {
                script.says_text(">\n light\n\nis</think>\n");
            }
            let answered = answer(&mut chat, line);
            assert_eq!(answered.thought, if thinks { "light\n\nis" } else { "" }, "{format}: {line}");
            let text = answered.text.strip_prefix(' ').filter(|_| line != "+gen I see").unwrap_or(&answered.text);
            assert!(is_animal(text) && answered.finish == Finish::Eos, "{format}: {line}: {answered:?}");
            found.insert(text.to_string());
            if !line.starts_with('+') {
                let (read, user, bot) = (decode(chat.tokens()), chat.format().user(), chat.format().bot());
                assert!(read.ends_with(&format!("{user}: {line}\n\n{bot}: {text}\n\n")), "{format}: {read:?}");
            }
        }
    }
    assert!(found.len() > 5, "{found:?}");
}

#[test]
fn json_may_have_blank_lines() {
    let schema = serde_json::json!({
        "type": "object",
        "properties": { "name": { "type": "string", "maxLength": 8 }, "legs": { "enum": [2, 4] } },
        "required": ["name", "legs"],
        "additionalProperties": false,
        "x-guidance": { "item_separator": ",\n\n", "key_separator": ":\n\n", "whitespace_flexible": false }
    });
    let mut chat = chat_in("tiny");
    chat.set_grammar(Some(&Grammar::json_schema(&schema).unwrap())).unwrap();
    for seed in 0..6 {
        chat.core.settings = drawn(seed);
        let answered = answer(&mut chat, "an animal");
        let value: serde_json::Value = serde_json::from_str(&answered.text).unwrap_or_else(|e| panic!("{seed}: {e}: {:?}", answered.text));
        assert!(value["name"].is_string() && value["legs"].is_u64() && answered.text.contains(",\n\n"), "{seed}: {value}");
    }
}

#[test]
fn a_constraint_is_removed_and_a_failing_constraint_changes_nothing() {
    let mut chat = chat_in("tiny");
    let free = answer(&mut chat, "light").text;
    chat.set_grammar(Some(&Grammar::gbnf(ANIMAL).unwrap())).unwrap();
    let held = answer(&mut chat, "+").text;
    assert!(is_animal(&held) && !is_animal(&free), "{held:?} {free:?}");
    let wrong = serde_json::json!({ "type": "object", "properties": { "a": { "type": "integer", "minimum": 3, "maximum": 2 } }, "required": ["a"] });
    let wrong = Grammar::json_schema(&wrong).unwrap();
    assert!(chat.set_grammar(Some(&wrong)).is_err());
    assert_eq!(answer(&mut chat, "+").text, held);
    // A constraint that fails before or within an answer leaves the conversation unchanged.
    let before = chat.tokens().to_vec();
    chat.set_constraint(Some(Box::new(|lead| {
        assert_eq!(lead, " ");
        Err(Error::input("no rules today"))
    })));
    let said = refusal(&mut chat, "+").to_string();
    assert_eq!((said.as_str(), chat.tokens()), ("no rules today", before.as_slice()));
    chat.set_constraint(Some(Box::new(|_| Ok(Box::new(Fails { left: 3, ids: vec![u32::MAX; 64] })))));
    let said = refusal(&mut chat, "+").to_string();
    assert_eq!((said.as_str(), chat.tokens()), ("no more", before.as_slice()));
    chat.set_grammar(None).unwrap();
    assert_eq!(answer(&mut chat, "+").text, free);
}

/// A constraint that allows all tokens a few times, then fails.
struct Fails {
    left: usize,
    ids: Vec<u32>,
}

impl Constraint for Fails {
    fn allowed(&mut self) -> Result<Allowed<'_>> {
        self.left = self.left.checked_sub(1).ok_or_else(|| Error::input("no more"))?;
        Ok(Allowed { ids: &self.ids, may_end: false })
    }
    fn accept(&mut self, _id: u32) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_continued_text_continues_its_constraint() {
    let mut chat = chat_in("tiny");
    chat.set_grammar(Some(&Grammar::gbnf(r#"root ::= "one " "two " "three " "four " "five""#).unwrap())).unwrap();
    chat.set("FREE_GEN_LEN", "2").unwrap();
    let mut whole = answer(&mut chat, "+gen Count:").text;
    let second = answer(&mut chat, "+++").text;
    assert_eq!(answer(&mut chat, "++").text, second, "another answer begins at the same place");
    whole += &second;
    while whole.len() < 23 {
        let more = answer(&mut chat, "+++");
        assert!(!more.text.is_empty(), "{whole}");
        whole += &more.text;
    }
    assert_eq!(whole, "one two three four five");
    let more = answer(&mut chat, "+++");
    assert_eq!((more.text.as_str(), more.finish), ("", Finish::Eos));
}

#[test]
fn a_complete_text_at_the_length_limit_ends_with_eos() {
    let mut chat = chat_in("tiny");
    chat.set_grammar(Some(&Grammar::gbnf(r#"root ::= "verily""#).unwrap())).unwrap();
    let n = answer(&mut chat, "light").tokens.len();
    for (n, finish) in [(n, Finish::Eos), (n - 1, Finish::Length)] {
        chat.set("CHAT_LEN_MAX", &n.to_string()).unwrap();
        let answered = answer(&mut chat, "+");
        assert_eq!((answered.tokens.len(), answered.finish), (n, finish));
    }
}
