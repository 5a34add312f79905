//! Parses typed lines: messages, ChatRWKV's commands (they begin with `+`), and commands that begin with a slash.

mod plus;
mod slash;

pub use plus::PLUS;
pub use slash::{ALIASES, COMMANDS, help};

use std::path::PathBuf;
use wingbeat::chat::Thinking;
use wingbeat::conversation::Overrides;
use wingbeat::error::Result;

/// The kind of a command's argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    File,
    Branch,
    Setting,
    Text,
}

/// A typed line after parsing.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// A prompt for the model, and settings that apply only to the answer to this prompt.
    Draw(PromptKind, Overrides),
    /// `+reset`: restarts the conversation.
    Reset,
    /// `+prompt FILE`: restarts the conversation with a prompt file.
    Prompt(PathBuf),
    /// A line with a mistake. The text is ChatRWKV's message about the mistake.
    Wrong(String),
    Help,
    Save(PathBuf),
    Load(PathBuf),
    Fork(String),
    /// The branch to switch to. `None` lists the branches.
    Switch(Option<String>),
    Forget(String),
    Undo,
    /// Restarts the conversation, as `+reset` does.
    Clear,
    Stats,
    /// The name of a setting and its new value. `None` lists all settings. A name without a value shows the setting.
    Set(Option<(String, Option<String>)>),
    /// The new system message. An empty text removes the system message.
    System(String),
    History,
    /// The value of `/think`: how the model reasons before its answers. `None` shows the current value.
    Thinking(Option<Thinking>),
    /// The grammar that answers must follow. `None` shows the current grammar.
    Grammar(Option<String>),
    Exit,
}

/// The kinds of prompts that the model answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptKind {
    /// The user's next message in the chat.
    Say(String),
    /// The results for the tool calls in the last answer.
    Results(Vec<String>),
    /// `+`: generates another answer to the last message.
    Retry,
    /// `+gen TEXT`: continues a text.
    Text(String),
    /// `+i TEXT`: follows an instruction.
    Instruct(String),
    /// `+qq TEXT`: answers a question without context. The model reads neither the chat nor the chat's first prompt.
    Ask(String),
    /// `+qa TEXT`: answers a question after the chat's first prompt. The model does not read the rest of the chat.
    AskAfterPrompt(String),
    /// `++`: generates another answer to the last `+gen`, `+i`, `+qq` or `+qa`.
    RetryText,
    /// `+++`: continues the answer to the last `+gen`, `+i`, `+qq` or `+qa`.
    ContinueAnswer,
}

impl Command {
    /// Returns whether the chat stops waiting for the results of tool calls after this command. Every prompt ends the wait. Commands that restart,
    /// replace or switch the conversation, and `/undo`, end it, too. `/switch` without a name only lists the branches.
    pub fn ends_calls(&self) -> bool {
        use Command::{Clear, Draw, Load, Prompt, Reset, Switch, System, Undo};
        matches!(self, Draw(..) | Reset | Prompt(_) | Load(_) | Switch(Some(_)) | Undo | Clear | System(_))
    }
}

/// Parses a line that the user typed.
///
/// # Errors
/// `Input` if a command with a slash is unknown or its argument is missing or wrong, `Usage` if `-temp=` or `-top_p=` has no number.
pub fn parse(line: &str) -> Result<Command> {
    if line.starts_with('/') { slash::parse(line) } else { plus::parse(line) }
}
