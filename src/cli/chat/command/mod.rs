//! What a typed line asks for: a message, one of ChatRWKV's commands with a plus, or a command with a slash. Texts of commands are read here
//! and nowhere else.

mod plus;
mod slash;

pub use plus::PLUS;
pub use slash::{ALIASES, COMMANDS, help};

use crate::chat::Overrides;
use crate::error::Result;
use std::path::PathBuf;

/// What is after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    File,
    Branch,
    Setting,
    Text,
}

/// A line, taken apart.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Something that the model answers, and settings for this answer alone.
    Draw(Draw, Overrides),
    /// `+reset`
    Reset,
    /// `+prompt FILE`
    Prompt(PathBuf),
    /// Nothing that could be done; what to tell the user, in the words of the original.
    Wrong(String),
    Help,
    Save(PathBuf),
    Load(PathBuf),
    Fork(String),
    /// `None` lists the branches.
    Switch(Option<String>),
    Forget(String),
    Undo,
    /// Forgets the conversation, as `+reset` does.
    Clear,
    Stats,
    /// A name and a value. `None` lists all settings; a name without a value shows one.
    Set(Option<(String, Option<String>)>),
    /// Empty takes it away.
    System(String),
    History,
    /// `None` tells which there is.
    Grammar(Option<String>),
    Exit,
}

/// What the model answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Draw {
    /// The next message.
    Say(String),
    /// `+`: another answer to the last message.
    Retry,
    /// `+gen TEXT`: goes on with a text.
    Text(String),
    /// `+i TEXT`: follows an instruction.
    Instruct(String),
    /// `+qq TEXT`: answers a question without any context.
    Ask(String),
    /// `+qa TEXT`: answers a question after the first prompt.
    AskAfterPrompt(String),
    /// `++`: another try at the last of these four.
    RetryText,
    /// `+++`: goes on with it.
    ContinueAnswer,
}

/// Reads a line.
///
/// # Errors
/// `Input` at an unknown command with a slash, with the nearest there is, and at one without what it takes; `Usage` where `-temp=` or
/// `-top_p=` has no number.
pub fn parse(line: &str) -> Result<Command> {
    if line.starts_with('/') { slash::parse(line) } else { plus::parse(line) }
}
