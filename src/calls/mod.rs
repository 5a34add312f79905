//! Tool calls in answers: the forms in which models write calls, and the texts of calls that a request demands.
//!
//! A call is read only if it names a declared tool and its arguments are JSON. All other text stays text. This module knows texts
//! and tools. It knows no conversation.

mod bare;
mod demand;
mod fenced;
mod json;
mod listed;
mod reader;
mod segment;
mod tagged;
#[cfg(test)]
mod tests;
mod written;

pub use demand::{demanded, undeclared};
pub use reader::{Piece, Reader};
pub(crate) use segment::Segment;

use crate::template::{Message, Tool, ToolCall};

/// A form in which models write tool calls.
pub trait Form: Sync {
    /// Reads calls at the beginning of a text. `is_end` is true if no more text follows. A result other than [`Reading::More`] must not
    /// change when text is appended.
    fn read(&self, text: &str, is_end: bool, declared: &Declared) -> Reading;
}

/// The forms that can stand anywhere in an answer. The first form that reads a call counts.
const FORMS: &[&dyn Form] = &[&written::Written, &fenced::Fenced, &tagged::Tagged, &listed::Listed, &bare::Bare];

/// The result of reading a form at the beginning of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// No call in this form.
    Text,
    /// The next characters decide.
    More,
    /// Calls, which take this number of bytes.
    Calls(Vec<ToolCall>, usize),
    /// A call of this tool. The arguments begin after this number of bytes and are the rest of the text.
    Begins(String, usize),
}

/// The names of the tools that an answer can call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Declared(Vec<String>);

impl Declared {
    /// Returns the tools of a conversation.
    pub fn in_messages(messages: &[Message]) -> Declared {
        Declared(messages.iter().flat_map(|message| &message.tools).map(|tool| tool.name().to_string()).collect())
    }

    /// Returns the names of these tools.
    pub fn of(tools: &[Tool]) -> Declared {
        Declared(tools.iter().map(|tool| tool.name().to_string()).collect())
    }

    /// Returns whether a tool with this name is declared.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|known| known == name)
    }

    /// Returns whether the name of a declared tool begins with this text.
    fn has_beginning(&self, text: &str) -> bool {
        self.0.iter().any(|known| known.starts_with(text))
    }

    /// Returns whether no tool is declared.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
