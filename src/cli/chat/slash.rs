//! Commands that begin with a slash: one table, which the parser, `/help` and Tab walk. ChatRWKV's own, with a plus, are listed beside
//! them; the conversation itself reads those.

use crate::error::{Error, Result};
use std::fmt::Write;
use std::path::PathBuf;

/// What stands after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    File,
    Branch,
    Setting,
    Text,
}

/// A command, read.
#[derive(Debug, PartialEq, Eq)]
pub enum Slash {
    Help,
    Save(PathBuf),
    Load(PathBuf),
    Fork(String),
    /// None lists the branches.
    Switch(Option<String>),
    Forget(String),
    Undo,
    /// What stands before the command is forgotten.
    Clear,
    /// Another answer to the last message, with settings for it alone.
    Retry(String),
    Stats,
    /// A name and a value. `None` lists all settings; a name without a value shows one.
    Set(Option<(String, Option<String>)>),
    /// Empty takes it away.
    System(String),
    History,
    /// None tells which there is.
    Grammar(Option<String>),
    Exit,
}

/// One row of the table.
pub struct Command {
    pub name: &'static str,
    pub takes: Takes,
    /// As `/help` shows it.
    argument: &'static str,
    meaning: &'static str,
    /// From what stands after the name, trimmed; none where that is not what it takes.
    make: fn(&str) -> Option<Slash>,
}

pub const COMMANDS: &[Command] = &[
    Command { name: "/help", takes: Takes::Nothing, argument: "", meaning: "this list (also /?)", make: |rest| alone(rest, Slash::Help) },
    Command {
        name: "/save",
        takes: Takes::File,
        argument: "FILE",
        meaning: "keep the chat in a file",
        make: |rest| some(rest).map(|name| Slash::Save(name.into())),
    },
    Command {
        name: "/load",
        takes: Takes::File,
        argument: "FILE",
        meaning: "go on with one that was kept",
        make: |rest| some(rest).map(|name| Slash::Load(name.into())),
    },
    Command {
        name: "/fork",
        takes: Takes::Text,
        argument: "NAME",
        meaning: "go on in a branch of that name; the old one stays as it is",
        make: |rest| some(rest).map(|name| Slash::Fork(name.into())),
    },
    Command {
        name: "/switch",
        takes: Takes::Branch,
        argument: "[NAME]",
        meaning: "go to another branch; without a name: list them",
        make: |rest| Some(Slash::Switch(some(rest).map(Into::into))),
    },
    Command {
        name: "/forget",
        takes: Takes::Branch,
        argument: "NAME",
        meaning: "remove a branch",
        make: |rest| some(rest).map(|name| Slash::Forget(name.into())),
    },
    Command {
        name: "/undo",
        takes: Takes::Nothing,
        argument: "",
        meaning: "take back the last message and its answer",
        make: |rest| alone(rest, Slash::Undo),
    },
    Command {
        name: "/retry",
        takes: Takes::Nothing,
        argument: "[-temp=X]",
        meaning: "another answer to the last message, as +",
        make: |rest| rest.split_whitespace().all(is_override).then(|| Slash::Retry(rest.to_string())),
    },
    Command {
        name: "/clear",
        takes: Takes::Nothing,
        argument: "",
        meaning: "forget the chat and begin again; settings stay, as with +reset",
        make: |rest| alone(rest, Slash::Clear),
    },
    Command {
        name: "/stats",
        takes: Takes::Nothing,
        argument: "",
        meaning: "tokens and speed so far",
        make: |rest| alone(rest, Slash::Stats),
    },
    Command {
        name: "/set",
        takes: Takes::Setting,
        argument: "[NAME [X]]",
        meaning: "change a setting: /set temperature 0.8; without X: show it; alone: list all",
        make: |rest| match some(rest) {
            None => Some(Slash::Set(None)),
            Some(text) => {
                let (name, value) = text.split_once(|c: char| c == '=' || c.is_whitespace()).unwrap_or((text, ""));
                Some(Slash::Set(Some((name.to_string(), some(value.trim()).map(Into::into)))))
            }
        },
    },
    Command {
        name: "/system",
        takes: Takes::Text,
        argument: "[TEXT]",
        meaning: "begin again with this said to the model first; alone: with nothing",
        make: |rest| Some(Slash::System(rest.to_string())),
    },
    Command {
        name: "/history",
        takes: Takes::Nothing,
        argument: "",
        meaning: "the chat so far, as the model has read it",
        make: |rest| alone(rest, Slash::History),
    },
    Command {
        name: "/grammar",
        takes: Takes::File,
        argument: "[FILE]",
        meaning: "answers follow a grammar (GBNF; a schema where its name ends with .json); json: a JSON object; value: any JSON value; none: no grammar",
        make: |rest| Some(Slash::Grammar(some(rest).map(Into::into))),
    },
    Command {
        name: "/exit",
        takes: Takes::Nothing,
        argument: "",
        meaning: "leave (also /quit, /bye)",
        make: |rest| alone(rest, Slash::Exit),
    },
];

/// What other programs call our commands.
pub const ALIASES: &[(&str, &str)] = &[("/?", "/help"), ("/quit", "/exit"), ("/bye", "/exit"), ("/q", "/exit")];

/// One of ChatRWKV's commands, for `/help` and Tab.
pub struct Plus {
    pub name: &'static str,
    pub takes: Takes,
    argument: &'static str,
    meaning: &'static str,
}

pub const PLUS: &[Plus] = &[
    Plus { name: "+", takes: Takes::Nothing, argument: "", meaning: "another answer to the same message" },
    Plus { name: "+reset", takes: Takes::Nothing, argument: "", meaning: "begin the chat again" },
    Plus { name: "+prompt", takes: Takes::File, argument: "FILE", meaning: "begin again with a prompt file (.toml, or ChatRWKV's .py)" },
    Plus { name: "+gen", takes: Takes::Text, argument: "TEXT", meaning: "continue a text; the chat stays as it is" },
    Plus { name: "+i", takes: Takes::Text, argument: "TEXT", meaning: "follow an instruction" },
    Plus { name: "+qq", takes: Takes::Text, argument: "TEXT", meaning: "answer a question, without the chat" },
    Plus { name: "+qa", takes: Takes::Text, argument: "TEXT", meaning: "the same, after the chat's prompt" },
    Plus { name: "++", takes: Takes::Nothing, argument: "", meaning: "another try at the last +gen, +i, +qq or +qa" },
    Plus { name: "+++", takes: Takes::Nothing, argument: "", meaning: "go on with it" },
];

const KEYS: &[(&str, &str)] = &[
    ("-temp=X -top_p=X", "in a message: for its answer only"),
    ("\\ at the end, Alt-Enter", "go on in a new line (\\n in the text is one, too)"),
    ("Ctrl-C", "stop the answer; clear the line; twice on an empty line: leave"),
    ("Ctrl-D", "leave"),
];

/// What a line that begins with a slash asks for; none where it does not begin with one.
///
/// # Errors
/// `Input` at an unknown command, with the nearest there is, and at one without what it takes.
pub fn parse(line: &str) -> Result<Option<Slash>> {
    if !line.starts_with('/') {
        return Ok(None);
    }
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let lower = name.trim_end().to_lowercase();
    let lower = ALIASES.iter().find(|(alias, _)| *alias == lower).map_or(lower, |(_, name)| name.to_string());
    let Some(command) = COMMANDS.iter().find(|c| c.name == lower) else {
        let e = Error::input(format!("there is no command {}", lower.escape_debug()));
        let else_say = "to say it to the model, put a space before it";
        return Err(match nearest(&lower) {
            Some(name) => e.hint(format!("{name}? /help lists them; {else_say}")),
            None => e.hint(format!("/help lists them; {else_say}")),
        });
    };
    match (command.make)(rest.trim()) {
        Some(slash) => Ok(Some(slash)),
        None if rest.trim().is_empty() => Err(Error::input(format!("expected {} {}", command.name, command.argument))),
        None => Err(Error::input(format!("expected {}, found {:?} after it", usage(command.name, command.argument), rest.trim()))),
    }
}

/// The command that is spelled most like `name`, if any is; one of ChatRWKV's where that is called so.
fn nearest(name: &str) -> Option<&'static str> {
    let word = |name: &'static str| &name[1..];
    let likeness = |known: &&'static str| (strsim::jaro_winkler(word(known), &name[1..]) * 1e3) as u32;
    let all = COMMANDS.iter().map(|c| c.name).chain(PLUS.iter().map(|p| p.name).filter(|name| word(name).len() > 1));
    all.max_by_key(likeness).filter(|known| likeness(known) > 750)
}

fn usage(name: &str, argument: &str) -> String {
    format!("{name} {argument}").trim_end().to_string()
}

/// What `/help` says.
pub fn help() -> String {
    let commands = COMMANDS.iter().map(|c| (usage(c.name, c.argument), c.meaning));
    let plus = PLUS.iter().map(|p| (usage(p.name, p.argument), p.meaning));
    let keys = KEYS.iter().map(|(key, meaning)| (key.to_string(), *meaning));
    let mut text = String::new();
    for (title, rows) in [("Commands", commands.collect::<Vec<_>>()), ("As in ChatRWKV", plus.collect()), ("Keys", keys.collect())] {
        let _ = writeln!(text, "{title}:");
        for (what, meaning) in rows {
            let _ = writeln!(text, "  {what:<24} {meaning}");
        }
    }
    text.truncate(text.trim_end().len());
    text
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// A setting for one answer.
fn is_override(word: &str) -> bool {
    ["-temp=", "-top_p="].iter().any(|mark| word.starts_with(mark))
}

fn alone(rest: &str, slash: Slash) -> Option<Slash> {
    rest.is_empty().then_some(slash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_read_and_listed() {
        let read = |line: &str| parse(line).unwrap().unwrap();
        assert_eq!(read("/save my chat.json "), Slash::Save("my chat.json".into()));
        assert_eq!(read("/LOAD x"), Slash::Load("x".into()));
        assert_eq!((read("/switch"), read("/switch b")), (Slash::Switch(None), Slash::Switch(Some("b".into()))));
        let set = |value: Option<&str>| Slash::Set(Some(("temperature".into(), value.map(Into::into))));
        assert_eq!((read("/set temperature 0.8"), read("/set temperature=0.8")), (set(Some("0.8")), set(Some("0.8"))));
        assert_eq!(read("/set temperature"), set(None));
        assert_eq!((read("/clear"), read("/retry"), read("/?")), (Slash::Clear, Slash::Retry(String::new()), Slash::Help));
        assert_eq!((read("/retry -temp=2"), read("/bye")), (Slash::Retry("-temp=2".into()), Slash::Exit));
        assert_eq!(read("/system Be brief.\nBe kind."), Slash::System("Be brief.\nBe kind.".into()));
        assert_eq!((read("/help"), read("/undo"), read("/stats"), read("/exit")), (Slash::Help, Slash::Undo, Slash::Stats, Slash::Exit));
        assert_eq!((read("/set"), read("/fork a")), (Slash::Set(None), Slash::Fork("a".into())));
        assert_eq!(read("/forget a"), Slash::Forget("a".into()));
        for command in COMMANDS {
            assert!(help().contains(&format!("\n  {} ", command.name)), "{}", command.name);
        }
        assert_eq!(parse("hello").unwrap(), None);
        assert_eq!(parse(" /etc/passwd").unwrap(), None);
    }

    #[test]
    fn what_is_no_command_is_said_in_a_line() {
        let said = |line: &str| parse(line).unwrap_err().to_string();
        assert!(said("/hlep").contains("/help?"), "{}", said("/hlep"));
        assert!(said("/sav x").contains("/save?"), "{}", said("/sav x"));
        assert!(!said("/xyzzy").contains('?'), "{}", said("/xyzzy"));
        assert!(said("/save").contains("/save FILE"), "{}", said("/save"));
        assert!(said("/retry again").contains("/retry [-temp=X]"), "{}", said("/retry again"));
        assert!(said("/undo 3").contains("\"3\""), "{}", said("/undo 3"));
    }
}
