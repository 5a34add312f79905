//! Differences between model families: special tokens, stop tokens, the token that replaces invalid logits, and the form of a tool call's
//! arguments.

use super::{Role, call};
use crate::error::{Error, Result, with_place};
use crate::vocab::Vocab;
use serde_json::Value;

/// ChatML's special tokens around a message.
pub(super) const CHATML: [&str; 2] = ["<|im_start|>", "<|im_end|>"];

/// A family of models with the same special tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// GLM-4 and its relatives.
    Glm4,
    /// GLM-Edge. Its prompts do not begin with special tokens; GLM-4's prompts begin with `[gMASK]<sop>`.
    GlmEdge,
    /// GLM-4.7, and other GLMs whose calls have keys and values in tags. An answer is one text; GLM-4's answers consist of segments.
    Glm47,
    ChatGlm3,
    /// RWKV-7 G1, without special tokens in prompts.
    Rwkv,
    /// Qwen2.5 and models made from it.
    ChatMl,
}

impl Family {
    /// Returns the first tokens of every prompt.
    pub(super) fn prefix(self) -> &'static [&'static str] {
        match self {
            Family::Glm4 | Family::Glm47 => &["[gMASK]", "<sop>"],
            Family::ChatGlm3 => &["[gMASK]", "sop"],
            Family::GlmEdge | Family::Rwkv | Family::ChatMl => &[],
        }
    }

    /// Returns the special tokens that end an answer. A tool call ends with `<|observation|>`.
    pub fn stops(self) -> &'static [&'static str] {
        match self {
            Family::Glm4 | Family::GlmEdge | Family::Glm47 => &["<|endoftext|>", "<|user|>", "<|observation|>"],
            Family::ChatGlm3 => &["</s>", "<|user|>", "<|observation|>"],
            Family::Rwkv => &[],
            Family::ChatMl => &[CHATML[1], "<|endoftext|>"],
        }
    }

    /// Returns the ids of [`stops`](Self::stops): 151329, 151336 and 151338 with GLM-4's vocabulary.
    ///
    /// # Errors
    /// `Input` if the vocabulary lacks one of these tokens.
    pub fn stop_ids(self, vocab: &Vocab) -> Result<Vec<u32>> {
        self.stops().iter().map(|text| special(vocab, text)).collect()
    }

    /// Checks that a vocabulary has the special tokens of prompts and answers.
    ///
    /// # Errors
    /// `Input` if the vocabulary lacks one of these tokens.
    pub(crate) fn check(self, vocab: &Vocab) -> Result<()> {
        let roles = match self {
            Family::Rwkv => return Ok(()),
            Family::ChatMl => vec![CHATML[0]],
            _ => [Role::System, Role::Assistant].map(Role::special).into(),
        };
        self.prefix().iter().chain(self.stops()).chain(&roles).try_for_each(|text| special(vocab, text).map(|_| ()))
    }

    /// Returns the id that the family's published code chooses if a logit is NaN or infinite, such as GLM-4's newline. Returns `None` if the
    /// published code has no such id.
    pub fn guard(self) -> Option<u32> {
        match self {
            Family::Glm4 | Family::GlmEdge => Some(198),
            Family::ChatGlm3 => Some(5),
            Family::Glm47 | Family::Rwkv | Family::ChatMl => None,
        }
    }

    /// Parses the arguments of a tool call: JSON, or for ChatGLM3 a Python call, which is never run.
    ///
    /// # Errors
    /// `Input` if the text cannot be parsed.
    pub fn arguments(self, content: &str) -> Result<Value> {
        match self {
            Family::Glm4 | Family::GlmEdge | Family::Glm47 | Family::Rwkv | Family::ChatMl => serde_json::from_str(content)
                .map_err(|e| Error::input(format!("the arguments of a tool call must be JSON: {}", with_place(&e))).caused_by(e)),
            Family::ChatGlm3 => call::arguments(content),
        }
    }
}

/// Returns the id of a special token, or an `Input` error.
pub(super) fn special(vocab: &Vocab, text: &str) -> Result<u32> {
    vocab.special(text).ok_or_else(|| {
        let e = Error::input(format!("the vocabulary has no special token {text}, which the chat template needs"));
        e.hint("use the vocabulary of the chat model, such as GLM-4's tokenizer.model, or Qwen's tokenizer.json")
    })
}
