//! Tests the files that the program writes. The program checks the path before work begins. A file is complete or absent. If a signal asks the
//! program to end, the program saves the file first.

#[cfg(unix)]
mod processes;

use crate::cli::{code, feed, put, refused, run, stderr, stdout, words};
use std::path::Path;
use std::process::Output;
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../assets/models/small-world.safetensors");

/// Returns commands that write to `out` and whose input is missing or endless. Such a command ends at once only if it checks its output path first.
fn writers(out: &str) -> Vec<Vec<&str>> {
    let args = |line: &'static str| words(line);
    vec![
        [args("generate x -m /no/such/model --save-state"), vec![out]].concat(),
        [args("chat -m /no/such/model --save"), vec![out]].concat(),
        [args("score --text x -m /no/such/model --logits"), vec![out]].concat(),
        [args("convert /no/such/model"), vec![out]].concat(),
        [args("bench --synthetic rwkv7-0.1b -p 0 -n 0 --write"), vec![out]].concat(),
        [args("doctor --device no-such-device --out"), vec![out]].concat(),
    ]
}

#[test]
fn an_output_is_refused_before_a_model_is_opened() {
    let folder = folder();
    let file = put(&folder, "there.st", b"mine");
    let inside = file.join("x.st");
    let missing = folder.path().join("missing").join("x.st");
    let mut cases = vec![
        (text(folder.path()), "found a folder"),
        (text(&missing), "missing/x.st: "),
        (text(&inside), "there.st/x.st: "),
        ("-", "write ./-"),
    ];
    if cfg!(target_os = "linux") {
        cases.extend([("/dev/null", "found a device"), ("/proc/x.st", "/proc/x.st: ")]);
    }
    for (out, expected) in cases {
        for args in writers(out) {
            refused(&run(&args), 1, expected);
            refused(&run(&[args, vec!["--force"]].concat()), 1, expected);
        }
    }
    for args in writers(text(&file)) {
        let is_state = args[0] == "generate" || args[0] == "chat";
        let expected = if is_state { "a state file, so it is not replaced" } else { "replace the file with --force" };
        refused(&run(&args), 1, expected);
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
    refused(&run(&["batch", "-", "-o", text(&missing)]), 1, "missing");
}

#[test]
fn force_replaces_a_file_and_a_state_only_a_state() {
    let folder = folder();
    let (state, model, logits) = (folder.path().join("s.st"), put(&folder, "m.st", b"old"), put(&folder, "l.st", b"old"));
    let save = ["generate", "In", "-n", "1", "--save-state", text(&state)];
    stdout(&run(&save));
    let first = std::fs::read(&state).unwrap();
    refused(&run(&save), 1, "s.st: the output file exists already (choose another name, or replace the file with --force)");
    stdout(&run(&[&save[..], &["--force", "--temp", "0"]].concat()));
    assert!(std::fs::read(&state).unwrap() != first);
    refused(&run(&["generate", "In", "-n", "1", "--save-state", text(&model), "--force"]), 1, "is not a state file");

    stdout(&run(&["convert", TINY, text(&model), "--force"]));
    assert!(std::fs::read(&model).unwrap() == std::fs::read(TINY).unwrap() || model.metadata().unwrap().len() > 1 << 20);
    refused(&run(&["convert", text(&model), text(&model), "--force"]), 2, "is also an input file");
    stdout(&run(&["score", "--text", "In the", "--logits", text(&logits), "--force"]));
    assert!(logits.metadata().unwrap().len() > 1000);
    // An empty file may be overwritten, because it holds nothing that could be lost.
    let empty = put(&folder, "empty.st", b"");
    stdout(&run(&["generate", "In", "-n", "1", "--save-state", text(&empty)]));
}

#[test]
fn a_chat_that_was_loaded_is_saved_to_the_same_file() {
    let folder = folder();
    let file = folder.path().join("chat.st");
    let turns = |args: &[&str], said: &[u8]| stderr(&feed(&[&["chat", "--seed", "3"], args].concat(), said));
    let (save, load) = (["--save", text(&file)], ["--load", text(&file)]);
    assert!(!turns(&save, b"light\n").contains("error"));
    refused(&feed(&["chat", "--save", text(&file)], b"light\n"), 1, "--force");
    stdout(&feed(&[&["chat"], &load[..], &save[..]].concat(), b"water\n"));
    assert!(turns(&load, b"/history\n").contains("User: water"), "the second turn was saved, too");
    // A file that `/save` wrote in this chat may be overwritten when the chat ends.
    let other = folder.path().join("other.st");
    let said = format!("light\n/save {}\nwater\n", other.display());
    stdout(&feed(&["chat", "--save", text(&other)], said.as_bytes()));
}

/// Returns the names of the files in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
