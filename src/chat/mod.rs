//! Conversations: how a model wants one written, and one turn after the other.
//!
//! A [`Conversation`] leads one with a session. A [`Question`] writes given messages as one prompt, and an [`AnswerReader`] takes the answer
//! apart while it is written. Speaks to models through [`session`](crate::session) only; knows no architecture.

mod conversation;
mod format;
mod question;
mod reader;
mod rules;
mod settings;
mod think;

pub use crate::template::{Message, Role, Tool, ToolCall};
pub use conversation::{Answer, Conversation, OnPart, OnRead, Overrides, Stats};
#[cfg(all(test, feature = "cli"))]
pub(crate) use format::first_prompt;
pub use format::{Format, InitialPrompt, Thinking};
pub use question::Question;
pub use reader::AnswerReader;
pub use rules::MakeConstraint;
pub use settings::Settings;
pub use think::AnswerPart;
