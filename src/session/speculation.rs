//! Settings of speculation: guesses of the next tokens, which one step checks together.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The largest number of guesses per step if measured times choose the number. A step then reads 8 tokens. A CPU with AVX-512 multiplies up to 8
/// tokens without first decoding the weights into a buffer.
pub const MOST_GUESSES: usize = 7;

/// The largest number of guesses per step that a caller can set.
pub const MAX_GUESSES: usize = 32;

/// Selects the source of guesses for the next tokens of a text. A step checks all guesses together. Wrong guesses never change the text: each token
/// is sampled as without guesses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Speculate {
    /// No guesses.
    #[default]
    Off,
    /// All of the sources below that are available.
    Auto,
    /// Guesses that the text repeats itself or its prompt: finds the last tokens earlier in the sequence, and guesses the tokens that followed.
    Ngram,
    /// Guesses by a smaller model with the same vocabulary (a draft model).
    Draft,
    /// Guesses the text that a grammar or a schema requires next.
    Forced,
}

impl Speculate {
    /// All values.
    pub const ALL: [Speculate; 5] = [Speculate::Off, Speculate::Auto, Speculate::Ngram, Speculate::Draft, Speculate::Forced];

    /// The names of all values, for messages.
    pub const EXPECTED: &str = "off, auto, ngram, draft or forced";

    /// Returns the name, as the option `speculate` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Speculate::Off => "off",
            Speculate::Auto => "auto",
            Speculate::Ngram => "ngram",
            Speculate::Draft => "draft",
            Speculate::Forced => "forced",
        }
    }

    /// Returns whether a text with this setting takes the guesses of `proposer`.
    pub(super) fn includes(self, proposer: Option<Speculate>) -> bool {
        self == Speculate::Auto || Some(self) == proposer
    }
}

impl fmt::Display for Speculate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Speculate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Speculate> {
        let found = Speculate::ALL.into_iter().find(|speculate| speculate.name() == text);
        found.ok_or_else(|| Error::usage(format!("expected {}, found {text:?}", Speculate::EXPECTED)).field("speculate"))
    }
}

/// The source of a text's guesses, and the number of guesses per step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Speculation {
    /// Selects the source of guesses.
    pub by: Speculate,
    /// The number of guesses in a step, 1 to [`MAX_GUESSES`]; fewer if fewer are found. `None` chooses the number for each step, from the measured
    /// times of steps and from the share of right guesses, at most [`MOST_GUESSES`].
    pub n_guesses: Option<usize>,
}

impl Speculation {
    /// Returns settings without guesses.
    pub fn off() -> Speculation {
        Speculation::default()
    }

    /// Returns settings that let measured times choose the number of guesses.
    pub fn by(by: Speculate) -> Speculation {
        Speculation { by, n_guesses: None }
    }

    /// Fills in the settings that a caller has left unset, and checks the result. If `by` is `None`, texts guess only if there is a draft model.
    ///
    /// # Errors
    /// The errors of [`check`](Self::check).
    pub fn chosen(by: Option<Speculate>, n_guesses: Option<usize>, has_draft: bool) -> Result<Speculation> {
        let default = if has_draft { Speculate::Auto } else { Speculate::Off };
        let speculation = Speculation { by: by.unwrap_or(default), n_guesses };
        speculation.check(has_draft).map(|()| speculation)
    }

    /// Checks the settings. `has_draft` is true if there is a draft model.
    ///
    /// # Errors
    /// `Usage` if the number of guesses is out of range or has no effect, or if there is no draft model to ask. The error names the setting.
    pub fn check(&self, has_draft: bool) -> Result<()> {
        let wrong = |field: &str, text: String, hint: &str| Err(Error::usage(text).field(field).hint(hint));
        match (self.by, self.n_guesses) {
            (_, Some(n)) if !(1..=MAX_GUESSES).contains(&n) => {
                Err(Error::usage(format!("expected a whole number from 1 to {MAX_GUESSES}, found {n}")).field("draft_tokens"))
            }
            (Speculate::Draft, _) if !has_draft => {
                wrong("speculate", "draft needs a draft model, found none".into(), "name a model with `draft`, or choose another value")
            }
            (Speculate::Off, Some(_)) if !has_draft => {
                wrong("draft_tokens", "a number of guesses has no effect, because guesses are off".into(), "add `speculate=auto`")
            }
            _ => Ok(()),
        }
    }

    /// Returns whether texts guess.
    pub fn is_on(&self) -> bool {
        self.by != Speculate::Off
    }
}
