//! What the two kinds of conversations have in common: lines on kept states, and messages through a template.

use super::branches::Named;
use super::core::{Core, State};
use super::{Answer, OnPart};
use crate::chat::Format;
use crate::error::Result;
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

/// A kind of conversation. The methods are [`Conversation`](super::Conversation)'s.
pub trait Mode: Send {
    fn say(&mut self, core: &mut Core, text: &str, on_part: &mut OnPart<'_>) -> Result<Answer>;
    fn observe(&mut self, core: &mut Core, result: &str, on_part: &mut OnPart<'_>) -> Result<Answer>;
    fn retry(&mut self, core: &mut Core, on_part: &mut OnPart<'_>) -> Result<Option<Answer>>;
    /// ReplyStart a text apart from the conversation.
    fn write(&mut self, core: &mut Core, task: Task<'_>, on_part: &mut OnPart<'_>) -> Result<Answer>;
    /// Draws that text once more.
    fn rewrite(&mut self, core: &mut Core, on_part: &mut OnPart<'_>) -> Result<Option<Answer>>;
    /// Goes on with that text.
    fn write_more(&mut self, core: &mut Core, on_part: &mut OnPart<'_>) -> Result<Option<Answer>>;
    fn reset(&mut self, core: &mut Core);
    /// ReplyStart anew in a format, under a text of the system.
    fn begin(&mut self, core: &mut Core, format: Format, system: &str) -> Result<()>;
    fn set_tools(&mut self, tools: Vec<Tool>) -> Result<()>;
    fn undo(&mut self, core: &mut Core) -> Result<()>;
    fn branches(&self) -> &dyn Named;
    fn branches_mut(&mut self) -> &mut dyn Named;
    fn remove(&mut self, core: &mut Core, name: &str) -> Result<()>;
    fn format(&self) -> &Format;
    fn system(&self) -> &str;
    fn n_turns(&self) -> usize;
    /// What the model has read of the conversation.
    fn tokens(&self) -> &[u32];
    fn transcript(&self, core: &Core) -> Vec<Message>;
    /// The states that are kept, by the original's names.
    fn states(&self) -> Vec<(&'static str, &State)>;
    /// Tokens that the model can still read; `None` if there is no end.
    fn n_left(&self, core: &Core) -> Option<usize>;
    fn save(&self, core: &mut Core, path: &Path) -> Result<()>;
    fn load(&mut self, core: &mut Core, path: &Path) -> Result<()>;
}
