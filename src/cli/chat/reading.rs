//! How far the reading of a text is, on stderr: a message, a prompt file, what a saved chat begins with.

use crate::cli::progress::{Progress, Unit};
use std::sync::{Arc, Mutex, PoisonError};

/// A bar that begins anew with each text. Clones share it.
#[derive(Clone, Default)]
pub struct Reading(Arc<Mutex<Option<Progress>>>);

impl Reading {
    /// Returns a function that shows tokens read and tokens to read in all.
    pub fn shown(&self) -> impl FnMut(usize, usize) + Send + use<> {
        let own = self.clone();
        move |done, total| {
            let mut bar = own.0.lock().unwrap_or_else(PoisonError::into_inner);
            bar.get_or_insert_with(|| Progress::new("reading", Unit::Tokens)).show(done as u64, total as u64);
            if done >= total {
                *bar = None;
            }
        }
    }

    /// Removes the bar: the text is read, or the user stopped.
    pub fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
