//! Shows a progress bar on stderr. The bar appears after one second, and only on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
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

impl Unit {
    /// Returns the look of a bar. The bar itself takes the columns that the texts leave, so that the line fits the terminal.
    fn style(self) -> ProgressStyle {
        let template = match self {
            Unit::Bytes => "{msg} {wide_bar} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left",
            Unit::Tokens => "{msg} {wide_bar} {pos}/{len} tokens, {rate}, {eta} left",
            Unit::Steps => "{msg} {wide_bar} {pos}/{len}, {eta} left",
            Unit::Checks => "{msg} {wide_bar} {pos}/{len} checks, {eta} left",
            Unit::Prompts => "{msg} {wide_bar} {pos}/{len} prompts, {prefix}, {eta} left",
            #[cfg(feature = "serve")]
            Unit::Requests => "{msg} {wide_bar} {pos}/{len} requests, {prefix}, {elapsed}",
            #[cfg(feature = "serve")]
            Unit::Seconds => "{msg} {wide_bar} {pos}/{len} s, {prefix}",
            Unit::EndlessPrompts => "{msg} {pos} prompts, {prefix}, {elapsed}",
        };
        // indicatif's own rate has four decimals.
        let rate = |state: &ProgressState, w: &mut dyn Write| _ = w.write_str(&per_second(state.per_sec()));
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("rate", rate)
    }
}

/// Formats a rate with at most one decimal: `3.2/s`, `120/s`.
fn per_second(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}/s") } else { format!("{rate:.0}/s") }
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
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr()).with_style(self.unit.style());
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
    use indicatif::TermLike;
    use std::io;
    use std::sync::{Arc, Mutex};

    /// A terminal of 80 columns that keeps what is written.
    #[derive(Debug, Clone, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_fits_80_columns() {
        #[cfg(feature = "serve")]
        let note = "64 clients, 12345.6 tokens/s";
        for (unit, label, total, note) in [
            (Unit::Bytes, "downloading", 1_234_567_890_123, ""),
            (Unit::Tokens, "comparing", 1_234_567, ""),
            (Unit::Steps, "measuring this GPU, once", 1000, ""),
            (Unit::Checks, "checking", 123_456, ""),
            (Unit::Prompts, "batch", 1_000_000, "12345 tokens/s"),
            (Unit::EndlessPrompts, "batch", 1_000_000, "12345 tokens/s"),
            #[cfg(feature = "serve")]
            (Unit::Requests, "measuring", 64_000, note),
            #[cfg(feature = "serve")]
            (Unit::Seconds, "measuring", 86400, note),
        ] {
            let screen = Screen::default();
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::term_like(Box::new(screen.clone())));
            let bar = bar.with_style(unit.style()).with_message(label).with_elapsed(Duration::from_secs(12_345)).with_prefix(note);
            bar.set_position(total / 3);
            bar.force_draw();
            let shown = screen.0.lock().unwrap().clone();
            // A line of exactly 80 columns still fits.
            assert!(shown.contains(label) && shown.contains(note), "{shown:?}");
            let line = shown.rsplit(label).next().unwrap().trim_end();
            assert!(label.chars().count() + line.chars().count() <= 80, "{label}{line}");
        }
        assert_eq!([per_second(3.21987), per_second(1234.5678)], ["3.2/s", "1235/s"]);
    }

    #[test]
    fn estimates_are_rounded_up() {
        let about = |seconds: f64| about(Duration::from_secs_f64(seconds));
        assert_eq!(
            [about(0.1), about(7.2), about(21.0), about(89.0), about(95.0), about(361.0)],
            ["1 s", "8 s", "25 s", "90 s", "2 min", "7 min"]
        );
    }
}
