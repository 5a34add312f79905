//! Tests `--grammar`, `--json-schema` and `--json-object`.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn program(args: &[&str], files: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_wingbeat"));
    command.current_dir(folder.path()).env_remove("RUST_LOG").env("WINGBEAT_DEVICE", "cpu");
    command.arg("generate").args(args).arg("In the beginning").output().unwrap()
}

fn report(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_program_takes_grammars_and_schemas() {
    let grammar = ("g.gbnf", "\u{feff}root ::= (\"yes\" | \"no\") \", \" [a-z]{3}\n");
    let of = report(&program(&["--grammar", "g.gbnf", "--json", "--trials", "3"], &[grammar]));
    for choice in of["choices"].as_array().unwrap() {
        let (answer, word) = choice["text"].as_str().unwrap().split_once(", ").unwrap();
        assert!(["yes", "no"].contains(&answer) && word.len() == 3, "{choice}");
        assert_eq!(choice["finish"], "eos");
    }
    let schema = ("s.json", r#"{"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}"#);
    let of = report(&program(&["--json-schema", "s.json", "--json"], &[schema]));
    let value: Vec<bool> = serde_json::from_str(of["text"].as_str().unwrap()).unwrap();
    assert_eq!((value.len(), of["finish"].as_str()), (2, Some("eos")));
    let of = report(&program(&["--json-object", "--json", "-n", "200", "--seed", "3", "--stop", "~~"], &[]));
    assert!(of["finish"] != "eos" || serde_json::from_str::<Value>(of["text"].as_str().unwrap()).is_ok(), "{of}");
}

#[test]
fn the_program_reports_errors_in_grammars_and_schemas() {
    let no_vocab = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/models/tiny-glm4");
    assert!(Path::new(no_vocab).exists());
    for (args, text, code, said) in [
        (["--grammar", "f"], "root ::= [a", 1, "f: line 1, column 12: expected ]"),
        (["--grammar", "f"], "root ::= x\nx ::= x \"a\"\n", 1, "f: rule \"x\" can never match"),
        (["--grammar", "g"], "", 1, "g: No such file"),
        (["--json-schema", "f"], "{", 1, "f: the JSON schema is not valid JSON: the JSON ends"),
        (["--json-schema", "f"], "3", 1, "f: expected a JSON schema"),
        (["--json-schema", "f"], r#"{"type": "intege"}"#, 1, "intege"),
        (["--json-object=yes", "f"], "", 2, "json-object"),
    ] {
        let output = program(&args, &[("f", text)]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(said), "{args:?}: {stderr}");
    }
    let both = program(&["--grammar", "f", "--json-object"], &[("f", "root ::= \"a\"")]);
    assert_eq!(both.status.code(), Some(2));
    let without = Command::new(env!("CARGO_BIN_EXE_wingbeat"))
        .args(["generate", "-m", no_vocab, "--tokens", "1,2", "--json-object", "--device", "cpu"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&without.stderr);
    assert_eq!(without.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("a grammar needs a vocabulary"), "{stderr}");
}
