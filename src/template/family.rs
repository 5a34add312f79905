//! What all templates of a family share: the tokens that end an answer, the invalid-score guard, how arguments are written.

use super::{Role, call};
use crate::error::{Error, Result};
use crate::vocab::Vocab;
use serde_json::Value;

/// Whose special tokens and habits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// GLM-4 and its relatives.
    Glm4,
    ChatGlm3,
}

impl Family {
    /// What every prompt begins with.
    pub(super) fn prefix(self) -> [&'static str; 2] {
        match self {
            Family::Glm4 => ["[gMASK]", "<sop>"],
            Family::ChatGlm3 => ["[gMASK]", "sop"],
        }
    }

    /// The special tokens that end an answer. A call of a tool ends with `<|observation|>`.
    pub fn stops(self) -> [&'static str; 3] {
        match self {
            Family::Glm4 => ["<|endoftext|>", "<|user|>", "<|observation|>"],
            Family::ChatGlm3 => ["</s>", "<|user|>", "<|observation|>"],
        }
    }

    /// The ids of [`stops`](Self::stops): 151329, 151336 and 151338 with GLM-4's vocabulary.
    ///
    /// # Errors
    /// `Input` where the vocabulary lacks one of them.
    pub fn stop_ids(self, vocab: &Vocab) -> Result<Vec<u32>> {
        self.stops().iter().map(|text| special(vocab, text)).collect()
    }

    /// Checks that a vocabulary has every special token of prompts and of ends of answers.
    ///
    /// # Errors
    /// `Input` if the vocabulary lacks one.
    pub(crate) fn check(self, vocab: &Vocab) -> Result<()> {
        let roles = [Role::System, Role::Assistant].map(Role::special);
        self.prefix().iter().chain(&self.stops()).chain(&roles).try_for_each(|text| special(vocab, text).map(|_| ()))
    }

    /// The id that the invalid-score guard of the original code draws; with GLM-4 that is a newline.
    pub fn guard(self) -> u32 {
        match self {
            Family::Glm4 => 198,
            Family::ChatGlm3 => 5,
        }
    }

    /// The arguments of a call, from the text that the model wrote: JSON, or with ChatGLM3 a call in Python, which is read and
    /// never run.
    ///
    /// # Errors
    /// `Input` when the text is neither.
    pub fn arguments(self, content: &str) -> Result<Value> {
        match self {
            Family::Glm4 => serde_json::from_str(content)
                .map_err(|e| Error::input(format!("expected the arguments of a call as JSON: {e}")).caused_by(e)),
            Family::ChatGlm3 => call::arguments(content),
        }
    }
}

/// The id of a special token.
pub(super) fn special(vocab: &Vocab, text: &str) -> Result<u32> {
    vocab.special(text).ok_or_else(|| {
        Error::input(format!("expected a vocabulary with the special token {text}, found one without"))
            .hint("chat needs the vocabulary of a chat model: for GLM-4 its tokenizer.model")
    })
}
