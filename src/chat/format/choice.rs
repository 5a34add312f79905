//! Changes whether a format lets the model write a thought before an answer.

use super::g1::generation;
use super::known::KNOWN;
use super::thinking::{ALL, Choice, Thinking};
use super::{Format, FormatKind, Messages};
use crate::error::{Error, Result};
use crate::template::{Opening, Profile};

impl Format {
    /// Returns whether the model writes a thought before an answer, or `None` if the format offers no choice.
    pub fn thinking(&self) -> Option<Thinking> {
        self.thinking
    }

    /// Returns this format with another choice of thoughts. The names of user and model stay.
    ///
    /// # Errors
    /// `Input` if the format leaves thoughts to a template, or if the format has no thoughts and `thinking` is not `Off`.
    pub fn with_thinking(self, thinking: Thinking) -> Result<Format> {
        let Choice { format, opening, .. } = thinking.choice();
        if self.thinking.is_some() {
            let thinking = Some(thinking);
            match &self.kind {
                FormatKind::Lines(lines) => {
                    let known = KNOWN.iter().find(|known| known.name == *format).expect("a choice names a format");
                    let kind = FormatKind::Lines(super::Lines { opening: known.lines().opening, ..lines.clone() });
                    return Ok(Format { name: known.name, kind, thinking, ..self });
                }
                // A GLM's template has one kind of thought, and the same settings with and without it.
                FormatKind::Messages(options) if !options.is_rwkv() => {
                    if let Some(template) = options.template.with_opening(*opening) {
                        let thinking = Some(if *opening == Opening::Thought { Thinking::On } else { Thinking::Off });
                        let kind = FormatKind::Messages(Box::new(Messages { template, ..options.as_ref().clone() }));
                        return Ok(Format { kind, thinking, ..self });
                    }
                }
                FormatKind::Messages(options) => {
                    if let Some(template) = options.template.with_opening(*opening) {
                        let profile = match opening {
                            _ if self.is_for_tools => Profile::Tools,
                            Opening::Thought => Profile::Think,
                            Opening::Nothing | Opening::EmptyThought => Profile::Fast,
                        };
                        let kind = FormatKind::Messages(Box::new(Messages { template, generation: generation(&self.profiles, profile) }));
                        return Ok(Format { kind, thinking, ..self });
                    }
                }
            }
        }
        let (why, hint) = match &self.kind {
            FormatKind::Lines(_) if thinking == Thinking::Off => return Ok(self),
            FormatKind::Lines(_) => {
                let mut formats: Vec<&str> = ALL.iter().map(|choice| choice.format).collect();
                formats.dedup();
                ("does not support thoughts", format!("leave out `thinking`, or choose one of the chat formats {}", formats.join(", ")))
            }
            FormatKind::Messages(_) => {
                ("cannot change the thoughts, which the model's chat template determines", "leave out `thinking`".to_owned())
            }
        };
        Err(Error::input(format!("the chat format {:?} {why}", self.name)).hint(hint))
    }
}
