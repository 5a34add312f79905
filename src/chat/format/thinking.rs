//! Whether a model thinks before it answers, where its format leaves that open.

use super::known::KNOWN;
use super::{Format, Kind};
use crate::error::{Error, Result};
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

/// The names of each, and the formats of models that were trained with thoughts.
const ALL: [(Thinking, &str, &str); 3] =
    [(Thinking::Off, "off", "g1"), (Thinking::Fast, "fast", "g1-fast"), (Thinking::On, "on", "g1-think")];

impl Thinking {
    /// As JSON spells it.
    pub fn name(self) -> &'static str {
        ALL[self as usize].1
    }
}

impl FromStr for Thinking {
    type Err = Error;

    fn from_str(text: &str) -> Result<Thinking> {
        let found = ALL.iter().find(|(_, name, _)| *name == text);
        found
            .map(|(thinking, ..)| *thinking)
            .ok_or_else(|| Error::input(format!("expected off, fast or on, found {:?}", crate::error::short(text, 40))))
    }
}

impl Format {
    /// The same format with or without thoughts.
    ///
    /// # Errors
    /// `Input` where the format knows no thoughts, or leaves them to a template.
    pub fn with_thinking(self, thinking: Thinking) -> Result<Format> {
        let known = KNOWN.iter().find(|known| known.name == ALL[thinking as usize].2);
        match (self.kind, known) {
            (Kind::Lines(mut lines), Some(known)) if ALL.iter().any(|(_, _, name)| *name == self.name) => {
                lines.opening = known.lines().opening;
                Ok(Format { name: known.name, kind: Kind::Lines(lines) })
            }
            (kind @ Kind::Lines(_), _) if thinking == Thinking::Off => Ok(Format { name: self.name, kind }),
            (kind, _) => {
                let why = if matches!(kind, Kind::Lines(_)) { "knows no thoughts" } else { "leaves thoughts to its template" };
                Err(Error::input(format!("expected a format with thoughts, found {:?}, which {why}", self.name)))
            }
        }
    }
}
