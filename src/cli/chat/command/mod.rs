//! Parses typed lines: messages, ChatRWKV's commands with a plus, and commands with a slash.

mod plus;
mod slash;

pub use plus::PLUS;
pub use slash::{ALIASES, COMMANDS, help};

use crate::chat::Overrides;
use crate::error::Result;
use std::path::PathBuf;

/// The kind of a command's argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    File,
    Branch,
    Setting,
    Text,
}

/// A parsed line.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// A prompt for the model, and settings for its answer only.
    Draw(Draw, Overrides),
    /// `+reset`
    Reset,
    /// `+prompt FILE`
    Prompt(PathBuf),
    /// A line that cannot be obeyed; the error in ChatRWKV's words.
    Wrong(String),
    Help,
    Save(PathBuf),
    Load(PathBuf),
    Fork(String),
    /// `None` lists the branches.
    Switch(Option<String>),
    Forget(String),
    Undo,
    /// Restarts the conversation, as `+reset` does.
    Clear,
    Stats,
    /// A name and a value. `None` lists all settings; a name without a value shows the setting.
    Set(Option<(String, Option<String>)>),
    /// A system message; an empty text removes it.
    System(String),
    History,
    /// `None` shows the current grammar.
    Grammar(Option<String>),
    Exit,
}

/// A prompt for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Draw {
    /// The next message.
    Say(String),
    /// `+`: another answer to the last message.
    Retry,
    /// `+gen TEXT`: continues a text.
    Text(String),
    /// `+i TEXT`: follows an instruction.
    Instruct(String),
    /// `+qq TEXT`: answers a question without the first prompt.
    Ask(String),
    /// `+qa TEXT`: answers a question after the first prompt.
    AskAfterPrompt(String),
    /// `++`: another answer to the last of these four.
    RetryText,
    /// `+++`: continues that answer.
    ContinueAnswer,
}

/// Parses a line.
///
/// # Errors
/// `Input` if a command with a slash is unknown or its argument is missing or wrong, `Usage` if `-temp=` or `-top_p=` has no number.
pub fn parse(line: &str) -> Result<Command> {
    if line.starts_with('/') { slash::parse(line) } else { plus::parse(line) }
}
