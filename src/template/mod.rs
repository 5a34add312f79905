//! Chat templates of GLM-4, its relatives, GLM-4.7, RWKV-7 G1 and Qwen: they turn messages and tools into prompts, and answers into messages and tool
//! calls.
//!
//! A template returns parts, which separate special tokens from text, so that a user's text never becomes a control token. A checkpoint's
//! own Jinja template is an untrusted program and runs with limits. Answers are split at the ids of special tokens. This module uses
//! vocabularies and the chat files of a checkpoint, but knows no models or conversations.

mod answer;
mod call;
mod chatglm3;
mod chatml;
mod family;
mod files;
mod g1;
mod generation;
mod glm4;
mod glm47;
mod jinja;
mod json;
mod message;
mod opening;
mod part;
mod profiles;
mod segments;
#[cfg(test)]
pub(crate) mod testing;

pub use answer::ToolCall;
pub(crate) use answer::process_segments;
pub use chatglm3::ChatGlm3;
pub use chatml::ChatMl;
pub use family::Family;
pub use files::Files;
pub use files::read_whole;
pub(crate) use g1::cleaned;
pub use g1::{G1, Style, fill_prompt};
pub use generation::GenerationConfig;
pub use glm4::{Glm4, Version};
pub use glm47::Glm47;
pub use jinja::Jinja;
pub use message::{Function, Message, Role, Tool};
pub use opening::Opening;
#[cfg(test)]
pub(crate) use part::encode_whole;
pub(crate) use part::specials;
pub use part::{Part, encode, whole};
pub use profiles::{Profile, Profiles};
pub(crate) use segments::{SegmentDelta, SegmentWriter, opening_ids};

use crate::error::Result;
use serde_json::Value;
use std::sync::Arc;

/// Renders a conversation as the prompt of the next answer.
pub trait Template: Send + Sync {
    /// Returns a name for logs and reports.
    fn name(&self) -> String;

    /// Returns the model family. It determines the special tokens.
    fn family(&self) -> Family;

    /// Returns the parts of the prompt, up to the place where the model continues.
    ///
    /// # Errors
    /// `Input` if the template has no place for a message or a tool, `File` if the template itself is invalid.
    fn render(&self, messages: &[Message]) -> Result<Vec<Part>>;

    /// Returns the beginning of the answer in a rendered prompt, such as `<think`.
    fn opening<'a>(&self, prompt: &'a str) -> &'a str {
        part::opening(prompt)
    }

    /// Returns the text between the prompt and a reply if the prompt does not begin the answer. The default is GLM-4's newline: the first line of its
    /// answers is the name of a tool, or empty in a reply.
    fn lead(&self, _messages: &[Message]) -> &'static str {
        "\n"
    }

    /// Returns the texts that end an answer to the messages.
    fn stops(&self, _messages: &[Message]) -> Vec<String> {
        Vec::new()
    }

    /// Returns the special tokens after which the first line of a text is encoded alone, if the text is a rendered prompt.
    fn before_lines(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the texts before and after the arguments in an answer that calls the tool `name`. Returns `None` if the arguments are not JSON.
    fn around_arguments(&self, name: &str) -> Option<[String; 2]> {
        match self.family() {
            Family::Glm4 => Some([format!("{name}\n"), String::new()]),
            // GLM-4.7's own form of arguments is not JSON, but a call that is JSON in the same tags is read, too.
            Family::Glm47 => Some([format!("<tool_call>{{\"name\": {}, \"arguments\": ", Value::from(name)), "}</tool_call>".into()]),
            _ => None,
        }
    }

    /// Returns the template with another beginning of the answer, or `None` if the template itself determines the beginning.
    fn with_opening(&self, _opening: Opening) -> Option<Arc<dyn Template>> {
        None
    }
}

/// Returns the built-in template for a model, or `None` if no built-in template fits. `model_type` is the model's version, such as a GLM's
/// `model_type`. `n_vocab` is the number of embedding rows.
pub fn builtin(model_type: &str, n_vocab: usize) -> Option<Arc<dyn Template>> {
    match (model_type, n_vocab) {
        ("chatglm", 65024) => Some(Arc::new(ChatGlm3)),
        ("chatglm", _) => Some(Arc::new(Glm4(Version::Original))),
        ("glm", 59264) => Some(Arc::new(Glm4(Version::Edge))),
        ("glm", _) => Some(Arc::new(Glm4(Version::Template))),
        ("glm4", _) => Some(Arc::new(Glm4(Version::V0414))),
        ("glm4v", _) => Some(Arc::new(Glm4(Version::Vision))),
        ("glm4_moe_lite", _) => Some(Arc::new(Glm47 { thinks: true })),
        ("arwkv7" | "qrwkv6", _) => Some(Arc::new(ChatMl)),
        _ => None,
    }
}
