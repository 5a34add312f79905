//! The forms of conversations: chat formats, prompts, answers.
//!
//! A [`Format`] writes conversations in the form that a model was trained on. A [`Question`] renders messages as one prompt, for programs that keep the
//! messages themselves. An [`AnswerReader`] splits the answer into text, thought and tool calls.

pub(crate) mod format;
mod question;
pub(crate) mod reader;
pub(crate) mod rules;
mod settings;
mod think;

pub use crate::template::fill_prompt;
pub use crate::template::{Message, Role, Tool, ToolCall};
#[cfg(all(test, feature = "cli"))]
pub(crate) use format::first_prompt;
pub use format::{Format, InitialPrompt, Thinking};
pub use question::Question;
pub use reader::AnswerReader;
pub use rules::MakeConstraint;
pub use settings::Settings;
pub use think::{AnswerPart, OnPart};
