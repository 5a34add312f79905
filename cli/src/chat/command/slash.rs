//! Commands that begin with a slash. The parser, `/help` and completion with Tab share one table.

use super::plus::{self, PLUS};
use super::{Command, Takes};
use std::fmt::Write;
use wingbeat::error::{Error, Result};

/// A command that begins with a slash.
pub struct Slash {
    pub name: &'static str,
    pub takes: Takes,
    /// The argument as `/help` shows it.
    argument: &'static str,
    meaning: &'static str,
    /// Makes the command from the trimmed text after its name. Returns `None` if the argument is missing or wrong.
    make: fn(&str) -> Option<Command>,
}

pub const COMMANDS: &[Slash] = &[
    Slash {
        name: "/help",
        takes: Takes::Nothing,
        argument: "",
        meaning: "show this list (also /?)",
        make: |rest| alone(rest, Command::Help),
    },
    Slash {
        name: "/save",
        takes: Takes::File,
        argument: "FILE",
        meaning: "save the chat to a file",
        make: |rest| some(rest).map(|name| Command::Save(name.into())),
    },
    Slash {
        name: "/load",
        takes: Takes::File,
        argument: "FILE",
        meaning: "continue a saved chat",
        make: |rest| some(rest).map(|name| Command::Load(name.into())),
    },
    Slash {
        name: "/fork",
        takes: Takes::Text,
        argument: "NAME",
        meaning: "copy the chat to a new branch and continue there",
        make: |rest| some(rest).map(|name| Command::Fork(name.into())),
    },
    Slash {
        name: "/switch",
        takes: Takes::Branch,
        argument: "[NAME]",
        meaning: "switch to another branch; without a name: list the branches",
        make: |rest| Some(Command::Switch(some(rest).map(Into::into))),
    },
    Slash {
        name: "/forget",
        takes: Takes::Branch,
        argument: "NAME",
        meaning: "remove a branch",
        make: |rest| some(rest).map(|name| Command::Forget(name.into())),
    },
    Slash {
        name: "/undo",
        takes: Takes::Nothing,
        argument: "",
        meaning: "take back the last message and its answer",
        make: |rest| alone(rest, Command::Undo),
    },
    Slash {
        name: "/retry",
        takes: Takes::Nothing,
        argument: "[-temp=X]",
        meaning: "another answer to the last message, like +",
        make: |rest| plus::parse("+").ok().filter(|_| rest.is_empty()),
    },
    Slash {
        name: "/clear",
        takes: Takes::Nothing,
        argument: "",
        meaning: "restart the chat and keep the settings, like +reset",
        make: |rest| alone(rest, Command::Clear),
    },
    Slash {
        name: "/stats",
        takes: Takes::Nothing,
        argument: "",
        meaning: "show turns, tokens and speed",
        make: |rest| alone(rest, Command::Stats),
    },
    Slash {
        name: "/set",
        takes: Takes::Setting,
        argument: "[NAME [X]]",
        meaning: "change a setting: /set temperature 0.8; without X: show it; without a name: list all",
        make: |rest| match some(rest) {
            None => Some(Command::Set(None)),
            Some(text) => {
                let (name, value) = text.split_once(|c: char| c == '=' || c.is_whitespace()).unwrap_or((text, ""));
                Some(Command::Set(Some((name.to_string(), some(value.trim()).map(Into::into)))))
            }
        },
    },
    Slash {
        name: "/system",
        takes: Takes::Text,
        argument: "[TEXT]",
        meaning: "restart the chat with a system message; without a text: with none",
        make: |rest| Some(Command::System(rest.to_string())),
    },
    Slash {
        name: "/think",
        takes: Takes::Text,
        argument: "[HOW]",
        meaning: "thoughts before answers: off, fast (empty), on, short or long; alone: show it",
        make: |rest| match some(rest) {
            None => Some(Command::Thinking(None)),
            Some(text) => text.parse().ok().map(|thinking| Command::Thinking(Some(thinking))),
        },
    },
    Slash {
        name: "/history",
        takes: Takes::Nothing,
        argument: "",
        meaning: "show the chat as the model has read it",
        make: |rest| alone(rest, Command::History),
    },
    Slash {
        name: "/grammar",
        takes: Takes::File,
        argument: "[FILE]",
        meaning: "constrain answers: a GBNF or .json schema file, json (an object), value (any JSON), none; alone: show it",
        make: |rest| Some(Command::Grammar(some(rest).map(Into::into))),
    },
    Slash {
        name: "/exit",
        takes: Takes::Nothing,
        argument: "",
        meaning: "leave (also /quit, /bye)",
        make: |rest| alone(rest, Command::Exit),
    },
];

/// Other names of commands, as other programs use them. The first item of a pair is the other name, the second item is the command.
pub const ALIASES: &[(&str, &str)] = &[("/?", "/help"), ("/quit", "/exit"), ("/bye", "/exit"), ("/q", "/exit")];

const KEYS: &[(&str, &str)] = &[
    ("-temp=X -top_p=X", "in a message: settings for its answer only"),
    ("\\ at the end, Alt-Enter", "continue the message in a new line (\\n in a message is a new line, too)"),
    ("Ctrl-C", "stop the answer; clear the line; twice on an empty line: leave"),
    ("Ctrl-D", "leave"),
];

/// Parses a line that begins with a slash.
///
/// # Errors
/// `Input` if the command is unknown, or if its argument is missing or wrong. The error about an unknown command names the most similar
/// command.
pub fn parse(line: &str) -> Result<Command> {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let lower = name.trim_end().to_lowercase();
    let lower = ALIASES.iter().find(|(alias, _)| *alias == lower).map_or(lower, |(_, name)| name.to_string());
    let Some(slash) = COMMANDS.iter().find(|c| c.name == lower) else {
        let e = Error::input(format!("unknown command {}", lower.escape_debug()));
        let as_message = "/help lists the commands; a space before the slash makes it a message";
        return Err(match nearest(&lower) {
            Some(name) => e.hint(format!("did you mean {name}? {as_message}")),
            None => e.hint(as_message),
        });
    };
    let rest = rest.trim();
    if slash.name == "/retry" && !rest.is_empty() && rest.split_whitespace().all(is_override) {
        return plus::parse(&format!("+ {rest}"));
    }
    match (slash.make)(rest) {
        Some(command) => Ok(command),
        None if rest.is_empty() => Err(Error::input(format!("{} needs an argument: {0} {}", slash.name, slash.argument))),
        None => Err(Error::input(format!("expected {}, found {:?} after the command", usage(slash.name, slash.argument), rest))),
    }
}

/// Returns the command whose spelling is most similar to `name`. ChatRWKV's commands count, too. Returns `None` if no command is similar.
fn nearest(name: &str) -> Option<&'static str> {
    let word = |name: &'static str| &name[1..];
    let likeness = |known: &&'static str| (strsim::jaro_winkler(word(known), &name[1..]) * 1e3) as u32;
    let all = COMMANDS.iter().map(|c| c.name).chain(PLUS.iter().map(|p| p.name).filter(|name| word(name).len() > 1));
    all.max_by_key(likeness).filter(|known| likeness(known) > 750)
}

fn usage(name: &str, argument: &str) -> String {
    format!("{name} {argument}").trim_end().to_string()
}

/// The width of `/help`, in columns. Terminals have at least this many.
const COLUMNS: usize = 80;
/// The column in which the meanings begin.
const INDENT: usize = 27;

/// Divides a text into lines of at most `width` characters, at spaces. A longer word has a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("it begins with a line");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            *last += " ";
            *last += word;
        } else {
            lines.push(word.into());
        }
    }
    lines
}

/// Returns the text of `/help`.
pub fn help() -> String {
    let commands = COMMANDS.iter().map(|c| (usage(c.name, c.argument), c.meaning));
    let plus = PLUS.iter().map(|p| (usage(p.name, p.argument), p.meaning));
    let keys = KEYS.iter().map(|(key, meaning)| (key.to_string(), *meaning));
    let mut text = String::new();
    for (title, rows) in [("Commands", commands.collect::<Vec<_>>()), ("As in ChatRWKV", plus.collect()), ("Keys", keys.collect())] {
        let _ = writeln!(text, "{title}:");
        for (what, meaning) in rows {
            let mut lines = wrapped(meaning, COLUMNS - INDENT).into_iter();
            let _ = writeln!(text, "  {what:<24} {}", lines.next().unwrap_or_default());
            for line in lines {
                let _ = writeln!(text, "{:INDENT$}{line}", "");
            }
        }
    }
    text.truncate(text.trim_end().len());
    text
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Returns whether `word` is a setting for one answer, such as `-temp=0.8`.
fn is_override(word: &str) -> bool {
    ["-temp=", "-top_p="].iter().any(|mark| word.starts_with(mark))
}

fn alone(rest: &str, command: Command) -> Option<Command> {
    rest.is_empty().then_some(command)
}

#[cfg(test)]
mod tests {
    use super::super::PromptKind;
    use super::*;
    use wingbeat::conversation::Overrides;

    #[test]
    fn every_command_is_read_and_listed() {
        let read = |line: &str| parse(line).unwrap();
        let retry = |temperature| Command::Draw(PromptKind::Retry, Overrides { temperature, top_p: None });
        assert_eq!(read("/save my chat.json "), Command::Save("my chat.json".into()));
        assert_eq!(read("/LOAD x"), Command::Load("x".into()));
        assert_eq!((read("/switch"), read("/switch b")), (Command::Switch(None), Command::Switch(Some("b".into()))));
        assert!(read("/switch b").ends_calls() && !read("/switch").ends_calls(), "a list of branches ends no calls");
        let set = |value: Option<&str>| Command::Set(Some(("temperature".into(), value.map(Into::into))));
        assert_eq!((read("/set temperature 0.8"), read("/set temperature=0.8")), (set(Some("0.8")), set(Some("0.8"))));
        assert_eq!(read("/set temperature"), set(None));
        assert_eq!((read("/clear"), read("/retry"), read("/?")), (Command::Clear, retry(None), Command::Help));
        assert_eq!((read("/retry -temp=2"), read("/bye")), (retry(Some(2.0)), Command::Exit));
        assert_eq!(read("/system Be brief.\nBe kind."), Command::System("Be brief.\nBe kind.".into()));
        assert_eq!(
            (read("/help"), read("/undo"), read("/stats"), read("/exit")),
            (Command::Help, Command::Undo, Command::Stats, Command::Exit)
        );
        assert_eq!((read("/set"), read("/fork a")), (Command::Set(None), Command::Fork("a".into())));
        assert_eq!(read("/forget a"), Command::Forget("a".into()));
        for command in COMMANDS {
            assert!(help().contains(&format!("\n  {} ", command.name)), "{}", command.name);
        }
    }

    #[test]
    fn help_fits_80_columns() {
        let text = help();
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert!(text.contains(&format!("\n{:INDENT$}", "")), "{text}");
        assert_eq!(wrapped("a bc def", 4), ["a bc", "def"]);
    }

    #[test]
    fn unknown_commands_and_wrong_arguments_are_errors() {
        let said = |line: &str| parse(line).unwrap_err().to_string();
        assert!(said("/hlep").contains("/help?"), "{}", said("/hlep"));
        assert!(said("/sav x").contains("/save?"), "{}", said("/sav x"));
        assert!(!said("/xyzzy").contains('?'), "{}", said("/xyzzy"));
        assert!(said("/save").contains("/save FILE"), "{}", said("/save"));
        assert!(said("/retry -temp=hot").contains("expected a number"), "{}", said("/retry -temp=hot"));
        assert!(said("/retry again").contains("/retry [-temp=X]"), "{}", said("/retry again"));
        assert!(said("/undo 3").contains("\"3\""), "{}", said("/undo 3"));
    }
}
