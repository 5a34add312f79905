//! Conversations: how a model wants one written, and one turn after the other.
//!
//! A [`Conversation`] leads one with a session. A [`Question`] writes given messages as one prompt, and an [`AnswerReader`] takes the answer
//! apart while it is written. Speaks to models through [`session`](crate::session) only; knows no architecture.

mod answer;
mod conversation;
mod deltas;
mod files;
mod format;
mod generation;
mod question;
mod rules;
mod settings;
mod think;

pub use crate::template::{Message, Role, Tool};
pub use answer::{AnswerPart, ToolCall};
pub use conversation::{Answer, Conversation, OnPart, Overrides, Stats};
pub use files::Files;
#[cfg(feature = "cli")]
pub(crate) use files::read_whole;
#[cfg(all(test, feature = "cli"))]
pub(crate) use format::first_prompt;
pub use format::{Format, InitialPrompt};
pub use generation::GenerationConfig;
pub use question::{AnswerReader, Question, Written};
pub use rules::MakeConstraint;
pub use settings::Settings;
