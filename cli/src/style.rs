//! Colours output on terminals, unless `NO_COLOR` or `--color` turns colours off.

use super::flags;
use clap::ValueEnum;
use clap::builder::styling::{AnsiColor, Style};
use std::io::IsTerminal;
use wingbeat::error::Error;

/// The style of reasoning, timings and hints.
pub const DIM: Style = Style::new().dimmed();
/// The style of the prompt at which the user types, such as `User:`.
pub const SIGN: Style = AnsiColor::Cyan.on_default().bold();
/// The style of the bot's name before an answer.
pub const NAME: Style = AnsiColor::Green.on_default().bold();

/// Words that are coloured at the beginning of a line on stderr, and their styles. The colours are clap's.
const MARKS: [(&str, Style); 4] = [
    ("error:", AnsiColor::Red.on_default().bold()),
    ("warning:", AnsiColor::Yellow.on_default().bold()),
    ("note:", AnsiColor::Cyan.on_default().bold()),
    ("hint:", AnsiColor::Green.on_default()),
];

/// The values of `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

impl Color {
    /// Returns whether output to `stream` should be coloured. On Windows, also makes the console accept escape sequences.
    pub fn suits(self, stream: &impl IsTerminal) -> bool {
        match self {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => stream.is_terminal() && !anstyle_query::no_color() && anstyle_query::clicolor() != Some(false) && understood(),
        }
    }
}

/// Returns whether the terminal shows colours when it receives escape sequences. On Windows, first tries to turn this on.
pub fn understood() -> bool {
    anstyle_query::term_supports_ansi_color() || anstyle_query::windows::enable_ansi_colors() == Some(true)
}

/// Returns `text` in a style if `wanted`, else unchanged.
pub fn painted(text: &str, style: Style, wanted: bool) -> String {
    if wanted { format!("{style}{text}{style:#}") } else { text.to_string() }
}

/// Returns `line` with its first word coloured, if `wanted` and if this word is `error:`, `warning:`, `note:` or `hint:`.
pub fn marked(line: &str, wanted: bool) -> String {
    let text = line.trim_start();
    match MARKS.iter().find(|(mark, _)| text.starts_with(mark)) {
        Some((mark, style)) if wanted => {
            let (indent, rest) = (&line[..line.len() - text.len()], &text[mark.len()..]);
            format!("{indent}{}{rest}", painted(mark, *style, true))
        }
        _ => line.to_string(),
    }
}

/// Returns the lines that print an error: the message, then the indented excerpt. On a terminal, the hint follows in its own line.
/// Otherwise the hint is in the first line.
pub fn explained(e: &Error, on_terminal: bool) -> Vec<String> {
    let (mut e, mut hint) = (flags::in_hint(e.clone()), None);
    if on_terminal {
        hint = e.hint.take();
    }
    let excerpt = e.excerpt.iter().flat_map(|text| text.lines()).map(|line| format!("  {line}"));
    let mut lines: Vec<String> = std::iter::once(format!("error: {e}")).chain(excerpt).collect();
    lines.extend(hint.map(|hint| format!("  hint: {hint}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_mark_of_a_line_is_painted() {
        assert_eq!(marked("error: no error: here", true), "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m no error: here");
        assert_eq!(marked("  hint: look", true), "  \u{1b}[32mhint:\u{1b}[0m look");
        assert_eq!(marked("device: cpu", true), "device: cpu");
        assert_eq!(marked("error: x", false), "error: x");
    }

    #[test]
    fn a_terminal_gets_the_hint_on_its_own_line() {
        let e = Error::usage("expected a word").at("--flag").hint("give one").within("gpu", 0..3);
        assert_eq!(explained(&e, false), ["error: --flag: expected a word (give one)", "  gpu", "  ^^^"]);
        assert_eq!(explained(&e, true), ["error: --flag: expected a word", "  gpu", "  ^^^", "  hint: give one"]);
    }
}
