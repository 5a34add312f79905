//! Shows a progress bar on stderr. The bar appears after one second, and only on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(1);

/// The unit that a bar counts.
#[derive(Clone, Copy)]
pub enum Unit {
    Bytes,
    Tokens,
    Steps,
    Checks,
    Prompts,
    /// Prompts whose total number is unknown.
    EndlessPrompts,
    #[cfg(feature = "serve")]
    Requests,
    #[cfg(feature = "serve")]
    Seconds,
}

pub struct Progress {
    label: &'static str,
    unit: Unit,
    started: Instant,
    is_terminal: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub fn new(label: &'static str, unit: Unit) -> Progress {
        Progress { label, unit, started: Instant::now(), is_terminal: std::io::stderr().is_terminal(), bar: None }
    }

    pub fn show(&mut self, done: u64, total: u64) {
        if !self.is_terminal || (self.bar.is_none() && (self.started.elapsed() < PATIENCE || done >= total)) {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let template = match self.unit {
                Unit::Bytes => "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}, {elapsed} elapsed, {eta} left",
                Unit::Tokens => "{msg} {bar:30} {pos}/{len} tokens {per_sec}, {elapsed} elapsed, {eta} left",
                Unit::Steps => "{msg} {bar:30} {pos}/{len}, {elapsed} elapsed, {eta} left",
                Unit::Checks => "{msg} {bar:30} {pos}/{len} checks, {elapsed} elapsed, {eta} left",
                Unit::Prompts => "{msg} {bar:30} {pos}/{len} prompts {prefix}, {elapsed} elapsed, {eta} left",
                #[cfg(feature = "serve")]
                Unit::Requests => "{msg} {bar:30} {pos}/{len} requests, {prefix}, {elapsed} elapsed",
                #[cfg(feature = "serve")]
                Unit::Seconds => "{msg} {bar:30} {pos}/{len} s, {prefix}",
                Unit::EndlessPrompts => "{msg} {pos} prompts {prefix}, {elapsed} elapsed",
            };
            let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr()).with_style(style);
            bar.with_message(self.label).with_elapsed(self.started.elapsed())
        });
        bar.set_length(total);
        bar.set_position(done);
        if done >= total {
            bar.finish_and_clear();
        }
    }

    /// Returns whether stderr is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Shows text in the bar beside the counts. Only bars that count prompts, requests or seconds have a place for text.
    pub fn note(&self, text: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(text());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Formats an estimated duration, rounded up: `20 s`, `6 min`.
pub fn about(duration: Duration) -> String {
    match duration.as_secs_f64() {
        s if s < 10.0 => format!("{:.0} s", s.ceil().max(1.0)),
        s if s < 90.0 => format!("{:.0} s", (s / 5.0).ceil() * 5.0),
        s => format!("{:.0} min", (s / 60.0).ceil()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_rounded_up() {
        let about = |seconds: f64| about(Duration::from_secs_f64(seconds));
        assert_eq!(
            [about(0.1), about(7.2), about(21.0), about(89.0), about(95.0), about(361.0)],
            ["1 s", "8 s", "25 s", "90 s", "2 min", "7 min"]
        );
    }
}
