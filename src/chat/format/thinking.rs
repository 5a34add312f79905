//! Determines whether a model writes a thought before each answer.

use super::known::KNOWN;
use super::{Format, Kind};
use crate::error::{Error, Result, short};
use std::str::FromStr;

/// Determines whether a model writes a thought before its answer. Only models that were trained with thoughts have this choice. The choice
/// changes the end of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// The prompt does not mention a thought.
    Off,
    /// The prompt ends with an empty thought. The model answers at once, and better than with `Off`.
    Fast,
    /// The prompt ends with the beginning of a thought, which the model continues before it answers.
    On,
}

/// Each choice, its name in JSON, and the name of its format.
const ALL: [(Thinking, &str, &str); 3] =
    [(Thinking::Off, "off", "g1"), (Thinking::Fast, "fast", "g1-fast"), (Thinking::On, "on", "g1-think")];

impl FromStr for Thinking {
    type Err = Error;

    fn from_str(text: &str) -> Result<Thinking> {
        let found = ALL.iter().find(|(_, name, _)| *name == text).map(|(thinking, ..)| *thinking);
        found.ok_or_else(|| Error::input(format!("expected off, fast or on for thoughts, found {:?}", short(text, 40))))
    }
}

impl Format {
    /// Returns the format that has the same names of user and model as this format, and the given `thinking`.
    ///
    /// # Errors
    /// `Input` if the format is a template, or if it has no thoughts and `thinking` is not `Off`.
    pub fn with_thinking(self, thinking: Thinking) -> Result<Format> {
        let has_thoughts = ALL.iter().any(|(.., format)| *format == self.name);
        let wanted = ALL.iter().find(|(of, ..)| *of == thinking).and_then(|(.., name)| KNOWN.iter().find(|known| known.name == *name));
        match (&self.kind, wanted) {
            (Kind::Lines(lines), Some(known)) if has_thoughts => {
                let kind = Kind::Lines(super::Lines { opening: known.lines().opening, ..lines.clone() });
                Ok(Format { name: known.name, kind, ..self })
            }
            (Kind::Lines(_), _) if thinking == Thinking::Off => Ok(self),
            (kind, _) => {
                let (why, hint) = match kind {
                    Kind::Lines(_) => {
                        let with_thoughts = ALL.map(|(.., name)| name).join(", ");
                        ("has no thoughts", format!("leave out `thinking`, or choose a chat format with thoughts: {with_thoughts}"))
                    }
                    Kind::Messages(_) => ("leaves thoughts to the template", "leave out `thinking`".to_owned()),
                };
                Err(Error::input(format!("the chat format {:?} {why}", self.name)).hint(hint))
            }
        }
    }
}
