//! Parses messages and ChatRWKV's commands. A line may contain settings for its answer, such as `-temp=0.8`.

use super::{Command, PromptKind, Takes};
use wingbeat::conversation::Overrides;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::short;

/// One of ChatRWKV's commands, for `/help` and Tab.
pub struct Plus {
    pub name: &'static str,
    pub takes: Takes,
    pub argument: &'static str,
    pub meaning: &'static str,
    /// Makes the command from its trimmed argument. The argument is empty for commands without an argument.
    make: fn(String) -> Command,
}

pub const PLUS: &[Plus] = &[
    Plus {
        name: "+",
        takes: Takes::Nothing,
        argument: "",
        meaning: "another answer to the same message",
        make: |_| draw(PromptKind::Retry),
    },
    Plus { name: "+reset", takes: Takes::Nothing, argument: "", meaning: "restart the chat", make: |_| Command::Reset },
    Plus {
        name: "+prompt",
        takes: Takes::File,
        argument: "FILE",
        meaning: "restart the chat with a prompt file (.toml, or ChatRWKV's .py)",
        make: |text| Command::Prompt(text.into()),
    },
    Plus {
        name: "+gen",
        takes: Takes::Text,
        argument: "TEXT",
        meaning: "continue a text; the chat stays as it is",
        make: |text| draw(PromptKind::Text(text)),
    },
    Plus {
        name: "+i",
        takes: Takes::Text,
        argument: "TEXT",
        meaning: "follow an instruction",
        make: |text| draw(PromptKind::Instruct(text)),
    },
    Plus {
        name: "+qq",
        takes: Takes::Text,
        argument: "TEXT",
        meaning: "answer a question, without the chat and its first prompt",
        make: |text| draw(PromptKind::Ask(text)),
    },
    Plus {
        name: "+qa",
        takes: Takes::Text,
        argument: "TEXT",
        meaning: "answer a question, after the chat's first prompt",
        make: |text| draw(PromptKind::AskAfterPrompt(text)),
    },
    Plus {
        name: "++",
        takes: Takes::Nothing,
        argument: "",
        meaning: "another answer to the last +gen, +i, +qq or +qa",
        make: |_| draw(PromptKind::RetryText),
    },
    Plus { name: "+++", takes: Takes::Nothing, argument: "", meaning: "continue that answer", make: |_| draw(PromptKind::ContinueAnswer) },
];

fn draw(what: PromptKind) -> Command {
    Command::Draw(what, Overrides::default())
}

/// Parses a line. The two characters `\n` become a newline, except in the path of `+prompt`. The name of a command with an argument may be
/// written in upper or lower case. `-temp=X` and `-top_p=X` are removed anywhere in the line, and their values are clamped as in ChatRWKV.
///
/// # Errors
/// `Usage` if `-temp=` or `-top_p=` has no number.
pub fn parse(line: &str) -> Result<Command> {
    // A path keeps its backslashes: `\n` may be the beginning of a file's name.
    let is_file = line.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("+prompt"));
    let mut text = if is_file { line.to_string() } else { line.replace("\\n", "\n") }.trim().to_string();
    let temperature = take(&mut text, "-temp=")?.map(|x| x.clamp(0.2, 5.0));
    let top_p = take(&mut text, "-top_p=")?.map(|x| x.clamp(0.0, 1.0));
    Ok(match command(text.trim()) {
        Command::Draw(what, _) => Command::Draw(what, Overrides { temperature, top_p }),
        command => command,
    })
}

fn command(text: &str) -> Command {
    if text.is_empty() {
        return Command::Wrong("Error: please say something".into());
    }
    if let Some(alone) = PLUS.iter().find(|plus| plus.takes == Takes::Nothing && plus.name == text) {
        return (alone.make)(String::new());
    }
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    match PLUS.iter().find(|plus| plus.takes != Takes::Nothing && plus.name.eq_ignore_ascii_case(word)) {
        Some(plus) if rest.trim().is_empty() => Command::Wrong(format!("Error: {} needs {}", plus.name, plus.argument)),
        Some(plus) => (plus.make)(rest.trim().to_string()),
        None => draw(PromptKind::Say(text.to_string())),
    }
}

/// Removes every `mark` and the number after it from a text. Returns the last number, or `None` if the text does not contain `mark`.
fn take(text: &mut String, mark: &str) -> Result<Option<f32>> {
    let mut last = None;
    while let Some(from) = text.find(mark) {
        let value = text[from + mark.len()..].split(char::is_whitespace).next().unwrap_or_default();
        let number: f32 = value.parse().ok().filter(|x: &f32| !x.is_nan()).ok_or_else(|| {
            let e = Error::usage(format!("expected a number, found {:?}", short(value, 40))).at(mark);
            e.hint(format!("example: {mark}0.8"))
        })?;
        let to = from + mark.len() + value.len();
        text.replace_range(from..to, "");
        last = Some(number);
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_or_commands() {
        let say = |text: &str| draw(PromptKind::Say(text.into()));
        let cases = [
            (" hello\\nthere ", say("hello\nthere")),
            ("+prompt C:\\new.toml", Command::Prompt("C:\\new.toml".into())),
            ("+", draw(PromptKind::Retry)),
            (" ++ ", draw(PromptKind::RetryText)),
            ("+++", draw(PromptKind::ContinueAnswer)),
            ("+reset", Command::Reset),
            ("+RESET", say("+RESET")),
            ("+reset now", say("+reset now")),
            ("+Prompt  a b.py ", Command::Prompt("a b.py".into())),
            ("+gen  Once\\nupon ", draw(PromptKind::Text("Once\nupon".into()))),
            ("+GEN x", draw(PromptKind::Text("x".into()))),
            ("+i Do it", draw(PromptKind::Instruct("Do it".into()))),
            ("+qq why?", draw(PromptKind::Ask("why?".into()))),
            ("+QA why?", draw(PromptKind::AskAfterPrompt("why?".into()))),
            ("+general x", say("+general x")),
            ("++++", say("++++")),
            ("1 + 1", say("1 + 1")),
            (" /etc/passwd", say("/etc/passwd")),
            ("  ", Command::Wrong("Error: please say something".into())),
            ("+gen", Command::Wrong("Error: +gen needs TEXT".into())),
            ("+QA  ", Command::Wrong("Error: +qa needs TEXT".into())),
        ];
        for (line, want) in cases {
            assert_eq!(parse(line).unwrap(), want, "{line:?}");
        }
    }

    #[test]
    fn settings_for_one_answer_are_removed_from_the_line() {
        let cases: [(&str, &str, Option<f32>, Option<f32>); 9] = [
            ("hi -temp=0.80 there", "hi  there", Some(0.8), None),
            ("hi -temp=1 -temp=2", "hi", Some(2.0), None),
            ("-temp=1e0 -top_p=0.10 hi", "hi", Some(1.0), Some(0.1)),
            ("hi -temp=0", "hi", Some(0.2), None),
            ("hi -temp=-3", "hi", Some(0.2), None),
            ("hi -temp=9", "hi", Some(5.0), None),
            ("hi -top_p=-1", "hi", None, Some(0.0)),
            ("hi -top_p=1.5", "hi", None, Some(1.0)),
            ("hi -temp=2\\nthere", "hi \nthere", Some(2.0), None),
        ];
        for (line, text, temperature, top_p) in cases {
            assert_eq!(parse(line).unwrap(), Command::Draw(PromptKind::Say(text.into()), Overrides { temperature, top_p }), "{line:?}");
        }
        let hot = Overrides { temperature: Some(1.0), top_p: None };
        assert_eq!(parse("+qa x -temp=1").unwrap(), Command::Draw(PromptKind::AskAfterPrompt("x".into()), hot));
        assert_eq!(parse("+ -temp=1").unwrap(), Command::Draw(PromptKind::Retry, hot));
        for (line, want) in [("-temp=hot", "-temp=: expected a number, found \"hot\""), ("-top_p=", "-top_p=: "), ("-temp=nan", "-temp=: ")]
        {
            let said = parse(line).unwrap_err().to_string();
            assert!(said.starts_with(want) && !said.contains('\n'), "{said}");
        }
    }
}
