//! Conversations with a model.
//!
//! A [`Conversation`] keeps its history in a session. A [`Question`] renders messages as one prompt, for programs that keep the messages
//! themselves. An [`AnswerReader`] splits the answer into text, thought and tool calls. This module uses models only through
//! [`session`](crate::session).

mod conversation;
mod format;
mod question;
mod reader;
mod rules;
mod settings;
mod think;

pub use crate::template::fill_prompt;
pub use crate::template::{Message, Role, Tool, ToolCall};
pub use conversation::{Answer, Conversation, OnRead, Overrides, Stats};
#[cfg(all(test, feature = "cli"))]
pub(crate) use format::first_prompt;
pub use format::{Format, InitialPrompt, Thinking};
pub use question::Question;
pub use reader::AnswerReader;
pub use rules::MakeConstraint;
pub use settings::Settings;
pub use think::{AnswerPart, OnPart};
