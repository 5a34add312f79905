//! The progress bar of a prefill, on stderr.

use crate::cli::progress::{Progress, Unit};
use std::sync::{Arc, Mutex, PoisonError};

/// A bar that restarts with each prefill. Clones share the bar.
#[derive(Clone, Default)]
pub struct Reading(Arc<Mutex<Option<Progress>>>);

impl Reading {
    /// Returns a function that shows prefilled tokens and all tokens of a prompt.
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

    /// Removes the bar after a prefill or an interruption.
    pub fn end(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
