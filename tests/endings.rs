//! How texts end, and that the program says so: a full context, rules that were cut, and halves of a text that make the whole.

use crate::cli::{code, feed, json, refused, run, stderr, stdout, words};
use serde_json::Value;

const GLM4: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/tiny-glm4");

fn tokens(n: usize) -> String {
    (0..n).map(|i| (i % 50).to_string()).collect::<Vec<_>>().join(",")
}

#[test]
fn a_full_context_is_said() {
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
fn a_text_that_is_cut_under_rules_is_said() {
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
    assert!(stderr(&output).contains("1 were cut"), "{}", stderr(&output));
    let answer = json(&feed(&["chat", "--json", "--grammar", grammar], b"/set CHAT_LEN_MAX 2\nHello\n"));
    assert_eq!((answer["finish"].as_str(), answer["complete"].as_bool()), (Some("length"), Some(false)), "{answer}");
    let spoken = feed(&["chat", "--grammar", grammar], b"/set CHAT_LEN_MAX 2\nHello\n");
    assert!(stderr(&spoken).contains("does not follow its grammar"), "{}", stderr(&spoken));
}
