//! Asks a person yes or no. `--yes` answers in advance.

#[cfg(feature = "download")]
use super::output::printable;
#[cfg(feature = "download")]
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "download")]
use wingbeat::error::{Error, Result};

static IS_GIVEN: AtomicBool = AtomicBool::new(false);

/// The flag of the subcommands that run a model.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct ConsentArgs {
    /// Download the model that -m names without asking, if it is not on this disk
    #[cfg(feature = "download")]
    #[arg(long, help_heading = "Model", hide_short_help = true)]
    pub yes: bool,
}

/// Records that `--yes` was given.
pub fn give() {
    IS_GIVEN.store(true, Ordering::SeqCst);
}

#[cfg(feature = "download")]
/// Returns whether `--yes` was given.
pub fn is_given() -> bool {
    IS_GIVEN.load(Ordering::SeqCst)
}

#[cfg(feature = "download")]
/// Returns whether a person can be asked. Tests never ask, because nobody would answer.
pub fn can_ask() -> bool {
    !cfg!(test) && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

#[cfg(feature = "download")]
/// Asks a question on the terminal. Returns true for `y` and `yes`, `default` for an empty answer, and false otherwise and at the end of the input.
///
/// # Errors
/// `File` if the terminal cannot be read.
pub fn ask(question: &str, default: bool) -> Result<bool> {
    let choices = if default { "[Y/n]" } else { "[y/N]" };
    let mut out = std::io::stderr();
    let _ = write!(out, "{} {choices} ", printable(question)).and_then(|()| out.flush());
    let mut answer = String::new();
    let n = std::io::stdin().read_line(&mut answer).map_err(|e| Error::io(e, "standard input".as_ref()))?;
    if n == 0 {
        let _ = writeln!(out);
        return Ok(false);
    }
    Ok(means_yes(&answer, default))
}

#[cfg(feature = "download")]
fn means_yes(answer: &str, default: bool) -> bool {
    match answer.trim().to_lowercase().as_str() {
        "" => default,
        answer => matches!(answer, "y" | "yes"),
    }
}

#[cfg(all(test, feature = "download"))]
mod tests {
    use super::means_yes;

    #[test]
    fn only_yes_is_yes() {
        for (answer, expected) in [("y\n", true), (" Yes\r\n", true), ("n\n", false), ("yellow\n", false), ("\u{1b}[A\n", false)] {
            assert_eq!([means_yes(answer, true), means_yes(answer, false)], [expected; 2], "{answer:?}");
        }
        assert_eq!([means_yes("\n", true), means_yes("\n", false)], [true, false]);
    }
}
