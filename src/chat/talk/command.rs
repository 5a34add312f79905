//! What a line asks for: a message or one of ChatRWKV's commands, and settings for this answer alone.

use crate::error::{Error, Result, short};

/// A line, taken apart.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub command: Command,
    pub overrides: Overrides,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// The next turn.
    Say(String),
    /// `+`: another reply.
    Again,
    /// `+reset`
    Reset,
    /// `+prompt FILE`
    Prompt(String),
    /// A text of the user's is gone on with.
    Free(Start),
    /// `++`: another continuation.
    Retry,
    /// `+++`: more of it.
    More,
    /// Nothing that could be done; what to tell the user.
    Wrong(String),
}

/// How a free generation begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// `+gen TEXT`: with the text alone.
    Text(String),
    /// `+i TEXT`: with an instruction.
    Instruction(String),
    /// `+qq TEXT`: with a question, without any context.
    Question(String),
    /// `+qa TEXT`: with a question behind the first prompt.
    Asked(String),
}

/// `-temp=X` and `-top_p=X`, within the bounds of the original.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Overrides {
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
}

/// A command with a text: its word, what it makes of the text.
type WithText = (&'static str, fn(String) -> Command);

const WITH_TEXT: [WithText; 5] = [
    ("+prompt", Command::Prompt),
    ("+gen", |text| Command::Free(Start::Text(text))),
    ("+i", |text| Command::Free(Start::Instruction(text))),
    ("+qq", |text| Command::Free(Start::Question(text))),
    ("+qa", |text| Command::Free(Start::Asked(text))),
];

impl Line {
    /// Takes a line apart. A backslash and an `n` are a newline; words of commands may be in capitals, but for `+reset`.
    ///
    /// # Errors
    /// `Usage` where `-temp=` or `-top_p=` has no number.
    pub fn parse(line: &str) -> Result<Line> {
        // The name of a file keeps its backslashes.
        let is_file = line.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("+prompt"));
        let mut text = if is_file { line.to_string() } else { line.replace("\\n", "\n") }.trim().to_string();
        let temperature = take(&mut text, "-temp=")?.map(|x| x.clamp(0.2, 5.0));
        let top_p = take(&mut text, "-top_p=")?.map(|x| x.clamp(0.0, 1.0));
        Ok(Line { command: Command::parse(text.trim()), overrides: Overrides { temperature, top_p } })
    }
}

impl Command {
    fn parse(text: &str) -> Command {
        match text {
            "" => return Command::Wrong("Error: please say something".into()),
            "+reset" => return Command::Reset,
            "+" => return Command::Again,
            "++" => return Command::Retry,
            "+++" => return Command::More,
            _ => {}
        }
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        match WITH_TEXT.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)) {
            Some((known, _)) if rest.trim().is_empty() => Command::Wrong(format!("Error: {known} wants a text behind it")),
            Some((_, of)) => of(rest.trim().to_string()),
            None => Command::Say(text.to_string()),
        }
    }
}

/// Takes the numbers behind a mark out of a text, mark and all; gives the last of them.
fn take(text: &mut String, mark: &str) -> Result<Option<f32>> {
    let mut last = None;
    while let Some(from) = text.find(mark) {
        let value = text[from + mark.len()..].split(char::is_whitespace).next().unwrap_or_default();
        let number: f32 = value.parse().ok().filter(|x: &f32| !x.is_nan()).ok_or_else(|| {
            let e = Error::usage(format!("expected a number behind it, found {:?}", short(value, 40))).at(mark);
            e.hint(format!("as in {mark}0.8"))
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

    fn command(line: &str) -> Command {
        Line::parse(line).unwrap().command
    }

    #[test]
    fn lines_are_messages_or_commands() {
        let say = |text: &str| Command::Say(text.into());
        let free = |start: fn(String) -> Start, text: &str| Command::Free(start(text.into()));
        let cases = [
            (" hello\\nthere ", say("hello\nthere")),
            ("+prompt C:\\new.toml", Command::Prompt("C:\\new.toml".into())),
            ("+", Command::Again),
            (" ++ ", Command::Retry),
            ("+++", Command::More),
            ("+reset", Command::Reset),
            ("+RESET", say("+RESET")),
            ("+reset now", say("+reset now")),
            ("+Prompt  a b.py ", Command::Prompt("a b.py".into())),
            ("+gen  Once\\nupon ", free(Start::Text, "Once\nupon")),
            ("+GEN x", free(Start::Text, "x")),
            ("+i Do it", free(Start::Instruction, "Do it")),
            ("+qq why?", free(Start::Question, "why?")),
            ("+QA why?", free(Start::Asked, "why?")),
            ("+general x", say("+general x")),
            ("++++", say("++++")),
            ("1 + 1", say("1 + 1")),
            ("", Command::Wrong("Error: please say something".into())),
            ("+gen", Command::Wrong("Error: +gen wants a text behind it".into())),
            ("+QA  ", Command::Wrong("Error: +qa wants a text behind it".into())),
        ];
        for (line, want) in cases {
            assert_eq!(command(line), want, "{line:?}");
        }
    }

    #[test]
    fn settings_for_one_answer_are_taken_out_as_they_stand() {
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
            let want = Line { command: Command::Say(text.into()), overrides: Overrides { temperature, top_p } };
            assert_eq!(Line::parse(line).unwrap(), want, "{line:?}");
        }
        assert_eq!(Line::parse("+qa x -temp=1").unwrap().command, Command::Free(Start::Asked("x".into())));
        assert_eq!(Line::parse("+ -temp=1").unwrap().command, Command::Again);
        for (line, want) in
            [("-temp=hot", "-temp=: expected a number behind it, found \"hot\""), ("-top_p=", "-top_p=: "), ("-temp=nan", "-temp=: ")]
        {
            let said = Line::parse(line).unwrap_err().to_string();
            assert!(said.starts_with(want) && !said.contains('\n'), "{said}");
        }
    }
}
