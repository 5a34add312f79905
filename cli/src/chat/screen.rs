//! Shows a chat: answers on stdout while the model writes them, thoughts (reasoning) dimmed, everything else on stderr.

use super::report::ChatReport;
use super::status::{ending, spoken};
use crate::output::{Output, aside, say, say_error};
use crate::style::{Color, DIM, NAME};
use crate::{Failure, flags};
use clap::builder::styling::Style;
use std::fmt;
use std::io::{IsTerminal, stderr, stdout};
use std::ops::ControlFlow;
use wingbeat::chat::AnswerPart;
use wingbeat::conversation::Answer;
use wingbeat::error::Error;
use wingbeat::low_level::session::Finish;

/// The form in which answers are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputMode {
    Text,
    Json,
}

pub struct Screen {
    out: Output,
    shows: OutputMode,
    /// True for a terminal. Index 0 is stdout, index 1 stderr.
    is_terminal: [bool; 2],
    is_coloured: bool,
    color: Color,
    /// The bot's name, until it is shown before the answer's first part. `None` afterwards, or if the answer is shown without a name.
    who: Option<String>,
    /// True if the last part that was shown was a thought.
    is_thinking: bool,
    /// The error of a failed write. The error ends the answer, and `end` returns it.
    failure: Option<Failure>,
}

impl Screen {
    pub fn new(shows: OutputMode, color: Color, raw: bool) -> Screen {
        Screen {
            out: Output::new(raw).wrapped(),
            shows,
            is_terminal: [stdout().is_terminal(), stderr().is_terminal()],
            is_coloured: color.suits(&stdout()),
            color,
            who: None,
            is_thinking: false,
            failure: None,
        }
    }

    /// Begins an answer. At a terminal, the name `who` is shown before the answer's first part.
    pub fn begin(&mut self, who: Option<String>) {
        self.is_thinking = false;
        self.who = who.filter(|_| self.shows == OutputMode::Text && self.is_terminal[0]);
    }

    fn name(&mut self) -> Result<(), Failure> {
        self.who.take().map_or(Ok(()), |who| self.painted(&format!("{who} "), NAME))
    }

    /// Shows a part of an answer. Returns `Break` if the output failed.
    pub fn part(&mut self, part: AnswerPart<'_>) -> ControlFlow<()> {
        match self.show(part) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                self.failure = Some(failure);
                ControlFlow::Break(())
            }
        }
    }

    fn show(&mut self, part: AnswerPart<'_>) -> Result<(), Failure> {
        if self.shows == OutputMode::Json {
            return Ok(());
        }
        self.name()?;
        match part {
            AnswerPart::Thought(text) if self.is_terminal[0] => {
                self.is_thinking = true;
                self.painted(text, DIM)
            }
            // A pipe or a file gets the answers without thoughts.
            AnswerPart::Thought(_) => Ok(()),
            // Calls are shown after the answer.
            AnswerPart::Call(_) | AnswerPart::Arguments(_) => Ok(()),
            AnswerPart::Text(text) => {
                if std::mem::take(&mut self.is_thinking) {
                    self.out.new_line()?;
                }
                self.out.text(text)
            }
        }
    }

    /// Ends the line of an answer, or prints the answer as a JSON object. If stderr is a terminal, then prints length and speed there. Otherwise
    /// stderr gets a line only if the context is full or the answer is incomplete under its grammar or schema.
    pub fn end(&mut self, answer: &Answer, report: ChatReport<'_>) -> Result<(), Failure> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        match self.shows {
            OutputMode::Json => self.out.json(&report)?,
            // An empty answer prints an empty line, so that every message has a line of output.
            OutputMode::Text if answer.text.is_empty() && answer.calls.is_empty() => {
                self.name()?;
                self.out.line("")?;
            }
            OutputMode::Text => self.out.new_line()?,
        }
        let spoken = spoken(answer.tokens.len(), &answer.timings, answer.finish, answer.complete);
        if self.is_terminal[1] {
            self.aside(spoken);
        } else {
            log::info!("{spoken}");
            // A reader of stdout cannot see that the text was cut, so stderr reports it.
            let is_cut = answer.finish == Finish::Context || answer.complete == Some(false);
            ending(answer.finish, answer.complete).filter(|_| is_cut).iter().for_each(|why| say(format_args!("note: {why}")));
        }
        Ok(())
    }

    /// Reports an error on stderr, and with `--json` as an object on stdout. Ends the line of an incomplete answer first.
    pub fn fail(&mut self, e: &Error) -> Result<(), Failure> {
        self.object(e)?;
        say_error(self.color, e);
        Ok(())
    }

    /// Reports a wrong line with the message `text`, worded as in ChatRWKV.
    pub fn wrong(&mut self, text: String) -> Result<(), Failure> {
        let e = Error::input(text);
        self.object(&e)?;
        self.tell(&e.message);
        Ok(())
    }

    /// Reports that Ctrl-C stopped the work before an answer began.
    pub fn stopped(&mut self, e: &Error) -> Result<(), Failure> {
        self.object(e)?;
        self.aside("stopped");
        Ok(())
    }

    /// Ends the line of an incomplete answer. With `--json`, prints the error as a JSON object.
    fn object(&mut self, e: &Error) -> Result<(), Failure> {
        self.out.new_line()?;
        if self.shows == OutputMode::Json { self.out.json(&flags::report(e)) } else { Ok(()) }
    }

    /// Prints a dimmed line on stderr.
    pub fn aside(&self, line: impl fmt::Display) {
        aside(self.color, line);
    }

    /// Prints lines on stderr.
    pub fn tell(&self, lines: &str) {
        lines.lines().for_each(|line| say(format_args!("{line}")));
    }

    pub fn finish(self) -> Result<(), Failure> {
        self.out.finish()
    }

    fn painted(&mut self, text: &str, style: Style) -> Result<(), Failure> {
        if self.is_coloured { self.out.styled(text, style) } else { self.out.text(text) }
    }
}
