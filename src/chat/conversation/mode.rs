//! What the two kinds of conversations have in common: lines on kept states, and messages through a template.

use super::branches::Named;
use super::core::{Core, State};
use super::{Answer, OnPart};
use crate::chat::Format;
use crate::error::{Error, Result};
use crate::template::{Message, Tool};
use std::path::Path;

/// A text that the model goes on with, apart from the conversation.
#[derive(Debug, Clone, Copy)]
pub enum Task<'a> {
    Text(&'a str),
    Instruction(&'a str),
    Question(&'a str),
    QuestionAfterPrompt(&'a str),
}

/// How a conversation stands in its current branch.
pub struct View<'a> {
    pub branches: &'a dyn Named,
    pub format: &'a Format,
    pub system: &'a str,
    pub n_turns: usize,
    /// What the model has read of the conversation.
    pub tokens: &'a [u32],
}

/// A kind of conversation. The methods are [`Conversation`](super::Conversation)'s.
pub trait Mode: Send {
    fn say(&mut self, core: &mut Core, text: &str, on_part: &mut OnPart<'_>) -> Result<Answer>;
    fn observe(&mut self, _core: &mut Core, _result: &str, _on_part: &mut OnPart<'_>) -> Result<Answer> {
        Err(no_tools())
    }
    fn retry(&mut self, core: &mut Core, on_part: &mut OnPart<'_>) -> Result<Option<Answer>>;
    /// Begins a text apart from the conversation.
    fn write(&mut self, core: &mut Core, task: Task<'_>, on_part: &mut OnPart<'_>) -> Result<Answer>;
    /// Draws that text once more.
    fn rewrite(&mut self, core: &mut Core, on_part: &mut OnPart<'_>) -> Result<Option<Answer>>;
    /// Goes on with that text.
    fn write_more(&mut self, core: &mut Core, on_part: &mut OnPart<'_>) -> Result<Option<Answer>>;
    fn reset(&mut self, core: &mut Core);
    /// Begins anew in a format, under a text of the system.
    fn begin(&mut self, core: &mut Core, format: Format, system: &str) -> Result<()>;
    fn set_tools(&mut self, _tools: Vec<Tool>) -> Result<()> {
        Err(no_tools())
    }
    fn undo(&mut self, core: &mut Core) -> Result<()>;
    fn view(&self) -> View<'_>;
    fn branches_mut(&mut self) -> &mut dyn Named;
    fn remove(&mut self, core: &mut Core, name: &str) -> Result<()>;
    fn transcript(&self, core: &Core) -> Vec<Message>;
    /// The states that are kept, by the original's names.
    fn states(&self) -> Vec<(&'static str, &State)>;
    /// Tokens that the model can still read; `None` if there is no end.
    fn n_left(&self, core: &Core) -> Option<usize>;
    fn save(&self, core: &mut Core, path: &Path) -> Result<()>;
    fn load(&mut self, core: &mut Core, path: &Path) -> Result<()>;
}

fn no_tools() -> Error {
    Error::input("tools are for models that read messages through a template, and this one reads plain lines")
}
