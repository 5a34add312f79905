//! Checks sampling settings that come from outside the library.

use super::named;
use super::settings::Sampling;
use crate::error::{Error, Result};

impl Sampling {
    /// Checks that every number is in its range, that `dry_breakers` has at most 128 texts, and that all ids are below `n_vocab`. `n_vocab` is the
    /// size of the vocabulary.
    ///
    /// # Errors
    /// `Usage`, with the name of the setting as the error's field.
    pub fn check(&self, n_vocab: usize) -> Result<()> {
        named::check_numbers(self)?;
        for &(id, bias) in &self.logit_bias {
            check_id("logit_bias", id, n_vocab)?;
            if bias.is_nan() || bias == f32::INFINITY {
                return Err(Error::usage(format!("expected a finite number or -inf as the bias of token id {id}, found {bias}"))
                    .field("logit_bias"));
            }
        }
        if self.dry_breakers.len() > MAX_BREAKERS {
            let text = format!("expected at most {MAX_BREAKERS} texts, found {}", self.dry_breakers.len());
            return Err(Error::usage(text).field("dry_breaker"));
        }
        self.guard.map_or(Ok(()), |id| check_id("guard", id, n_vocab))?;
        self.ban.iter().try_for_each(|&id| check_id("ban", id, n_vocab))
    }
}

/// The largest number of texts in `dry_breakers`. The limit exists because every token of the vocabulary is searched for each text.
const MAX_BREAKERS: usize = 128;

fn check_id(setting: &str, id: u32, n_vocab: usize) -> Result<()> {
    if (id as usize) < n_vocab {
        return Ok(());
    }
    Err(Error::usage(format!("expected a token id below {n_vocab}, the size of the vocabulary; found {id}")).field(setting))
}
