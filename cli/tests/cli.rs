//! Tests the program as a shell uses it: printed text, JSON, exit codes, and hostile or missing input.

mod calibrate;
pub mod files;
mod generate;
mod measure;

use crate::support::{Golden, devices, goldens};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const VERBS: [&str; 18] = [
    "generate",
    "chat",
    "batch",
    "score",
    "tokenize",
    "detokenize",
    "inspect",
    "convert",
    "devices",
    "doctor",
    "bench",
    "quality",
    "imatrix",
    "classify",
    "embed",
    "rerank",
    "completions",
    "man",
];

/// Runs the program with an empty stdin.
pub fn run<S: AsRef<OsStr>>(args: &[S]) -> Output {
    feed(args, b"")
}

pub fn feed<S: AsRef<OsStr>>(args: &[S], stdin: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
    command.args(args).env_remove("RUST_LOG").env("WINGBEAT_DEVICE", "cpu");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Writing may fail: a program that refuses its flags closes the pipe without reading.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    child.wait_with_output().unwrap()
}

pub fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("ended by a signal: {output:?}"))
}

pub fn stdout(output: &Output) -> String {
    assert_eq!(code(output), 0, "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn json(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap()
}

/// Checks the exit code, and that the last error line on stderr (`error: …`) contains `text`.
pub fn refused(output: &Output, expected: i32, text: &str) {
    let said = stderr(output);
    assert_eq!(code(output), expected, "{said}");
    let line = said.lines().rev().find(|l| l.starts_with("error: ")).unwrap_or_else(|| panic!("no error line in {said:?}"));
    assert!(line.contains(text), "{line:?} does not say {text:?}");
}

pub fn put(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn ids(tokens: &[u32]) -> String {
    tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

pub fn sibling(name: &str) -> String {
    goldens().find(|g| g.name == name).unwrap().path().to_str().unwrap().to_string()
}

fn tiny() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../assets/models/small-world.safetensors"))
}

#[test]
fn usage_errors_exit_with_2_and_bad_ids_with_1() {
    refused(&run(&words("generate --bogus")), 2, "--bogus");
    refused(&run(&words("generate x --quant int8")), 2, "--quant");
    refused(&run(&words("generate x --top-p 2")), 2, "--top-p");
    refused(&run(&words("generate x --top-p nan")), 2, "--top-p");
    refused(&run(&words("generate x --ban 99999")), 2, "--ban");
    refused(&run(&words("generate x --logit-bias 5")), 2, "--logit-bias");
    refused(&run(&words("generate x --dry-base 0.5")), 2, "--dry-base");
    refused(&run(&words("generate x --repeat-last-n -2")), 2, "--repeat-last-n");
    refused(&run(&words("generate x --preset best")), 2, "presets: pip, demo, chat");
    for (line, expected) in [
        ("generate x -n abc", "expected a whole number of at least 0, or -1 for no limit"),
        ("generate x -t some", "expected a whole number from 1 to 4096"),
        ("generate x --chunk 0", "expected a whole number from 1 to 4294967295"),
        ("generate x --trials 2000", "expected a whole number from 1 to 1023"),
        ("batch in.jsonl -o out.jsonl --slots many", "expected a whole number from 1 to 1023"),
        ("bench -p 12,abc", "expected a whole number of at least 0"),
        ("bench -n -5", "expected no negative number, found \"-5\""),
        ("bench -r 0", "expected a whole number from 1 to 4294967295"),
        ("inspect x -c 1k", "expected a whole number from 1 to 4294967295"),
    ] {
        refused(&run(&words(line)), 2, expected);
    }
    refused(&run(&words("generate x --preset midi --vocab tiny --ban 70000")), 2, "--ban");
    refused(&run(&words("generate x --dry-multiplier 1 --dry-breaker @@@@")), 2, "--dry-breaker");
    refused(&run(&words("generate --tokens 1,x")), 2, "--tokens");
    refused(&run(&words("generate x -f y")), 2, "cannot be used with");
    refused(&run(&words("generate --tokens 5,99999 -n 1")), 1, "99999");
    refused(&run(&words("serve --host 0.0.0.0")), 2, "API keys");
}

#[test]
fn with_json_an_error_is_an_object_too() {
    let output = run(&words("generate --tokens 99999 --json"));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["error"]["kind"], "input");
    assert!(object["error"]["message"].as_str().unwrap().contains("99999"));
    refused(&output, 1, "99999");
    let output = run(&words("generate --bogus --json"));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code(&output), object["error"]["kind"].as_str()), (2, Some("usage")));
}

#[test]
fn text_to_ids_and_back() {
    let text = "In the beginning\nthere was é and 漢字.";
    for vocab in ["world", "tiny"] {
        let text = if vocab == "tiny" { "In the beginning" } else { text };
        let ids = stdout(&feed(&["tokenize", "--vocab", vocab], text.as_bytes()));
        assert_eq!(stdout(&feed(&["detokenize", "--vocab", vocab], ids.as_bytes())), text);
        assert_eq!(stdout(&run(&["detokenize", "--vocab", vocab, &ids.trim().replace(' ', ",")])), text);
    }
    let report = json(&run(&["tokenize", "In the", "--json"]));
    assert_eq!(report["n"].as_u64().unwrap() as usize, report["tokens"].as_array().unwrap().len());
    assert!(stdout(&run(&["tokenize", "In the", "--pretty"])).lines().next().unwrap().ends_with('"'));
    refused(&run(&words("detokenize 999999")), 1, "out of range");
    refused(&run(&words("detokenize x")), 2, "token ids");
    refused(&run(&words("tokenize x --vocab /no/such/vocab")), 1, "No such file");
    refused(&feed(&["tokenize"], b"\xff"), 1, "UTF-8");
}

#[test]
fn every_verb_has_examples_and_completions_know_it() {
    let script = stdout(&run(&["completions", "bash"]));
    let served: &[&str] = if cfg!(feature = "serve") { &["serve", "bench-serve"] } else { &[] };
    let downloaded: &[&str] = if cfg!(feature = "download") { &["pull", "list", "rm"] } else { &[] };
    for verb in VERBS.iter().chain(served).chain(downloaded) {
        let help = stdout(&run(&[verb, "--help"]));
        let examples = help.split("Examples:").nth(1).unwrap_or_else(|| panic!("{verb} has no examples"));
        assert!(examples.matches(&format!("wingbeat {verb}")).count() >= 2, "{verb}");
        assert!(script.contains(verb), "{verb}");
    }
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
    let shell = |script: &str| {
        let script = script.replace("wingbeat", env!("CARGO_BIN_EXE_wingbeat"));
        Command::new("bash").args(["-c", &script]).env("WINGBEAT_DEVICE", "cpu").output().unwrap()
    };
    for command in ["generate x -n 400 --ignore-eos", "generate x -n 400 --ignore-eos --jsonl", "inspect --tensors", "completions bash"] {
        let output = shell(&format!("wingbeat {command} | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}"));
        assert_eq!(code(&output), 0, "{command}: {}", stderr(&output));
        assert!(!stderr(&output).contains("error"), "{}", stderr(&output));
    }
    if Path::new("/dev/full").exists() {
        refused(&shell("wingbeat generate x -n 4 > /dev/full"), 1, "standard output");
    }
}
