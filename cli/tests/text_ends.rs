//! Tests how texts end and what is reported: a full context, a grammar that is cut by the token limit, and a text that continues from a state.

use crate::cli::{code, feed, json, refused, run, stderr, stdout, words};
use crate::support::{options, tiny};
use serde_json::Value;
use std::ops::ControlFlow;
use wingbeat::low_level::sample::{Sampler, Sampling};
use wingbeat::low_level::session::{Finish, Limits, Session, Slot, StateExtras, Text};

const GLM4: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/models/tiny-glm4");

fn tokens(n: usize) -> String {
    (0..n).map(|i| (i % 50).to_string()).collect::<Vec<_>>().join(",")
}

#[test]
fn a_full_context_is_reported() {
    let glm = |prompt: usize, rest: &str| {
        let ids = tokens(prompt);
        let args = ["generate", "-m", GLM4, "--device", "cpu", "--context", "64", "--tokens", &ids];
        run(&[args.as_slice(), &words(rest)].concat())
    };
    let said = "the context of 64 tokens is full; --context makes it larger";
    for (prompt, n, made, finish) in
        [(50, 100, 14, "context"), (50, 14, 14, "length"), (50, 3, 3, "length"), (64, 5, 0, "context"), (64, 0, 0, "length")]
    {
        let output = glm(prompt, &format!("-n {n} --json"));
        let report = json(&output);
        let found = (report["tokens"].as_array().unwrap().len(), report["finish"].as_str().unwrap());
        assert_eq!(found, (made, finish), "{prompt} and {n}");
        assert!(report["complete"].is_null(), "{report}");
        assert_eq!(stderr(&output).contains(said), finish == "context", "{prompt} and {n}: {}", stderr(&output));
    }
    refused(&glm(65, "-n 5"), 1, "context of 64");
    let output = glm(60, "-n 9 --trials 3 --json");
    for choice in json(&output)["choices"].as_array().unwrap() {
        assert_eq!((choice["finish"].as_str(), choice["tokens"].as_array().unwrap().len()), (Some("context"), 4));
    }
    assert!(stderr(&output).contains(&format!("3 of 3 texts: {said}")), "{}", stderr(&output));
    let lines = format!("{{\"id\": 1, \"tokens\": [{}]}}\n{{\"id\": 2, \"tokens\": [1], \"max_tokens\": 3}}\n", tokens(60));
    let output = feed(&["batch", "-", "-m", GLM4, "--device", "cpu", "--context", "64"], lines.as_bytes());
    let finishes: Vec<(u64, String)> = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| (line["id"].as_u64().unwrap(), line["finish"].as_str().unwrap().to_string()))
        .collect();
    assert!(finishes.contains(&(1, "context".into())) && finishes.contains(&(2, "length".into())), "{finishes:?}");
    assert!(stderr(&output).contains("1 ended because the context was full"), "{}", stderr(&output));
}

#[test]
fn an_incomplete_text_under_a_grammar_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let grammar = crate::cli::put(&folder, "g.gbnf", b"root ::= [a-z]{30} \"!\"");
    let grammar = grammar.to_str().unwrap();
    let generate = |rest: &str| run(&[["generate", "x", "--grammar", grammar].as_slice(), &words(rest)].concat());
    let said = "the text is cut and does not follow its grammar or schema to the end";
    let cut = generate("-n 2 --seed 1");
    assert_eq!((code(&cut), stderr(&cut).contains(said)), (0, true), "{}", stderr(&cut));
    assert_eq!(json(&generate("-n 2 --seed 1 --json"))["complete"], Value::Bool(false));
    let whole = generate("-n 40 --seed 1 --json");
    assert_eq!((json(&whole)["finish"].as_str(), json(&whole)["complete"].as_bool()), (Some("eos"), Some(true)));
    assert!(!stderr(&whole).contains(said));
    let lines = generate("-n 2 --seed 1 --trials 2 --jsonl");
    let last: Value = serde_json::from_str(stdout(&lines).lines().last().unwrap()).unwrap();
    assert!(last["choices"].as_array().unwrap().iter().all(|c| c["complete"] == Value::Bool(false)), "{last}");
    assert!(stderr(&lines).contains(&format!("2 of 2 texts: {said}")), "{}", stderr(&lines));
    let line = br#"{"id": 1, "prompt": "x", "max_tokens": 2, "grammar": "root ::= [a-z]{30}"}"#;
    let output = feed(&["batch", "-"], line);
    let result: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((result["finish"].as_str(), result["complete"].as_bool()), (Some("length"), Some(false)));
    assert!(stderr(&output).contains("1 cut before"), "{}", stderr(&output));
    let answer = json(&feed(&["chat", "--json", "--grammar", grammar], b"/set CHAT_LEN_MAX 2\nHello\n"));
    assert_eq!((answer["finish"].as_str(), answer["complete"].as_bool()), (Some("length"), Some(false)), "{answer}");
    let spoken = feed(&["chat", "--grammar", grammar], b"/set CHAT_LEN_MAX 2\nHello\n");
    assert!(stderr(&spoken).contains("incomplete for its grammar"), "{}", stderr(&spoken));
}

/// Returns a continuation that generates the ids `ids`, whatever the model computes.
fn forced(slot: Slot, ids: &[u32], limits: &Limits) -> Text {
    let mut continuation = Text::after(slot, Sampler::new(Sampling::greedy(0)), limits);
    let ids = ids.to_vec();
    continuation.spec.processor = Some(Box::new(move |done: &[u32], logits: &mut [f32]| {
        logits.fill(0.0);
        logits[ids[done.len()] as usize] = 1e3;
    }));
    continuation.spec.keeps.pending = true;
    continuation
}

#[test]
fn a_text_cut_anywhere_continues_from_its_state() {
    let model = tiny(&options("cpu"));
    let vocab = model.vocab();
    let byte = |byte: u8| (1..2048).find(|&id| vocab.unwrap().token(id) == [byte]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.st");
    // the prompt ends within the bytes of the first character
    let ids: Vec<u32> = "\u{20ac}a\u{e9}\u{1f600}b\u{20ac}c".bytes().map(byte).collect();
    let (prompt, ids) = ids.split_at(2);
    for stops in [vec![], vec!["a\u{e9}!"], vec!["\u{1f600}b~", "b\u{20ac}c~"], vec!["\u{e9}\u{1f600}b"]] {
        let stop_texts: Vec<String> = stops.iter().map(|stop| stop.to_string()).collect();
        let limits = |n: usize| Limits { stop_texts: stop_texts.clone(), stop_ids: Some(Vec::new()), ..Limits::new(n) };
        let mut session = Session::new(&model, 2).unwrap();
        let go_on = |slot: Slot, session: &mut Session, pending: &[u8], prompt: &[u32], ids: &[u32]| {
            let limits = limits(ids.len());
            let mut continuations = [forced(slot, ids, &limits)];
            continuations[0].begin_after(pending, prompt, vocab);
            let mut heard = String::new();
            session
                .continue_many(&mut continuations, &mut |event| {
                    heard.push_str(event.piece);
                    ControlFlow::Continue(())
                })
                .unwrap();
            let [continuation] = continuations;
            assert_eq!(heard, continuation.text, "the events have the whole text");
            continuation
        };
        let begin = |session: &mut Session| {
            let slot = session.open().unwrap();
            session.prefill(slot, prompt).unwrap();
            slot
        };
        let slot = begin(&mut session);
        let whole = go_on(slot, &mut session, &[], prompt, ids);
        session.close(slot).unwrap();
        assert!(whole.text.starts_with('\u{20ac}') && !whole.text.contains('\u{fffd}'), "{:?}", whole.text);
        for k in 0..ids.len() {
            let slot = begin(&mut session);
            let first = go_on(slot, &mut session, &[], prompt, &ids[..k]);
            if first.finish == Some(Finish::Stop) {
                assert_eq!(first.text, whole.text);
                session.close(slot).unwrap();
                continue;
            }
            let pending = first.pending();
            session.save_with(slot, &path, StateExtras { pending: &pending, ..StateExtras::default() }).unwrap();
            session.close(slot).unwrap();
            let (slot, loaded) = session.load(&path, false).unwrap();
            assert_eq!(loaded.pending, pending);
            let second = go_on(slot, &mut session, &loaded.pending, &[], &ids[k..]);
            session.close(slot).unwrap();
            assert_eq!(first.text + &second.text, whole.text, "{stops:?}, cut after {k} tokens");
        }
    }
}

#[test]
fn generate_and_batch_continue_within_a_character() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("s.st");
    let state = state.to_str().unwrap();
    let vocab = wingbeat::vocab::Vocab::tiny();
    let id = |byte: u8| (1..=vocab.max_id()).find(|&id| vocab.token(id) == [byte]).unwrap();
    let bias = |byte: u8| format!("--logit-bias {}=1000", id(byte));
    // an incomplete character is printed as U+FFFD, unless the state is saved
    assert_eq!(stdout(&run(&words(&format!("generate In -n 1 --temp 0 {}", bias(0xc3))))), "\u{fffd}");
    assert_eq!(stdout(&run(&words(&format!("generate In -n 1 --temp 0 {} --save-state {state}", bias(0xc3))))), "");
    assert_eq!(stdout(&run(&words(&format!("generate --state {state} -n 1 --temp 0 {}", bias(0xa9))))), "\u{e9}");
    let line = format!(
        "{{\"id\": 1, \"prompt\": \"\", \"max_tokens\": 1, \"temperature\": 0, \"logit_bias\": {{\"{}\": 1000}}}}\n{{\"id\": 2, \"prompt\": \" x\", \"max_tokens\": 1}}",
        id(0xa9)
    );
    let output = stdout(&feed(&["batch", "-", "--state", state], line.as_bytes()));
    let lines: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text = |id: u64| lines.iter().find(|line| line["id"] == id).unwrap()["text"].as_str().unwrap();
    assert_eq!(text(1), "\u{e9}");
    assert!(!text(2).contains('\u{fffd}'), "{}", text(2));
}

/// Checks that the tiny model writes complete JSON for every token limit that is large enough.
#[test]
fn json_is_completed_when_tokens_run_out() {
    let folder = tempfile::tempdir().unwrap();
    let schema = br#"{"type": "object", "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1}}, "required": ["name", "tags"]}"#;
    let schema = crate::cli::put(&folder, "s.json", schema);
    let schema = schema.to_str().unwrap();
    for n in [1, 12, 20, 33] {
        // the number of tokens of the shortest texts: `{}`, one digit, and `{"name": "", "tags": [""]}` with one token per byte
        for (rules, shortest) in [("--json-object", 2), ("--json-value", 1), (&*format!("--json-schema {schema}"), 26)] {
            for draw in ["--temp 0", "--trials 4 --seed 1"] {
                let report = json(&run(&words(&format!("generate In -n {n} {rules} {draw} --json"))));
                let choices = report["choices"].as_array().cloned().unwrap_or_else(|| vec![report.clone()]);
                for choice in choices {
                    let parsed = serde_json::from_str::<Value>(choice["text"].as_str().unwrap());
                    assert_eq!(parsed.is_ok(), choice["complete"] == true, "{n} {rules} {draw}: {choice}");
                    assert!(parsed.is_ok() || n < shortest, "{n} {rules} {draw}: {choice}");
                    let is_object = rules.contains("value") || parsed.is_err() || parsed.unwrap().is_object();
                    assert!(is_object && choice["tokens"].as_array().unwrap().len() <= n, "{choice}");
                }
            }
        }
    }
    let open = json(&run(&words(&format!("generate In -n 5 --json-schema {schema} --no-close --temp 0 --json"))));
    assert_eq!((open["complete"].as_bool(), open["finish"].as_str()), (Some(false), Some("length")), "{open}");
    let line = r#"{"id": 1, "prompt": "In", "max_tokens": 6, "json_schema": {"type": "string", "minLength": 1}, "temperature": 0}
{"id": 2, "prompt": "In", "max_tokens": 6, "json_schema": {"type": "string", "minLength": 60}, "close": false, "temperature": 0}"#;
    let output = stdout(&feed(&["batch", "-", "--json-value"], line.as_bytes()));
    for line in output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        assert_eq!(line["complete"], line["id"] == 1, "{line}");
    }
    let answer = json(&feed(&["chat", "--json", "--json-object", "--temp", "0"], b"/set CHAT_LEN_MAX 6\nHello\n"));
    let value: Value = serde_json::from_str(answer["text"].as_str().unwrap()).unwrap();
    assert!(value.is_object() && answer["complete"] == true, "{answer}");
}
