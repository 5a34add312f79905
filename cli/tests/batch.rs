//! Tests `batch`: every line of the input gets exactly one line of results, even if the run is interrupted many times.

mod interrupted;

use crate::cli::{code, feed, json, put, refused, run, sibling, stderr, stdout, words};
use crate::support::{devices, glm4};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use wingbeat::vocab::Vocab;

const TOPICS: [&str; 8] = ["light", "water", "And Moses said", "the king", "In the beginning", "Thou shalt not", "a", "wisdom and gold"];

/// Returns `n` input lines that differ in length, in settings and in the form of the prompt.
fn prompts(n: usize, max_tokens: usize) -> String {
    let one = |i: usize| {
        let topic = TOPICS[i % TOPICS.len()];
        let mut line = match i % 3 {
            0 => json!({"id": i, "prompt": topic.repeat(1 + i % 4)}),
            1 => json!({"id": format!("p{i}"), "messages": [{"role": "user", "content": topic}], "temperature": 0}),
            _ => json!({"id": i, "tokens": [74, 111, 5 + i], "top_p": 0.9, "seed": i}),
        };
        line["max_tokens"] = json!(1 + (i * 5) % max_tokens);
        line.to_string() + "\n"
    };
    (0..n).map(one).collect()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

/// Returns the results by id. Panics if two results have the same id.
fn by_id(results: &[Value]) -> BTreeMap<String, Value> {
    let all: BTreeMap<String, Value> = results.iter().map(|line| (line["id"].to_string(), line.clone())).collect();
    assert_eq!(all.len(), results.len(), "an id stands there twice");
    all
}

fn kept(path: &Path) -> Vec<Value> {
    lines(&std::fs::read_to_string(path).unwrap())
}

/// Runs `batch` with results on standard output. Returns the results by id.
fn batch(input: &str, flags: &str) -> BTreeMap<String, Value> {
    let output = feed(&words(&format!("batch - --seed 7 --deterministic {flags}")), input.as_bytes());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    by_id(&lines(&String::from_utf8(output.stdout).unwrap()))
}

#[test]
fn a_text_is_the_same_in_one_slot_and_in_many() {
    let input = prompts(60, 24);
    let one = batch(&input, "--slots 1");
    assert_eq!(one.len(), 60);
    assert_eq!(batch(&input, "--slots 16"), one);
    // Runs the lines in reverse order, so that each line shares its steps with other lines than before.
    let backwards: String = input.lines().rev().map(|line| format!("{line}\n\n")).collect();
    assert_eq!(batch(&backwards, "--slots 5 --chunk 7"), one);
    if devices().contains(&"gpu") {
        let few = prompts(10, 8);
        assert_eq!(batch(&few, "--slots 16 --device gpu"), batch(&few, "--slots 1 --device gpu"));
    }
    for line in one.values() {
        let usage = &line["usage"];
        assert_eq!(usage["completion_tokens"].as_u64().unwrap(), line["tokens"].as_array().unwrap().len() as u64);
        assert!(usage["prompt_tokens"].as_u64().unwrap() > 0 && line["text"].is_string() && line["seed"].is_u64(), "{line}");
        assert!(["eos", "stop", "length"].contains(&line["finish"].as_str().unwrap()), "{line}");
    }
    // The reported seed generates the same text again.
    let line = &one["0"];
    let n = line["usage"]["completion_tokens"].to_string();
    let again = json(&run(&["generate", "light", "-n", &n, "--seed", &line["seed"].to_string(), "--deterministic", "--json"]));
    assert_eq!((&again["tokens"], &again["text"]), (&line["tokens"], &line["text"]));
}

#[test]
fn tokens_drawn_where_the_model_runs_are_those_that_the_host_draws() {
    let folder = tempfile::tempdir().unwrap();
    let every_id: Vec<u32> = (0..2048).collect();
    // If every id is banned, the host reports the error, and the other line still gets its text.
    let banned = [json!({"id": "a", "tokens": [74]}), json!({"id": "banned", "tokens": [74], "ban": every_id})];
    let banned: String = banned.iter().map(|line| format!("{line}\n")).collect();
    for device in devices() {
        // A software adapter is slow, so the device `gpu` gets fewer and shorter texts.
        let text = if *device == "cpu" { prompts(24, 40) } else { prompts(6, 12) };
        for (text, expected_code) in [(text, 0), (banned.clone(), 1)] {
            let input = put(&folder, "in.jsonl", text.as_bytes());
            let made = |draws: &str| {
                let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
                command.arg("batch").arg(&input).args(words("--slots 4 -n 12 -s 7 --deterministic --device")).arg(device);
                let output = command.env("WINGBEAT_KERNELS", "groups").env("WINGBEAT_DRAWS", draws).output().unwrap();
                assert_eq!(code(&output), expected_code, "{}", stderr(&output));
                by_id(&lines(&String::from_utf8(output.stdout).unwrap()))
            };
            let found = made("device");
            assert_eq!(found, made("host"), "{device}");
            assert_eq!(found.len(), text.lines().count());
            assert_eq!(found.values().filter(|line| line["error"]["kind"] == "usage").count(), usize::from(expected_code == 1));
        }
    }
}

#[test]
fn answers_to_messages_follow_rules_where_their_format_begins_them() {
    let line =
        |id: &str, grammar: &str| json!({"id": id, "messages": [{"role": "user", "content": "light"}], "grammar": grammar}).to_string();
    let input = [line("yes", r#"root ::= "yes" | "no""#), line("words", r#"root ::= [a-z]+ (" " [a-z]+)*"#)].join("\n");
    for format in ["tiny", "g1", "g1-fast"] {
        let model = ["-m", &sibling("rwkv7"), "--vocab", "tiny"];
        let flags = ["batch", "-", "--format", format, "--seed", "5", "--device", "cpu", "-n", "200"];
        let output = feed(&[flags.as_slice(), &model].concat(), input.as_bytes());
        for result in stdout(&output).lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            let (id, text) = (result["id"].as_str().unwrap(), result["text"].as_str().unwrap_or_else(|| panic!("{result}")));
            match id {
                "yes" => assert!(["yes", "no"].contains(&text) && result["finish"] == "eos", "{format}: {result}"),
                _ => assert!(text.chars().all(|c| c == ' ' || c.is_ascii_lowercase()) && text.trim() == text, "{format}: {result}"),
            }
            // The model has read the blank that the format requires before the answer, but the blank is not part of the answer.
            let read = Vocab::tiny().decode(&serde_json::from_value::<Vec<u32>>(result["tokens"].clone()).unwrap());
            assert_eq!(read[0], if format == "g1-fast" { b'>' } else { b' ' }, "{format}: {result}");
            let ends_at_blank_line = id == "words" && format == "tiny";
            assert_eq!(read.ends_with(b"\n\n"), ends_at_blank_line && result["finish"] == "eos", "{format}: {result}");
            assert!(!ends_at_blank_line || result["finish"] == "eos", "{result}");
        }
    }
    refused(&feed(&["batch", "-", "--format", "best"], input.as_bytes()), 2, "--format");
}

#[test]
fn a_line_demands_a_call_and_gets_it_in_openais_form() {
    let schema = json!({"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": false});
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": schema}}]);
    let line = json!({"id": 1, "messages": [{"role": "user", "content": "a"}], "tools": tools, "tool_choice": "f", "max_tokens": 90});
    let found = batch(&line.to_string(), "--format g1-tools-short --thinking off --device cpu")["1"].clone();
    let calls = found["tool_calls"].as_array().unwrap_or_else(|| panic!("{found}"));
    assert_eq!((calls.len(), &calls[0]["type"], &calls[0]["function"]["name"]), (1, &json!("function"), &json!("f")));
    let arguments: Value = serde_json::from_str(calls[0]["function"]["arguments"].as_str().unwrap()).unwrap();
    assert!(arguments["a"] == 1 || arguments["a"] == 2, "{found}");
    assert_eq!((&found["text"], &found["complete"]), (&json!(""), &json!(true)));
}

#[test]
fn messages_are_asked_in_the_models_own_form() {
    let input = r#"{"id":1,"messages":[{"role":"user","content":" light\r\n\r\nand dark "}],"temperature":0,"max_tokens":30}
{"id":2,"prompt":"User: light\nand dark\n\nAssistant:","temperature":0,"max_tokens":30,"stop":"\n\nUser:"}"#;
    let found = batch(input, "");
    assert_eq!((&found["1"]["tokens"], &found["1"]["usage"]), (&found["2"]["tokens"], &found["2"]["usage"]));
    assert_eq!(found["1"]["text"].as_str().unwrap(), found["2"]["text"].as_str().unwrap().trim_start().strip_suffix("\n\n").unwrap());
}

#[test]
fn a_line_that_is_wrong_is_a_line_of_results() {
    let folder = tempfile::tempdir().unwrap();
    let banned = json!({"id": "banned", "tokens": [74], "ban": (0..2048).collect::<Vec<u32>>()}).to_string();
    let wrong = [
        (banned.as_str(), "exclude every token"),
        (r#"{"id":"empty","prompt":""}"#, "the prompt is empty"),
        (r#"{"id":"far","tokens":[99999999]}"#, "out of range"),
        (r#"{"id":"field","prompt":"x","temprature":1}"#, "temprature"),
        (r#"{"id":"value","prompt":"x","top_p":7}"#, "from 0 to 1"),
        (r#"{"id":"none"}"#, "one of the fields prompt, messages and tokens"),
        (r#"{"id":"tool","messages":[{"role":"user","content":"x"}],"tools":[],"tool_choice":"f"}"#, "only if tools are declared"),
        (r#"{"id":"ban","prompt":"x","ban":[99999999]}"#, "size of the vocabulary"),
        (r#"{"id":"gbnf","prompt":"x","grammar":"root ::= [a"}"#, "grammar: line 1, column 12"),
        (r#"{"id":"gbnf again","prompt":"x","grammar":"root ::= [a"}"#, "grammar: line 1, column 12"),
        (r#"{"id":"schema","prompt":"x","json_schema":{"type":"strin"}}"#, "json_schema"),
        (r##"{"id":"endless","prompt":"x","json_schema":{"$ref":"#"}}"##, "no text of the vocabulary's tokens matches"),
        (r#"{"id":"schema's text","prompt":"x","json_schema":"{"}"#, "the JSON schema is not valid JSON: the JSON ends"),
        (r#"{"id":"both","prompt":"x","grammar":"root ::= \"a\"","json_object":true}"#, "at most one of the fields grammar"),
    ];
    let nameless = [
        ("{", "invalid JSON"),
        (r#"{"prompt":"x"}"#, "the field id is missing"),
        (r#"{"id":1,"prompt":"again"}"#, "an earlier line has the same id 1"),
    ];
    let all: Vec<&str> = wrong.iter().chain(&nameless).map(|(line, _)| *line).collect();
    let input = format!("{}\n{}\n{}", r#"{"id":1,"prompt":"x"}"#, all.join("\n"), r#"{"id":2,"prompt":"y"}"#);
    let (path, out) = (put(&folder, "in.jsonl", input.as_bytes()), folder.path().join("out.jsonl"));
    let (path, out) = (path.to_str().unwrap(), out.to_str().unwrap());
    let args = ["batch", path, "-o", out, "-n", "4", "--slots", "2"];
    let check = || {
        let results = kept(Path::new(out));
        assert_eq!(results.len(), 2 + all.len());
        let find = |is: &dyn Fn(&Value) -> bool| results.iter().find(|line| is(line)).unwrap().clone();
        for (i, (line, want)) in wrong.iter().chain(&nameless).enumerate() {
            let id = line.split('"').nth(3).unwrap_or_default();
            let found = if i < wrong.len() { find(&|l| l["id"] == id) } else { find(&|l| l["line"] == i + 2 && l["id"].is_null()) };
            let error = &found["error"];
            assert!(error["message"].as_str().unwrap().contains(want) || error["where"].as_str().unwrap().contains(want), "{found}");
            assert!(error["where"].as_str().unwrap().starts_with(&format!("line {}", i + 2)) && error["kind"].is_string(), "{found}");
        }
        assert!(find(&|l| l["id"] == 1)["text"].is_string() && find(&|l| l["id"] == 2)["text"].is_string());
        results
    };
    let first = run(&args);
    assert_eq!(code(&first), 1);
    assert!(stderr(&first).contains(&format!("2 of {} prompts done, {} failed", 2 + all.len(), all.len())), "{}", stderr(&first));
    let results = check();
    // Errors are results: an error stays until `--retry-errors` runs its line again. Errors of lines without an id appear again in every run.
    let named = |results: Vec<Value>| results.into_iter().filter(|line| !line["id"].is_null()).collect::<Vec<_>>();
    assert_eq!(code(&run(&args)), 1);
    check();
    assert_eq!(named(kept(Path::new(out))), named(results));
    let report = run(&[&args[..], &["--retry-errors", "--json"]].concat());
    assert_eq!(code(&report), 1);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(["done", "kept", "failed"].map(|field| report[field].as_u64().unwrap() as usize), [0, 2, all.len()]);
    check();
    std::fs::write(path, input.replace("temprature", "temperature")).unwrap();
    run(&[&args[..], &["--retry-errors"]].concat());
    assert!(by_id(&named(kept(Path::new(out))))["\"field\""]["text"].is_string());
    // If the input line that had an error is replaced, the error is replaced or disappears.
    let nameless = |line: &str| {
        std::fs::write(path, format!("{line}\n{}", r#"{"id":1,"prompt":"x"}"#)).unwrap();
        let status = code(&run(&args));
        let all: Vec<Value> = kept(Path::new(out)).into_iter().filter(|line| line["id"].is_null()).collect();
        (status, all.iter().map(|line| line["error"]["message"].as_str().unwrap().chars().take(20).collect::<String>()).collect::<Vec<_>>())
    };
    assert_eq!(nameless(r#"{"prompt":"x"}"#), (1, vec!["the field id is miss".into()]));
    assert_eq!(nameless("GARBAGE"), (1, vec!["invalid JSON, found ".into()]));
    assert_eq!(nameless(r#"{"id":2,"prompt":"x"}"#), (0, vec![]));
}

/// Returns `n` prompts whose texts must follow rules. The first word of the id names the rules.
fn ruled(n: usize) -> String {
    let one = |i: usize| {
        let mut line = json!({"id": format!("flag {i}"), "prompt": TOPICS[i % TOPICS.len()], "max_tokens": 60, "stop": []});
        let mut follow = |what: &str, field: &str, rules: Value| (line["id"], line[field]) = (json!(format!("{what} {i}")), rules);
        match i % 6 {
            0 => follow("digits", "grammar", json!("root ::= [0-9]{4}")),
            1 => follow("bools", "json_schema", json!({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3})),
            2 => follow(
                "order",
                "json_schema",
                json!({"type": "object", "properties": {"z": {"const": 1}, "a": {"const": 2}}, "required": ["a", "z"], "additionalProperties": false}),
            ),
            // The schema is given as a text, and its properties are in the reverse order.
            3 => follow(
                "redro",
                "json_schema",
                json!(
                    r#"{"type":"object","properties":{"a":{"const":2},"z":{"const":1}},"required":["a","z"],"additionalProperties":false}"#
                ),
            ),
            4 => follow("json", "json_object", json!(true)),
            _ => {}
        }
        line.to_string() + "\n"
    };
    (0..n).map(one).collect()
}

#[test]
fn a_line_has_a_grammar_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let flag = put(&folder, "answer.gbnf", b"root ::= \"yes\" | \"no\"");
    let flags = format!("--grammar {} --slots", flag.display());
    let input = ruled(24);
    let found = batch(&input, &format!("{flags} 8"));
    assert_eq!(batch(&input, &format!("{flags} 1")), found);
    let mut n_whole = 0;
    for (id, line) in &found {
        let (text, is_whole) = (line["text"].as_str().unwrap(), line["finish"] == "eos");
        n_whole += usize::from(is_whole);
        let json = || serde_json::from_str::<Value>(text).is_ok();
        let follows = match id.trim_start_matches('"').split(' ').next().unwrap() {
            "flag" => ["yes", "no"].contains(&text),
            "digits" => text.len() == 4 && text.bytes().all(|b| b.is_ascii_digit()),
            "bools" => serde_json::from_str::<Vec<bool>>(text).is_ok_and(|all| (1..=3).contains(&all.len())),
            "order" => text == r#"{"z": 1, "a": 2}"#,
            "redro" => text == r#"{"a": 2, "z": 1}"#,
            "json" => !is_whole || json(),
            other => panic!("{other}"),
        };
        assert!(follows, "{line}");
    }
    assert!(n_whole >= 20, "{n_whole} of {} are whole", found.len());

    // If a run is interrupted after some lines, the next run completes the results as if there had been no interruption.
    let (path, out) = (put(&folder, "in.jsonl", input.as_bytes()), folder.path().join("out.jsonl"));
    let (path, out) = (path.to_str().unwrap(), out.to_str().unwrap());
    let flags = format!("{flags} 3 --seed 7 --deterministic -o");
    let args = [&["batch", path][..], &words(&flags), &[out]].concat();
    assert_eq!(code(&run(&args)), 0);
    for n in [0, 1, 13] {
        let all = std::fs::read_to_string(out).unwrap();
        std::fs::write(out, all.split_inclusive('\n').take(n).collect::<String>() + r#"{"id":"digi"#).unwrap();
        assert_eq!(code(&run(&args)), 0);
        assert_eq!(by_id(&kept(Path::new(out))), found, "gone on with after {n} lines");
    }
}

#[test]
fn a_line_has_several_texts_and_their_log_probabilities() {
    let line = |more: Value| {
        let mut line = json!({"id": 1, "prompt": "In the beginning", "max_tokens": 4, "seed": 5});
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        batch(&line.to_string(), "--slots 3 --device cpu")["1"].clone()
    };
    let one = line(json!({}));
    let three = line(json!({"n": 3, "logprobs": 2}));
    let choices = three["choices"].as_array().unwrap();
    assert!(choices.len() == 3 && three.get("text").is_none() && three["usage"]["completion_tokens"] == 12, "{three}");
    assert_eq!((&choices[0]["tokens"], &choices[0]["text"]), (&one["tokens"], &one["text"]));
    assert_eq!(choices.iter().map(|choice| choice["seed"].as_u64().unwrap()).collect::<Vec<_>>(), [5, 6, 7]);
    for choice in choices {
        let of: Vec<Value> = choice["logprobs"].as_array().unwrap().iter().map(|found| found["token"].clone()).collect();
        assert_eq!(&Value::from(of), &choice["tokens"]);
        assert!(choice["logprobs"][0]["top"][1][1].as_f64().unwrap() < 0.0 && choice["logprobs"][0]["logprob"].as_f64().unwrap() <= 0.0);
    }
    // Errors: more texts than slots, and a call of a tool that is not declared.
    let error = |input: Value| {
        let output = feed(&words("batch - --slots 2 --device cpu"), input.to_string().as_bytes());
        assert_eq!(code(&output), 1);
        lines(&String::from_utf8(output.stdout).unwrap())[0]["error"].to_string()
    };
    assert!(error(json!({"id": 1, "prompt": "a", "n": 3})).contains("at most 2 continuations"));
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let said = error(json!({"id": 1, "messages": [{"role": "user", "content": "a"}], "tools": tools, "tool_choice": "g"}));
    assert!(said.contains("line 1: tool_choice") && said.contains("the name of a declared tool"), "{said}");
}

#[test]
fn a_line_says_that_it_is_no_json() {
    let line = |more: &str| format!(r#"{{"id":1,"prompt":"In the beginning","max_tokens":9{more}}}"#);
    let free = batch(&line(""), "");
    assert_eq!(batch(&line(r#","json_object":false"#), "--json-object"), free);
    assert_eq!(batch(&line(r#","json_object":null"#), "--json-object"), batch(&line(r#","json_object":true"#), ""));
    assert_ne!(batch(&line(""), "--json-object"), free);
}

#[test]
fn a_preset_of_a_line_wins_over_flags() {
    let line = |preset: &str| format!(r#"{{"id":1,"prompt":"In the beginning","max_tokens":20,"preset":"{preset}"}}"#);
    let flags = "--temperature 1.5 --top-p 1 --dry-multiplier 1 --presence-penalty 3";
    for preset in ["greedy", "chat"] {
        assert_eq!(batch(&line(preset), flags), batch(&line(preset), ""), "{preset}");
    }
    assert_ne!(batch(&line("greedy"), "--ban 0"), batch(&line("greedy"), &format!("--ban {}", the_first(&line("greedy")))));
}

/// Returns the first token id of a line's text.
fn the_first(line: &str) -> String {
    batch(line, "")["1"]["tokens"][0].to_string()
}

#[test]
fn what_is_counted_are_the_lines_of_this_input() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.jsonl");
    let first = format!("{}{}\n", prompts(6, 4), r#"{"id":"wrong","prompt":7}"#);
    let second: String = (0..4).map(|i| json!({"id": format!("second {i}"), "prompt": "x"}).to_string() + "\n").collect();
    let count = |text: &str, flags: &[&str]| {
        let input = put(&folder, "in.jsonl", text.as_bytes());
        let args = ["batch", input.to_str().unwrap(), "-o", out.to_str().unwrap(), "-n", "3", "--json"];
        let output = run(&[&args[..], flags].concat());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (["done", "kept", "failed"].map(|field| report[field].as_u64().unwrap()), code(&output))
    };
    assert_eq!(count(&first, &[]), ([6, 0, 1], 1));
    assert_eq!(count(&second, &[]), ([4, 0, 0], 0), "what another input left is nothing to it");
    assert_eq!(count(&first, &[]), ([0, 6, 1], 1));
    assert_eq!(count(&second[..second.find('\n').unwrap()], &[]), ([0, 1, 0], 0));
    assert_eq!(count(&format!("{second}\n{second}"), &[]), ([0, 4, 4], 1), "no id a second time");
    assert_eq!(count(&first.replace("7}", "\"x\"}"), &["--retry-errors"]), ([1, 6, 0], 0));
}

#[test]
fn flags_that_do_not_fit_are_refused_and_no_file_is_harmed() {
    let folder = tempfile::tempdir().unwrap();
    let text = prompts(2, 4);
    let path = put(&folder, "in.jsonl", text.as_bytes());
    let path = path.to_str().unwrap();
    refused(&run(&["batch", path, "-o", path]), 2, "the results cannot go to the file of the prompts");
    refused(&run(&["batch", path, "-o", "-", "--json"]), 2, "--output: --json and --retry-errors need a file");
    let output = run(&["batch", path, "-o", "-"]);
    assert_eq!((lines(&String::from_utf8(output.stdout).unwrap()).len(), Path::new("-").exists()), (2, false));
    let other = put(&folder, "other.jsonl", text.as_bytes());
    refused(&run(&["batch", path, "-o", other.to_str().unwrap()]), 1, "line 1: expected a file of batch results");
    assert_eq!(std::fs::read_to_string(&other).unwrap(), text);
    refused(&run(&["batch", "/no/such/file"]), 1, "No such file");
    refused(&run(&["batch", path, "-o", "/no/such/folder/out"]), 1, "/no/such/folder/out");
    assert_eq!(code(&run(&["batch", path, "--json"])), 2);
    assert_eq!(code(&run(&["batch", path, "--retry-errors"])), 2);
    assert_eq!(code(&run(&["batch", path, "--slots", "0"])), 2);
    if let Some(glm) = glm4() {
        let glm = glm.path();
        let args = ["batch", path, "-m", glm.to_str().unwrap(), "--vocab", "tiny", "--context", "2000000", "--slots", "1023"];
        refused(&run(&args), 4, "--slots: 1023 texts at once need");
    }
    if Path::new("/dev/full").exists() {
        refused(&run(&["batch", path, "-o", "/dev/full"]), 1, "/dev/full");
    }
}

#[test]
fn all_go_on_from_a_state() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("s.st");
    let state = state.to_str().unwrap();
    json(&run(&["generate", "In the beginning", "-n", "0", "--save-state", state, "--state-tokens", "--json"]));
    let input = r#"{"id":1,"prompt":" God","temperature":0,"max_tokens":9}"#;
    let whole = r#"{"id":1,"prompt":"In the beginning God","temperature":0,"max_tokens":9}"#;
    let (more, all) = (batch(input, &format!("--state {state} --slots 2")), batch(whole, ""));
    assert_eq!(more["1"]["text"], all["1"]["text"]);
    // The state also holds the tokens in which DRY looks for repetitions.
    let dry = ["--dry-multiplier", "100", "--dry-allowed-length", "1"];
    let asked = ["generate", " God", "--state", state, "-n", "9", "--temp", "0", "--seed", "7", "--deterministic", "--json"];
    let alone = json(&run(&[&asked[..], &dry].concat()));
    let found = batch(input, &format!("--state {state} {}", dry.join(" ")));
    assert_eq!(found["1"]["text"], alone["text"]);
}

#[test]
fn a_file_in_utf16_is_named_once() {
    let dir = tempfile::tempdir().unwrap();
    let text = "{\"id\": 1, \"prompt\": \"a\"}\n{\"id\": 2, \"prompt\": \"b\"}\n";
    let bytes = |mark: &str| (mark.to_owned() + text).encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    for (name, bytes) in [("marked.jsonl", bytes("\u{feff}")), ("plain.jsonl", bytes(""))] {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let output = run(&["batch", path.to_str().unwrap()]);
        refused(&output, 1, &format!("{name}: expected UTF-8 text, found UTF-16"));
        assert!(output.stdout.is_empty());
    }
}
