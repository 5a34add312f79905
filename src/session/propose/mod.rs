//! Guesses the next tokens of a text. Each source of guesses (a proposer) has one file.

mod draft;
mod followed;
mod forced;
mod ngram;
mod pace;

pub use draft::Draft;
pub use pace::{Base, Offer, Pace};

use super::speculation::Speculate;
use super::text::Text;
use crate::vocab::Vocab;
use forced::Forced;
use ngram::Ngram;

/// A text whose next tokens a proposer guesses.
pub struct Wish<'a> {
    pub text: &'a mut Text,
    /// The vocabulary of the model. `None` if the model has none.
    pub vocab: Option<&'a Vocab>,
    /// The largest number of guesses.
    pub most: usize,
    /// The guesses, which the proposer adds. Stays empty if the proposer has no guess.
    pub guesses: Vec<u32>,
}

impl Wish<'_> {
    /// Returns a number that identifies the text among all texts of a batcher.
    pub fn key(&self) -> usize {
        self.text.id.index()
    }

    /// Returns all known tokens of the sequence: the prompt and the text. The first tokens may be missing.
    pub fn tokens(&self) -> &[u32] {
        self.text.known()
    }
}

/// A source of guesses. Guesses never change a text: wrong guesses only make it slower.
pub trait Proposer: Send {
    /// Returns the value of [`Speculate`] that selects this proposer besides [`Speculate::Auto`]. `None` if only `Auto` selects it.
    fn kind(&self) -> Option<Speculate>;

    /// Returns the mean time of a guess in seconds. `None` if a guess takes no noticeable time: the proposer then guesses before the number of
    /// guesses is chosen. A proposer with a time is asked only for as many guesses as should make the text faster.
    fn seconds(&self) -> Option<f64> {
        None
    }

    /// Returns the share of right guesses that a new text should expect, from 0 to 1.
    fn expected(&self) -> f64;

    /// Returns whether the proposer can still guess.
    fn is_available(&self) -> bool {
        true
    }

    /// Guesses the next tokens of several texts. A guess that is no token id of the model is dropped, with all guesses after it.
    fn propose(&mut self, wishes: &mut [Wish<'_>]);

    /// Records how many of the `n_compared` guesses of a text were right. Only the last compared guess can be wrong.
    fn learn(&mut self, _key: usize, _n_right: usize, _n_compared: usize) {}

    /// Frees the data of a text that has ended.
    fn forget(&mut self, _key: usize) {}
}

/// Returns the proposers that need no further model, in the order in which they are asked.
pub fn free_proposers() -> Vec<Box<dyn Proposer>> {
    vec![Box::new(Forced), Box::new(Ngram::default())]
}
