//! The trait of the two kinds of conversations: in lines (`Name: text`), and in messages, which a template renders.

use super::Answer;
use super::branches::Named;
use super::core::Core;
use super::file::Loaded;
use crate::chat::{Format, OnPart, Thinking};
use crate::error::{Error, Result};
use crate::template::{Message, Tool};
use std::path::Path;

/// A prompt that does not become part of the conversation.
#[derive(Debug, Clone, Copy)]
pub enum OneOffPrompt<'a> {
    Text(&'a str),
    Instruction(&'a str),
    Question(&'a str),
    QuestionAfterPrompt(&'a str),
}

/// The data of a conversation's current branch that callers can read.
pub struct View<'a> {
    pub branches: &'a dyn Named,
    pub format: &'a Format,
    pub system: &'a str,
    pub n_turns: usize,
    /// All tokens of the branch, from the first prompt to the last answer.
    pub tokens: &'a [u32],
}

/// A kind of conversation. Methods without documentation do what [`Conversation`](super::Conversation)'s methods of the same name do.
pub trait Mode: Send {
    fn say(&mut self, core: &mut Core, text: &str, on_part: &mut OnPart<'_>) -> Result<Answer>;
    fn observe(&mut self, _core: &mut Core, _results: &[&str], _on_part: &mut OnPart<'_>) -> Result<Answer> {
        Err(no_tools())
    }
    fn retry(&mut self, core: &mut Core, on_part: &mut OnPart<'_>) -> Result<Option<Answer>>;
    /// Answers a prompt outside the conversation.
    fn write(&mut self, core: &mut Core, prompt: OneOffPrompt<'_>, on_part: &mut OnPart<'_>) -> Result<Answer>;
    /// Samples another answer to the last prompt outside the conversation.
    fn rewrite(&mut self, core: &mut Core, on_part: &mut OnPart<'_>) -> Result<Option<Answer>>;
    /// Continues the last answer outside the conversation.
    fn write_more(&mut self, core: &mut Core, on_part: &mut OnPart<'_>) -> Result<Option<Answer>>;
    fn reset(&mut self);
    /// Restarts the current branch in another format and with another system message.
    fn begin(&mut self, core: &mut Core, format: Format, system: &str) -> Result<()>;
    fn set_tools(&mut self, _tools: Vec<Tool>) -> Result<()> {
        Err(no_tools())
    }
    fn set_thinking(&mut self, thinking: Thinking) -> Result<()>;
    fn undo(&mut self, core: &mut Core) -> Result<()>;
    fn view(&self) -> View<'_>;
    fn branches_mut(&mut self) -> &mut dyn Named;
    fn remove(&mut self, name: &str) -> Result<()>;
    fn transcript(&self, core: &Core) -> Vec<Message>;
    /// Returns the states that a conversation in lines (`Name: text`) keeps, each with its name in ChatRWKV.
    #[cfg(test)]
    fn states(&self) -> Vec<(&'static str, &super::core::TextState)> {
        Vec::new()
    }
    /// Returns the number of further tokens that fit into the context. `None` if the model has no limit or the format is a format of lines.
    fn n_left(&self, core: &Core) -> Option<usize>;
    fn save(&self, core: &Core, path: &Path) -> Result<()>;
    /// Replaces the current branch by a saved conversation, whose format is of this kind.
    fn load(&mut self, core: &mut Core, format: Format, loaded: Loaded) -> Result<()>;
}

fn no_tools() -> Error {
    let e = Error::input("the chat format of this conversation does not support tools and tool calls");
    e.hint("use an RWKV-7 G1 or GLM-4 model, or set `format` to a chat format that supports tools")
}
