//! Colours: where a terminal shows them, unless `NO_COLOR` or `--color` says otherwise.

use clap::ValueEnum;
use clap::builder::styling::{AnsiColor, Style};
use std::io::IsTerminal;

/// What stands beside the matter: reasoning, timings, hints.
pub const DIM: Style = Style::new().dimmed();
/// Whose turn it is: the user's, and the model's.
pub const SIGN: Style = AnsiColor::Cyan.on_default().bold();
pub const NAME: Style = AnsiColor::Green.on_default().bold();

/// For `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

impl Color {
    /// Whether what goes to `stream` is coloured. On Windows this switches the console to escape sequences where it has to.
    pub fn suits(self, stream: &impl IsTerminal) -> bool {
        match self {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => stream.is_terminal() && !anstyle_query::no_color() && anstyle_query::clicolor() != Some(false) && understood(),
        }
    }
}

/// Whether the terminal knows escape sequences.
fn understood() -> bool {
    anstyle_query::term_supports_ansi_color() || anstyle_query::windows::enable_ansi_colors() == Some(true)
}

/// `text` in a style, where colours are wanted.
pub fn painted(text: &str, style: Style, wanted: bool) -> String {
    if wanted { format!("{style}{text}{style:#}") } else { text.to_string() }
}
