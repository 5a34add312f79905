//! What a template is, and which built-in one a model needs.

use super::message::Message;
use super::part::Part;
use super::{ChatGlm3, Family, Glm4, Version};
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
