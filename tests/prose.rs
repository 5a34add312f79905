//! Finds slips of language: phrases that force a reader to stop, in documentation, `--help`, errors, rustdoc or shader comments. The full rules are
//! in CONTRIBUTING.md. This test checks only the rules that a program can check.

use crate::layers::{crates, sources};
use std::collections::BTreeMap;
use std::path::Path;

/// Phrases that are wrong everywhere, and what to write instead.
const PHRASES: &[(&[&str], &str)] = &[
    (&["whoever", "whosoever"], "name the person or the caller"),
    (&["none where", "none if", "nothing where", "nothing if there"], "`None` if …"),
    (&["there is none", "there are none", "of which there", "there where"], "`no …`, `None if …`, or the noun"),
    (&["is that of", "are those of", "is those of", "are that of"], "matches, agrees with, equals"),
    (&["is told", "are told", "was told", "were told", "be told", "told by"], "receives, is set to, is recognised by"),
    (&["what came of", "what comes of", "what became of", "comes to what"], "the result of …"),
    (&["comes and goes", "come and go", "texts come"], "continuous batching; slots are reused"),
    (&["goes on from", "go on from", "going on from", "went on from", "gone on"], "continues from"),
    (&["in few bits", "in fewer bits", "few bits a"], "quantised to N bits"),
    (&["stands behind", "stands before", "stands in front", "what stands", "stand behind"], "follows, precedes, contains"),
    (&["lies in", "lie in", "lies at", "lies by", "lies behind", "lies beside", "lie beside", "lie at"], "is stored in, is at, is beside"),
    (&["for want of", "but for its", "in its stead", "in their stead"], "because … is missing; except"),
    (&["at the most", "at the least"], "at most, at least"),
    (&["such a one", "one that is none", "the one that is gone"], "name the noun"),
    (&["speaks to the", "speak to the"], "calls, uses"),
    (&["what is known of", "is known of", "nothing is known"], "unknown"),
    (&["bring about", "brings about", "of its own accord", "whence", "thereof", "wherein", "hereby", "hence"], "plain words"),
];

/// Units of work. A phrase such as `a lane a row` must be `one lane per row`.
const UNITS: &[&str] = &[
    "lane",
    "row",
    "workgroup",
    "group",
    "thread",
    "token",
    "head",
    "layer",
    "word",
    "slot",
    "channel",
    "column",
    "pass",
    "step",
    "byte",
    "line",
];

/// Words that must not begin a doc comment. A doc comment begins with a verb, or with the noun that it describes.
const OPENINGS: &[&str] = &[
    "Of ",
    "Those ",
    "What ",
    "Who ",
    "Whose ",
    "Whom ",
    "Whether ",
    "The same ",
    "None ",
    "Nothing ",
    "As a ",
    "As an ",
    "Where ",
    "Which ",
];

/// One comment, string or paragraph, and the file and line where it begins.
struct Text {
    place: String,
    text: String,
    is_doc: bool,
}

/// Returns the string literals in a line of Rust, and the position of its comment. The position is `None` if the line has no comment.
fn split(line: &str) -> (Vec<String>, Option<usize>) {
    let (mut strings, mut start, mut chars) = (Vec::new(), None, line.char_indices().peekable());
    while let Some((at, c)) = chars.next() {
        match (c, start) {
            ('\\', Some(_)) => drop(chars.next()),
            ('"', Some(begin)) => {
                strings.push(line[begin..at].to_string());
                start = None;
            }
            ('"', None) if !line[..at].ends_with('\'') => start = Some(at + 1),
            ('/', None) if line[at..].starts_with("//") => return (strings, Some(at)),
            _ => {}
        }
    }
    // A string that continues in the next line.
    strings.extend(start.map(|begin| line[begin..].to_string()));
    (strings, None)
}

/// Returns the comments and strings of a source file. Comments of consecutive lines are one text.
fn of_source(file: &str, source: &str) -> Vec<Text> {
    let (mut found, mut is_after_comment): (Vec<Text>, bool) = (Vec::new(), false);
    // Tests at the end of a file may contain any phrase.
    let source = source.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    for (i, line) in source.lines().enumerate() {
        let (strings, comment) = split(line);
        let place = format!("{file}:{}", i + 1);
        found.extend(strings.into_iter().map(|text| Text { place: place.clone(), text, is_doc: false }));
        let Some(at) = comment else {
            is_after_comment = false;
            continue;
        };
        let marks: &[char] = &['/', '!'];
        let (text, is_doc) = (line[at..].trim_start_matches(marks).trim(), line[at..].starts_with("///") || line[at..].starts_with("//!"));
        match found.last_mut() {
            Some(last) if is_after_comment && !text.is_empty() => {
                last.text.push(' ');
                last.text.push_str(text);
            }
            _ => found.push(Text { place, text: text.into(), is_doc: is_doc && !is_after_comment }),
        }
        is_after_comment = true;
    }
    found
}

/// Returns the paragraphs of a page without code blocks.
fn of_page(file: &str, page: &str) -> Vec<Text> {
    let (mut found, mut is_code, mut is_open): (Vec<Text>, bool, bool) = (Vec::new(), false, false);
    for (i, line) in page.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        if is_code || line.trim().is_empty() {
            is_open = false;
        } else if is_open {
            let last = found.last_mut().expect("an open paragraph");
            last.text.push(' ');
            last.text.push_str(line.trim());
        } else {
            found.push(Text { place: format!("{file}:{}", i + 1), text: line.trim().into(), is_doc: false });
            is_open = true;
        }
    }
    found
}

/// Returns whether `text` contains `phrase` between word boundaries. `text` must be in lower case.
fn has(text: &str, phrase: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(phrase).any(|(at, _)| !is_word(text[..at].chars().next_back()) && !is_word(text[at + phrase.len()..].chars().next()))
}

/// Returns what to write instead of each wrong phrase in a text.
fn slips(text: &Text) -> Vec<String> {
    let lower = text.text.to_lowercase();
    let phrases = PHRASES.iter().flat_map(|(phrases, instead)| phrases.iter().map(move |phrase| (phrase.to_string(), instead.to_string())));
    let units = UNITS.iter().flat_map(|a| UNITS.iter().map(move |b| (format!("a {a} a {b}"), format!("one {a} per {b}"))));
    let found = phrases.chain(units).filter(|(phrase, _)| has(&lower, phrase));
    let found = found.map(|(phrase, instead)| format!("`{phrase}`: write {instead}"));
    let opening = OPENINGS.iter().find(|opening| text.is_doc && text.text.starts_with(**opening));
    found.chain(opening.map(|opening| format!("begins with `{opening}`: begin with a verb or a noun"))).collect()
}

/// Returns the texts of the program, the shaders and the documentation, without tests.
fn texts() -> Vec<Text> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let in_folder = |folder: &'static str| sources(folder).into_iter().map(move |(file, text)| (format!("{folder}/{file}"), text));
    let pages = ["README.md", "CONTRIBUTING.md"].map(|name| (name.to_string(), std::fs::read_to_string(root.join(name)).unwrap()));
    let files: BTreeMap<String, String> = ["shaders", "docs"].into_iter().flat_map(in_folder).chain(crates()).chain(pages).collect();
    let of_file = |(name, text): (&String, &String)| match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("rs" | "wgsl") if !name.contains("test") => of_source(name, text),
        Some("md") => of_page(name, text),
        _ => Vec::new(),
    };
    files.iter().flat_map(of_file).collect()
}

#[test]
fn texts_are_free_of_phrases_that_a_reader_has_to_decode() {
    let texts = texts();
    assert!(texts.len() > 5000, "only {} texts were found", texts.len());
    let found: Vec<String> = texts.iter().flat_map(|text| slips(text).into_iter().map(|slip| format!("{}: {slip}", text.place))).collect();
    assert!(found.is_empty(), "{} slips:\n{}", found.len(), found.join("\n"));
}

#[test]
fn a_slip_is_found() {
    let slips = |file: &str, text: &str| -> Vec<String> {
        let texts = if file.ends_with(".md") { of_page(file, text) } else { of_source(file, text) };
        texts.iter().flat_map(slips).collect()
    };
    assert_eq!(slips("a.rs", "/// Whether it is so.\nfn f() {}").len(), 1);
    assert_eq!(slips("a.rs", "/// The state, none\n/// where a slot is free.\nfn f() {}").len(), 1);
    assert_eq!(slips("a.rs", "let e = \"the model is told \\\"x\\\"\"; // a lane a row").len(), 2);
    assert_eq!(slips("a.wgsl", "// One lane per row.\nfn f() {}").len(), 0);
    assert_eq!(slips("a.md", "```\nwhoever\n```\nThe state\nlies in memory.").len(), 1);
    assert_eq!(slips("a.md", "Nonewhere and whoeverly.").len(), 0);
}
