//! The choice of how a prompt begins the answer: with a thought, with an empty thought, or not at all.

/// The beginning of an answer that the prompt already contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The prompt ends before the answer, so the model chooses whether to write a thought.
    Nothing,
    /// The prompt begins a thought, and the model continues the thought.
    Thought,
    /// The prompt contains an empty thought, so the model answers at once.
    EmptyThought,
}

impl Opening {
    /// Returns the text at the end of the prompt. The final `>` of the tag is missing, because the model writes this character.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Opening::Nothing => "",
            Opening::Thought => "<think",
            Opening::EmptyThought => "<think></think",
        }
    }
}
