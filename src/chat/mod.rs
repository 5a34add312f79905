//! The forms of conversations: chat formats, prompts, answers.
//!
//! A [`Format`] writes conversations in the form that a model was trained on. `Question` renders messages as one prompt. `AnswerReader` splits the
//! answer into text, thought and tool calls.

pub(crate) mod answer_prefix;
pub(crate) mod format;
pub(crate) mod linked;
mod question;
pub(crate) mod reader;
pub(crate) mod rules;
mod settings;
mod think;

pub use crate::template::fill_prompt;
pub use crate::template::{Message, Role, Tool, ToolCall};
pub(crate) use answer_prefix::is_begun;
pub use format::{Format, InitialPrompt, Thinking};
pub(crate) use question::Question;
pub(crate) use reader::AnswerReader;
pub(crate) use rules::MakeConstraint;
pub use settings::Settings;
pub use think::{AnswerPart, OnPart};
