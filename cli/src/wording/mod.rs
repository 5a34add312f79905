//! Compares the texts that users read with `cli/tests/snapshots/wording.txt`: every help text, and a provoked error of every kind.
//!
//! So every changed text appears in a review. `WINGBEAT_BLESS=1` rewrites the file.

mod commands;
mod files;
mod help;
mod library;
mod requests;

use crate::style::explained;
use std::fmt::Write;
use std::path::Path;
use wingbeat::error::Error;

const SNAPSHOT: &str = "tests/snapshots/wording.txt";

/// The maximum number of differing lines that are shown.
const SHOWN: usize = 20;

const HEAD: &str = "\
All help texts and a sample of every kind of error, as the program prints them. Written by
  WINGBEAT_BLESS=1 cargo test -p wingbeat-cli --lib wording
DIR is a folder of files made for the errors.
";

/// Returns an error as the program prints it on a terminal.
fn printed(e: &Error) -> String {
    explained(e, true).join("\n")
}

/// Adds a chapter to the text `to`: the name of each case, then the indented text that is printed for it.
fn chapter(to: &mut String, title: &str, cases: impl IntoIterator<Item = (String, String)>) {
    write!(to, "\n\n===== {title} =====\n").expect("a string takes everything");
    for (name, text) in cases {
        let text: String = text.trim_end().lines().map(|line| format!("    {line}").trim_end().to_owned() + "\n").collect();
        write!(to, "\n{name}\n{text}").expect("a string takes everything");
    }
}

#[test]
fn every_text_is_as_reviewed() {
    let files = files::Files::make();
    let mut found = String::from(HEAD);
    chapter(&mut found, "Help", help::all());
    chapter(&mut found, "Errors of flags", commands::refused());
    chapter(&mut found, "Errors of commands", commands::failing(&files));
    chapter(&mut found, "Errors of lines of batch and of requests", requests::all(&files));
    chapter(&mut found, "Errors of the library", library::all(&files));
    let found = files.without_names(&found);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(SNAPSHOT);
    if std::env::var_os("WINGBEAT_BLESS").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let reviewed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == reviewed,
        "{SNAPSHOT} differs:\n{}\nIf the texts are right: WINGBEAT_BLESS=1 cargo test -p wingbeat-cli --lib wording",
        difference(&reviewed, &found)
    );
}

/// Returns the lines that only one of the two texts has, at most `SHOWN` per text. `-` precedes a line of `old`, `+` a line of `new`.
fn difference(old: &str, new: &str) -> String {
    let only = |mark: &str, a: &str, b: &str| {
        let b: std::collections::HashSet<&str> = b.lines().collect();
        a.lines().filter(|line| !b.contains(line)).map(|line| format!("{mark} {line}\n")).take(SHOWN).collect::<String>()
    };
    only("-", old, new) + &only("+", new, old)
}

#[test]
fn a_difference_shows_lines_of_both_texts() {
    assert_eq!(difference("a\nb\n", "a\nc\n"), "- b\n+ c\n");
}
