//! Determines whether a model writes a thought before each answer.

use crate::error::{Error, Result, short};
use crate::template::Opening;
use std::str::FromStr;

/// Determines whether a model writes a thought before its answer. Each choice ends the prompt differently. Only models that were trained with
/// thoughts have this choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// The prompt does not mention a thought.
    Off,
    /// The prompt ends with an empty thought. The model answers at once, and better than with `Off`.
    Fast,
    /// The prompt ends with the beginning of a thought, which the model continues before it answers.
    On,
    /// The prompt asks for a short thought and begins the thought.
    Short,
    /// The prompt asks for a long thought and begins the thought.
    Long,
}

/// The properties of one value of [`Thinking`].
pub(super) struct Choice {
    pub thinking: Thinking,
    /// The name in JSON, in flags and in saved conversations.
    pub name: &'static str,
    /// The name of the format of lines (`Name: text`) that has this choice.
    pub format: &'static str,
    /// The beginning of the answer that the prompt contains in a format of messages.
    pub opening: Opening,
    /// Text that is appended to the user's message to ask for a short or a long thought. Empty if nothing is appended.
    pub hint: &'static str,
}

const fn choice(thinking: Thinking, name: &'static str, format: &'static str, opening: Opening, hint: &'static str) -> Choice {
    Choice { thinking, name, format, opening, hint }
}

pub(super) const ALL: [Choice; 5] = [
    choice(Thinking::Off, "off", "g1", Opening::Nothing, ""),
    choice(Thinking::Fast, "fast", "g1-fast", Opening::EmptyThought, ""),
    choice(Thinking::On, "on", "g1-think", Opening::Thought, ""),
    choice(Thinking::Short, "short", "g1-think", Opening::Thought, " (think a bit)"),
    choice(Thinking::Long, "long", "g1-think", Opening::Thought, " (think a lot)"),
];

impl FromStr for Thinking {
    type Err = Error;

    fn from_str(text: &str) -> Result<Thinking> {
        let found = ALL.iter().find(|choice| choice.name == text).map(|choice| choice.thinking);
        found.ok_or_else(|| Error::input(format!("expected {}, found {:?}", Thinking::expected(), short(text, 40))))
    }
}

impl Thinking {
    /// Returns the names of all choices.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ALL.iter().map(|choice| choice.name)
    }

    /// Returns the names of all choices as a phrase for errors.
    pub(crate) fn expected() -> &'static str {
        "off, fast, on, short or long"
    }

    /// Returns the name in JSON, such as `fast`.
    pub fn name(self) -> &'static str {
        self.choice().name
    }

    /// Returns the text that is appended to the user's message to ask for a short or a long thought. Empty if nothing is appended.
    pub(crate) fn hint(self) -> &'static str {
        self.choice().hint
    }

    pub(super) fn choice(self) -> &'static Choice {
        ALL.iter().find(|choice| choice.thinking == self).expect("the table has every choice")
    }

    /// Returns the choice that the format of lines named `format` has by default, or `None` if no choice has this format.
    pub(super) fn of_lines(format: &str) -> Option<Thinking> {
        ALL.iter().find(|choice| choice.format == format).map(|choice| choice.thinking)
    }
}
