//! Shows the progress of a prefill as a bar on stderr.

use crate::progress::{Progress, Unit};
use std::sync::{Arc, Mutex, PoisonError};

/// A progress bar that restarts with each prefill. Clones share the same bar.
#[derive(Clone, Default)]
pub struct PrefillBar(Arc<Mutex<Option<Progress>>>);

impl PrefillBar {
    /// Returns a function that updates the bar. Its arguments are the number of prefilled tokens and the number of all tokens of the
    /// prompt.
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
