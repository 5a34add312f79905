//! Tests that the table in `server/fields.md` matches the table in the code.

use super::{Dialect, Fate, own, table};
use std::fmt::Write;
use wingbeat::low_level::sample::Setting;

const NAMES: [(Dialect, &str); Dialect::ALL.len()] = [
    (Dialect::Chat, "chat"),
    (Dialect::Text, "completions"),
    (Dialect::Responses, "responses"),
    (Dialect::Messages, "messages"),
    (Dialect::Llama, "llama"),
    (Dialect::Ollama, "ollama"),
    (Dialect::Options, "options"),
];

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fields.md");
const BEGIN: &str = "<!-- fields: made by the test the_page_lists_every_field -->\n";
const END: &str = "<!-- fields: end -->\n";

fn dialects(is_at: impl Fn(Dialect) -> bool) -> String {
    let all: Vec<&str> = NAMES.iter().filter(|(at, _)| is_at(*at)).map(|(_, name)| *name).collect();
    match all.len() {
        n if n == NAMES.len() => "all".into(),
        n if n == NAMES.len() - 1 && !is_at(Dialect::Ollama) => "all but ollama".into(),
        _ => all.join(", "),
    }
}

fn written() -> String {
    let mut page = String::from("| Field | Where | What happens |\n|---|---|---|\n");
    let mut own_of_types = std::collections::BTreeMap::<String, Vec<Dialect>>::new();
    for at in Dialect::ALL {
        own(at).iter().for_each(|name| own_of_types.entry(name.clone()).or_default().push(at));
    }
    for (name, at) in own_of_types {
        let _ = writeln!(page, "| `{name}` | {} | done, or refused with the reason |", dialects(|other| at.contains(&other)));
    }
    page += "| sampler settings ([list](../docs/sampling.md)) | all but ollama | done |\n";
    for row in table::ROWS {
        let what = match row.fate {
            Fate::Done(_, about) => format!("done: {}", lower(about)),
            Fate::Named(ours) => format!("done: another name of `{ours}`"),
            Fate::Together(about) => format!("done: {about}"),
            Fate::Harmless(reason) => format!("harmless: {reason}"),
            Fate::Ignored(reason) => format!("ignored with a warning: {reason}"),
            Fate::Refused([], advice) => format!("refused: {advice}"),
            Fate::Refused(harmless, advice) => format!("refused, except {}: {advice}", harmless.join(", ")),
        };
        let _ = writeln!(page, "| `{}` | {} | {what} |", row.name, dialects(|at| row.is_at(at)));
    }
    page
}

/// Returns a sentence with a small first letter, to follow a colon. A name such as GBNF keeps its capitals.
fn lower(text: &str) -> String {
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => format!("{}{}", first.to_lowercase(), &text[first.len_utf8()..]),
        _ => text.into(),
    }
}

#[test]
fn the_page_lists_every_field() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has the beginning of the table");
    let (found, after) = rest.split_once(END).expect("the page has the end of the table");
    let want = written();
    if found != want && std::env::var_os("WINGBEAT_BLESS").is_some() {
        std::fs::write(PAGE, format!("{before}{BEGIN}{want}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(found, want, "run this test with WINGBEAT_BLESS=1 to write the table anew");
}

#[test]
fn every_field_has_one_row_in_each_dialect() {
    for (i, row) in table::ROWS.iter().enumerate() {
        let other = table::ROWS[..i].iter().find(|other| other.name == row.name && other.at & row.at != 0);
        assert!(other.is_none(), "{} has two rows", row.name);
        if let Fate::Named(ours) = row.fate {
            for at in Dialect::ALL.into_iter().filter(|at| row.is_at(*at)) {
                let is_known = Setting::named(ours).is_ok() || super::row(at, ours).is_some_and(|row| matches!(row.fate, Fate::Done(..)));
                assert!(is_known, "{}: {ours} is no field that the engine reads in {at:?}", row.name);
            }
        }
        // A type that reads a field and a row that refuses it contradict each other.
        let is_refused = !matches!(row.fate, Fate::Done(..) | Fate::Named(_));
        let both = Dialect::ALL.into_iter().find(|at| row.is_at(*at) && own(*at).contains(row.name));
        assert!(!is_refused || both.is_none(), "{} is in the type and in the table of {both:?}", row.name);
    }
}
