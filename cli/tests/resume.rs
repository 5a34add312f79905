//! Tests how `batch` continues existing results: only one run at a time, and only with the settings of the first run.

use crate::cli::{code, feed, put, refused, run, stderr, words};
use crate::support::{glm4, goldens};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const INPUT: &str = r#"{"id":1,"prompt":"light","max_tokens":6}
{"id":2,"prompt":"the king","max_tokens":6}
{"id":3,"prompt":"wisdom","max_tokens":6}
"#;

fn results(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect();
    all.sort_by_key(|line| line["id"].to_string());
    all
}

/// Starts a run of `batch` that waits for its input.
fn waiting(out: &Path, flags: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
    command.args(["batch", "-", "--device", "cpu", "-o"]).arg(out).args(flags).env_remove("RUST_LOG");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what} takes too long");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_second_run_on_the_same_results_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (out, lock) = (folder.path().join("out.jsonl"), folder.path().join("out.jsonl.lock"));
    let input = put(&folder, "in.jsonl", INPUT.as_bytes());
    let args = ["batch", input.to_str().unwrap(), "-o", out.to_str().unwrap(), "-n", "6"];
    std::fs::write(&out, "{\"id\":1,\"error\":{\"kind\":\"input\"}}\n").unwrap();
    for flags in [&["-n", "6"][..], &["-n", "6", "--retry-errors"]] {
        let mut first = waiting(&out, flags);
        let is_marked = || std::fs::read_to_string(&lock).is_ok_and(|text| text.contains(&first.id().to_string()));
        until("the lock", is_marked);
        if flags.len() > 2 {
            // Waits until the run has replaced the file of results by a new, empty file.
            until("the retry", || std::fs::read(&out).is_ok_and(|text| text.is_empty()));
        }
        for more in [&[][..], &["--retry-errors"], &["--force"]] {
            let second = run(&[&args[..], more].concat());
            refused(&second, 1, &format!("out.jsonl: another run of batch, process {}, is writing to this file", first.id()));
        }
        // A killed process no longer holds the lock.
        first.kill().unwrap();
        first.wait().unwrap();
    }
    assert!(lock.exists());
    let output = run(&args);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!((results(&out).len(), lock.exists()), (3, cfg!(windows)));
    // A file with the name of the lock and unknown contents may belong to another program, so the run is refused.
    std::fs::write(&lock, "mine").unwrap();
    refused(&run(&args), 1, "out.jsonl.lock: expected a lock file of batch");
}

#[test]
fn results_of_another_model_or_other_settings_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (out, side) = (folder.path().join("out.jsonl"), folder.path().join("out.jsonl.run.json"));
    let input = put(&folder, "in.jsonl", INPUT.as_bytes());
    let grammar = put(&folder, "yes.gbnf", b"root ::= \"yes\"");
    let args = ["batch", input.to_str().unwrap(), "-o", out.to_str().unwrap(), "-n", "9"];
    assert_eq!(code(&run(&args)), 0);
    let recorded: Value = serde_json::from_slice(&std::fs::read(&side).unwrap()).unwrap();
    assert!(recorded["seed"].is_u64() && recorded["made_with"]["sampling.top-p"] == "0.85", "{recorded}");
    // A refused run must not change these results: an error to retry, and half a line.
    let error = "{\"id\":9,\"error\":{\"kind\":\"input\"}}\n{\"id\":10,\"te";
    std::fs::OpenOptions::new().append(true).open(&out).unwrap().write_all(error.as_bytes()).unwrap();
    let before = (std::fs::read(&out).unwrap(), std::fs::read(&side).unwrap());
    let grammar = format!("--grammar {}", grammar.display());
    let mut others = vec![
        ("--temperature 0.5", "sampling.temperature (was 1, is 0.5)"),
        ("--top-k 5 --ban 7", "sampling.top-k (was 0, is 5), sampling.ban (was \"\", is 7)"),
        ("--preset greedy", "sampling.temperature (was 1, is 0)"),
        ("--quant i8", "quantisation (was f16, 16.00 bits, is i8"),
        ("--dtype f32", "quantisation (was f16, 16.00 bits, is f32, 32.00 bits)"),
        ("--stop x", "stop (was [], is [\"x\"])"),
        ("--ignore-eos", "ignore-eos (was false, is true)"),
        ("--format g1", "format (was none, is g1)"),
        (grammar.as_str(), "close (was none, is by default), rules (was none, is "),
        ("--seed 5", "seed ("),
    ];
    let sibling = goldens().find(|t| t.name == "rwkv6").map(|t| format!("--vocab tiny -m {}", t.path().display()));
    if let Some(sibling) = &sibling {
        others.push((sibling, "model (was small-world "));
    }
    for (flags, want) in &others {
        let output = run(&[&args[..], &words(flags), &["--retry-errors"]].concat());
        refused(&output, 1, &format!("out.jsonl: the results were made with other settings: {want}"));
        assert!(stderr(&output).contains("or --force to continue with these"));
    }
    refused(&run(&[&args[..4], &["-n", "8"]].concat()), 1, "max-tokens (was 9, is 8)");
    assert_eq!((std::fs::read(&out).unwrap(), std::fs::read(&side).unwrap()), before, "a refusal changes nothing");
    // Settings that do not change any text are not compared.
    let output = run(&[&args[..], &words("--slots 1 --chunk 5 --deterministic --retry-errors")].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    // After a run with --force, the new settings are the recorded settings.
    let other = [&args[..], &["--temperature", "0.5"]].concat();
    let forced = run(&[&other[..], &["--force"]].concat());
    assert_eq!(code(&forced), 0);
    assert!(stderr(&forced).contains("now records this run: sampling.temperature (was 1, is 0.5)"), "{}", stderr(&forced));
    assert_eq!(code(&run(&other)), 0);
    refused(&run(&args), 1, "sampling.temperature (was 0.5, is 1)");
}

#[test]
fn a_run_without_a_seed_repeats_when_it_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let (out, side) = (folder.path().join("out.jsonl"), folder.path().join("out.jsonl.run.json"));
    let input = put(&folder, "in.jsonl", INPUT.as_bytes());
    let args = ["batch", input.to_str().unwrap(), "-o", out.to_str().unwrap(), "--deterministic"];
    assert_eq!(code(&run(&args)), 0);
    let first = results(&out);
    let interrupted = || {
        let text = std::fs::read_to_string(&out).unwrap();
        std::fs::write(&out, text.split_inclusive('\n').next().unwrap()).unwrap();
    };
    interrupted();
    assert_eq!(code(&run(&args)), 0);
    assert_eq!(results(&out), first);
    // Results without the file of settings beside them are continued with another seed. A note says that the settings could not be compared.
    interrupted();
    std::fs::remove_file(&side).unwrap();
    let output = run(&args);
    assert!(
        code(&output) == 0 && stderr(&output).contains("note: ") && stderr(&output).contains("has no out.jsonl.run.json"),
        "{}",
        stderr(&output)
    );
    assert!(side.exists() && results(&out).len() == 3);
    // If the results are gone, the settings beside them are ignored.
    std::fs::remove_file(&out).unwrap();
    assert_eq!(code(&run(&[&args[..], &["--temperature", "0.5"]].concat())), 0);
    // A damaged file of settings is refused. With --force, the file is replaced.
    std::fs::write(&side, "{").unwrap();
    let again = [&args[..], &["--temperature", "0.5"]].concat();
    refused(&run(&again), 1, "out.jsonl.run.json: expected the settings of a run of batch");
    assert_eq!(code(&run(&[&again[..], &["--force"]].concat())), 0);
    assert_eq!(code(&run(&again)), 0);
}

#[test]
fn a_state_counts_by_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let state = |name: &str, text: &str| {
        let path = folder.path().join(name);
        assert_eq!(code(&run(&["generate", text, "-n", "0", "--save-state", path.to_str().unwrap()])), 0);
    };
    state("a.st", "In the beginning");
    state("b.st", "And Moses said");
    std::fs::copy(folder.path().join("a.st"), folder.path().join("copy.st")).unwrap();
    let input = put(&folder, "in.jsonl", INPUT.as_bytes());
    let out = folder.path().join("out.jsonl");
    let from = |name: &str| {
        let state = folder.path().join(name);
        run(&["batch", input.to_str().unwrap(), "-o", out.to_str().unwrap(), "-n", "2", "--state", state.to_str().unwrap()])
    };
    // The file name of the state may be given without its extension.
    for name in ["a", "copy.st"] {
        assert_eq!(code(&from(name)), 0, "{}", stderr(&from(name)));
    }
    refused(&from("b.st"), 1, "made with other settings: state (");
}

/// An error in one line never affects other lines, whatever the line contains.
#[test]
fn a_poisoned_line_is_its_own_error() {
    let long = "x ".repeat(1 << 20);
    let deep = format!("root ::= {}\"a\"{}", "(".repeat(100_000), ")".repeat(100_000));
    let nested = "[".repeat(50_000) + &"]".repeat(50_000);
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    let mut poison = vec![
        json!({"id": "grammar", "prompt": "x", "grammar": deep}),
        json!({"id": "schema text", "prompt": "x", "json_schema": nested}),
        json!({"id": "schema", "prompt": "x", "json_schema": {"allOf": [{"$ref": "#/allOf/0"}]}}),
        json!({"id": "tools", "messages": [{"role": "user", "content": "x", "tools": vec![tool; 200]}], "format": "?"}),
        json!({"id": "ban", "prompt": "x", "ban": vec![0; 2 << 20]}),
        json!({"id": "far", "tokens": vec![u32::MAX; 9]}),
        json!({"id": "count", "prompt": "x", "max_tokens": 1e300}),
    ];
    let fine = [
        json!({"id": "first", "prompt": "light"}),
        json!({"id": "most", "prompt": "x", "max_tokens": 1u64 << 63, "grammar": "root ::= \"yes\""}),
        json!({"id": "last", "prompt": "light"}),
    ];
    let mut flags = vec!["batch", "-", "-n", "4", "--slots", "2", "--device", "cpu"];
    let glm = glm4().map(|glm| glm.path());
    if let Some(glm) = &glm {
        flags.extend(["-m", glm.to_str().unwrap(), "--vocab", "tiny", "--context", "64"]);
        poison.push(json!({"id": "context", "prompt": long}));
        poison.push(json!({"id": "tokens", "tokens": vec![7; 65]}));
    }
    let lines = poison.iter().chain(&fine).map(Value::to_string).chain(["{\"id\":\"raw\",\"prompt\":".to_string() + &nested + "}"]);
    let mut all: Vec<String> = lines.collect();
    all.rotate_right(4);
    let output = feed(&flags, all.join("\n").as_bytes());
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let found: Vec<Value> = String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found.len(), all.len());
    for line in &found {
        let id = line["id"].as_str().unwrap();
        let is_fine = fine.iter().any(|f| f["id"] == id);
        assert_eq!(line["error"].is_null(), is_fine, "{line}");
        assert!(is_fine || line["error"]["where"].as_str().unwrap().starts_with("line "), "{line}");
        assert!(line["error"].to_string().len() < 1000, "{id}: an error does not repeat its line");
    }
    for (id, want) in [("context", "context"), ("tokens", "context")].into_iter().filter(|_| glm.is_some()) {
        let line = found.iter().find(|line| line["id"] == id).unwrap();
        assert!(line["error"]["message"].as_str().unwrap().contains(want), "{line}");
    }
}
