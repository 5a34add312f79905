//! Guesses the text that a constraint requires next, such as the keys and braces of a schema.

use super::{Proposer, Wish};
use crate::session::speculation::Speculate;

/// Asks the constraint of a text for its next bytes. Their tokens are only a guess: other tokens may spell the same bytes.
pub struct Forced;

impl Proposer for Forced {
    fn kind(&self) -> Option<Speculate> {
        Some(Speculate::Forced)
    }

    fn expected(&self) -> f64 {
        0.8
    }

    fn propose(&mut self, wishes: &mut [Wish<'_>]) {
        for wish in wishes {
            let Some(vocab) = wish.vocab else { continue };
            let bytes = wish.text.forced();
            wish.guesses = vocab.encode(&bytes).unwrap_or_default();
            wish.guesses.truncate(wish.most);
        }
    }
}
