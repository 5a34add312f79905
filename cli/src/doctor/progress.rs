//! Counts checks, and shows their progress and the remaining time. Stops the checks if the user asks for it.

use crate::output::say;
use crate::progress::{self, Progress, Unit};
use serde::Serialize;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time between two lines of progress if stderr is not a terminal.
const EVERY: Duration = Duration::from_secs(30);

/// The numbers of planned checks, of done checks, and of done checks with a right result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub planned: usize,
    pub done: usize,
    pub right: usize,
}

pub struct Checks {
    pub counts: Counts,
    stop: Arc<AtomicBool>,
    bar: Progress,
    began: Instant,
    said: Instant,
}

impl Checks {
    pub fn new(planned: usize, stop: Arc<AtomicBool>) -> Checks {
        let now = Instant::now();
        let counts = Counts { planned, ..Counts::default() };
        Checks { counts, stop, bar: Progress::new("checking", Unit::Checks), began: now, said: now }
    }

    /// Counts one finished check and shows the progress. Returns `Break` if the user asked to stop.
    pub fn add(&mut self, is_right: bool) -> ControlFlow<()> {
        let Counts { planned, done, right } = &mut self.counts;
        *done += 1;
        *right += usize::from(is_right);
        self.bar.show(*done as u64, *planned as u64);
        if !self.bar.is_terminal() && self.said.elapsed() >= EVERY {
            let left = self.began.elapsed().mul_f64((*planned - *done) as f64 / *done as f64);
            say(format_args!("checked {done} of {planned}, about {} left", progress::about(left)));
            self.said = Instant::now();
        }
        if self.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns whether the user stopped the program before all planned checks were done.
    pub fn is_interrupted(&self) -> bool {
        self.is_stopped() && self.counts.done < self.counts.planned
    }
}
