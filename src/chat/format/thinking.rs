//! Whether a model thinks before it answers, where its format leaves that open.

use super::known::KNOWN;
use super::{Format, Kind};
use crate::error::{Error, Result, short};
use std::str::FromStr;

/// Whether a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// The prompt says nothing of a thought.
    Off,
    /// The prompt holds an empty thought: the model answers at once, and better than without any.
    Fast,
    /// The prompt begins a thought.
    On,
}

/// By their names in JSON, with the formats of models that were trained with thoughts.
const ALL: [(Thinking, &str, &str); 3] =
    [(Thinking::Off, "off", "g1"), (Thinking::Fast, "fast", "g1-fast"), (Thinking::On, "on", "g1-think")];

impl FromStr for Thinking {
    type Err = Error;

    fn from_str(text: &str) -> Result<Thinking> {
        let found = ALL.iter().find(|(_, name, _)| *name == text).map(|(thinking, ..)| *thinking);
        found.ok_or_else(|| Error::input(format!("expected off, fast or on, found {:?}", short(text, 40))))
    }
}

impl Format {
    /// The same format with or without thoughts.
    ///
    /// # Errors
    /// `Input` where the format knows no thoughts, or leaves them to a template.
    pub fn with_thinking(self, thinking: Thinking) -> Result<Format> {
        let has_thoughts = ALL.iter().any(|(.., format)| *format == self.name);
        let wanted = ALL.iter().find(|(of, ..)| *of == thinking).and_then(|(.., name)| KNOWN.iter().find(|known| known.name == *name));
        match (self.kind, wanted) {
            (Kind::Lines(lines), Some(known)) if has_thoughts => {
                Ok(Format { name: known.name, kind: Kind::Lines(super::Lines { opening: known.lines().opening, ..lines }) })
            }
            (kind @ Kind::Lines(_), _) if thinking == Thinking::Off => Ok(Format { name: self.name, kind }),
            (kind, _) => {
                let why = if matches!(kind, Kind::Lines(_)) { "knows no thoughts" } else { "leaves thoughts to its template" };
                Err(Error::input(format!("expected a format with thoughts, found {:?}, which {why}", self.name)))
            }
        }
    }
}
