//! What a chat shows: answers on stdout as they come, reasoning dimmed, all else on stderr.

use super::status::{ending, spoken};
use crate::chat::{Answer, AnswerPart};
use crate::cli::output::{Output, aside, say, say_error};
use crate::cli::style::{Color, DIM, NAME};
use crate::cli::{Failure, flags};
use crate::error::Error;
use crate::report::ChatReport;
use crate::session::Finish;
use clap::builder::styling::Style;
use std::fmt;
use std::io::{IsTerminal, stderr, stdout};
use std::ops::ControlFlow;

/// How answers are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum As {
    Text,
    Json,
}

pub struct Screen {
    out: Output,
    shows: As,
    /// Whether answers go to a terminal, and whether what is beside them does.
    is_terminal: [bool; 2],
    is_coloured: bool,
    color: Color,
    /// Who gives the answer that is coming, until the first of it is shown.
    who: Option<String>,
    /// Whether the last of it was reasoning.
    is_thinking: bool,
    /// Why nothing can be shown any more.
    failure: Option<Failure>,
}

impl Screen {
    pub fn new(shows: As, color: Color, raw: bool) -> Screen {
        Screen {
            out: Output::new(raw),
            shows,
            is_terminal: [stdout().is_terminal(), stderr().is_terminal()],
            is_coloured: color.suits(&stdout()),
            color,
            who: None,
            is_thinking: false,
            failure: None,
        }
    }

    /// Before an answer: who gives it. The name is shown with the first of it, to whoever looks.
    pub fn begin(&mut self, who: Option<String>) {
        self.is_thinking = false;
        self.who = who.filter(|_| self.shows == As::Text && self.is_terminal[0]);
    }

    fn name(&mut self) -> Result<(), Failure> {
        self.who.take().map_or(Ok(()), |who| self.painted(&format!("{who} "), NAME))
    }

    /// What is new of an answer. Breaks it off where nobody reads any more.
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
        if self.shows == As::Json {
            return Ok(());
        }
        self.name()?;
        match part {
            AnswerPart::Thought(text) if self.is_terminal[0] => {
                self.is_thinking = true;
                self.painted(text, DIM)
            }
            // a file gets answers and nothing else
            AnswerPart::Thought(_) => Ok(()),
            AnswerPart::Text(text) | AnswerPart::Call(text) | AnswerPart::Arguments(text) => {
                if std::mem::take(&mut self.is_thinking) {
                    self.out.new_line()?;
                }
                self.out.text(text)
            }
        }
    }

    /// After an answer: its end, or its object.
    pub fn end(&mut self, answer: &Answer, report: ChatReport<'_>) -> Result<(), Failure> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        match self.shows {
            As::Json => self.out.json(&report)?,
            // an empty answer is a line, too: whoever counts them knows which is which
            As::Text if answer.text.is_empty() => {
                self.name()?;
                self.out.line("")?;
            }
            As::Text => self.out.new_line()?,
        }
        let spoken = spoken(answer.tokens.len(), &answer.timings, answer.finish, answer.complete);
        if self.is_terminal[1] {
            self.aside(spoken);
        } else {
            log::info!("{spoken}");
            // a reader of the text alone would not notice
            let is_cut = answer.finish == Finish::Context || answer.complete == Some(false);
            ending(answer.finish, answer.complete).filter(|_| is_cut).iter().for_each(|why| say(format_args!("note: {why}")));
        }
        Ok(())
    }

    /// Where an answer failed: what there is of it ends its line.
    pub fn fail(&mut self, e: &Error) -> Result<(), Failure> {
        self.object(e)?;
        say_error(self.color, e);
        Ok(())
    }

    /// The same, in the words of the original.
    pub fn wrong(&mut self, text: String) -> Result<(), Failure> {
        let e = Error::input(text);
        self.object(&e)?;
        self.tell(&e.message);
        Ok(())
    }

    /// Where it was stopped before it was whole.
    pub fn stopped(&mut self, e: &Error) -> Result<(), Failure> {
        self.object(e)?;
        self.aside("stopped");
        Ok(())
    }

    /// What programs read in place of an answer.
    fn object(&mut self, e: &Error) -> Result<(), Failure> {
        self.out.new_line()?;
        if self.shows == As::Json { self.out.json(&flags::report(e)) } else { Ok(()) }
    }

    /// Something beside the matter, on stderr.
    pub fn aside(&self, line: impl fmt::Display) {
        aside(self.color, line);
    }

    /// Several lines for the user, on stderr.
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
