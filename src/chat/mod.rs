//! Conversations: messages and tools, the templates that make a prompt of them, and one turn after the other.
//!
//! A template gives parts, special tokens and text apart, so that what a user writes can never become a control token. Speaks to
//! models through [`session`](crate::session) only; knows no architecture.

mod answer;
mod deltas;
mod files;
mod format;
mod generation;
mod prompt_file;
mod question;
mod rules;
mod settings;
mod talk;
mod think;
mod turn;

pub use crate::session::Processor;
pub use crate::template::{Message, Role, Tool};
pub use answer::{Answer, process_response};
pub use deltas::Delta;
pub use files::Files;
pub use format::Format;
pub use generation::GenerationConfig;
pub use prompt_file::PromptFile;
pub use question::{AnswerPart, AnswerReader, Question, Written};
pub use rules::MakeConstraint;
pub use settings::Settings;
pub use talk::{Answered, OnPiece, Piece, Said, Stats, Talk, Told};
pub use turn::{Options, Reply, StopWhen, Turn, chat, stream_chat};
