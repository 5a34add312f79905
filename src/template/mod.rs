//! Templates: from messages and tools to the prompt that a model of GLM-4's kind reads, and from what it writes to answers and calls.
//!
//! A template gives parts, special tokens and text apart, so that what a user writes can never become a control token. A checkpoint's own
//! template, in Jinja, is a program from a file; it runs with limits. An answer is told apart by the ids of special tokens.
//! Knows vocabularies and a checkpoint's files about chat; knows no model and no conversation.

mod answer;
mod call;
mod chatglm3;
mod family;
mod files;
mod generation;
mod glm4;
mod jinja;
mod json;
mod message;
mod part;
mod segments;
#[cfg(test)]
pub(crate) mod testing;

pub use answer::ToolCall;
pub(crate) use answer::process_segments;
pub use chatglm3::ChatGlm3;
pub use family::Family;
pub use files::Files;
#[cfg(feature = "cli")]
pub(crate) use files::read_whole;
pub use generation::GenerationConfig;
pub use glm4::{Glm4, Version};
pub use jinja::Jinja;
pub use message::{Function, Message, Role, Tool};
#[cfg(test)]
pub(crate) use part::encode_whole;
pub use part::{Part, encode, whole};
pub(crate) use part::{opening, specials};
pub(crate) use segments::{Delta, Writer, opening_ids};

use crate::error::Result;
use std::sync::Arc;

/// From a conversation to the prompt of the model's next answer.
pub trait Template: Send + Sync {
    /// What it is, for logs and reports.
    fn name(&self) -> String;

    fn family(&self) -> Family;

    /// The parts of the prompt, up to where the model goes on.
    ///
    /// # Errors
    /// `Input` when the template has no place for something in the conversation; `File` when the template itself is at fault.
    fn render(&self, messages: &[Message]) -> Result<Vec<Part>>;
}

/// The built-in template of a model, by `model_type` of its configuration and the number of its embeddings.
pub fn builtin(model_type: &str, n_vocab: usize) -> Option<Arc<dyn Template>> {
    match (model_type, n_vocab) {
        ("chatglm", 65024) => Some(Arc::new(ChatGlm3)),
        ("chatglm", _) => Some(Arc::new(Glm4(Version::Original))),
        ("glm", _) => Some(Arc::new(Glm4(Version::Template))),
        ("glm4", _) => Some(Arc::new(Glm4(Version::V0414))),
        _ => None,
    }
}
