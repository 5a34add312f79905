//! Tool calls in answers: the forms in which models write calls, and the texts of calls that a request demands.
//!
//! Text counts as a call only if it names a declared tool and has a JSON object of arguments, or keys and values in tags. In GLM-4's form, any text
//! can be the arguments. Everything else stays text, even a call within other JSON, such as a list with other items. This module does not depend on the
//! module `chat`.

mod bare;
mod demand;
mod fenced;
mod json;
mod keyed;
mod listed;
mod reader;
mod segment;
mod tagged;
#[cfg(test)]
mod tests;
mod value;
mod written;

pub use demand::{demanded, undeclared};
pub use reader::{AnswerPiece, CallReader};
pub(crate) use segment::SegmentForm;

use crate::template::{Message, Tool, ToolCall};
use serde_json::Value;

/// A form in which models write tool calls.
pub trait Form: Sync {
    /// Reads calls at the beginning of a text. `is_end` is true if the answer ends after `text`. A result other than [`FormReading::More`] must stay
    /// the same if text is appended, because the reader passes such a result on at once.
    fn read(&self, text: &str, is_end: bool, declared: &Declared) -> FormReading;
}

/// The forms that can occur anywhere in an answer. If several forms could read a call, the first form in this list reads the call.
const FORMS: &[&dyn Form] =
    &[&written::WrittenForm, &fenced::FencedForm, &tagged::TaggedForm, &keyed::KeyedForm, &listed::ListedForm, &bare::BareForm];

/// The result of reading a form at the beginning of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormReading {
    /// The text does not begin with a call in this form.
    Text,
    /// More text is needed to decide.
    More,
    /// The calls, and the number of bytes of their text.
    Calls(Vec<ToolCall>, usize),
    /// A call without an end mark: the name of the tool, and the number of bytes before the arguments. The arguments are the rest of the text.
    Begins(String, usize),
}

/// The tools that an answer can call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Declared(Vec<DeclaredTool>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct DeclaredTool {
    name: String,
    /// The schemas of the parameters by their names. `null` if the tool describes no parameters.
    parameters: Value,
}

impl DeclaredTool {
    fn of(tool: &Tool) -> DeclaredTool {
        let parameters = match tool {
            Tool::Function(function) => function.object().pointer("/parameters/properties").cloned().unwrap_or_default(),
            _ => Value::Null,
        };
        DeclaredTool { name: tool.name().into(), parameters }
    }
}

impl Declared {
    /// Returns the tools that messages of a conversation declare.
    pub fn in_messages(messages: &[Message]) -> Declared {
        Declared(messages.iter().flat_map(|message| &message.tools).map(DeclaredTool::of).collect())
    }

    /// Returns `tools` as declared tools.
    pub fn of(tools: &[Tool]) -> Declared {
        Declared(tools.iter().map(DeclaredTool::of).collect())
    }

    /// Returns whether a tool with this name is declared.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|known| known.name == name)
    }

    /// Returns whether the name of a declared tool begins with this text.
    fn has_beginning(&self, text: &str) -> bool {
        self.0.iter().any(|known| known.name.starts_with(text))
    }

    /// Returns the schema of a tool's parameter, or `None` if the tool does not describe it.
    fn parameter(&self, tool: &str, name: &str) -> Option<&Value> {
        self.0.iter().find(|known| known.name == tool)?.parameters.get(name)
    }

    /// Returns whether no tool is declared.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
