//! Writes to stdout and stderr. A closed pipe is not an error. Control characters that a model generated are escaped on a terminal.

use super::Failure;
use super::style::{Color, DIM, explained, marked, painted, understood};
use super::word_wrap::WordWrap;
use clap::builder::styling::Style;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal, StdoutLock, Write};
use terminal_size::{Width, terminal_size_of};
use wingbeat::error::Error;
use wingbeat::low_level::front_end::escaped;

/// Standard output, locked while this value exists.
pub struct Output {
    out: StdoutLock<'static>,
    is_terminal: bool,
    /// True if control characters are printed unchanged on a terminal.
    raw: bool,
    /// True if the last write ended a line.
    at_line_start: bool,
    /// Breaks the lines of texts between words. `None` if the terminal breaks lines anywhere.
    wrap: Option<WordWrap>,
}

impl Output {
    /// Locks standard output. If `raw`, control characters are printed unchanged on a terminal.
    pub fn new(raw: bool) -> Output {
        let out = io::stdout().lock();
        Output { is_terminal: io::stdout().is_terminal(), out, raw, at_line_start: true, wrap: None }
    }

    /// Makes the output break lines between words if it is a terminal that shows control characters as escapes.
    pub fn wrapped(mut self) -> Output {
        self.wrap = (self.is_terminal && !self.raw && understood()).then(WordWrap::default);
        self
    }

    /// Prints text from a model or a file, and flushes the output. Control characters are escaped on a terminal, unless `raw` is set.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        let shown = if self.is_terminal && !self.raw { printable(text) } else { Cow::Borrowed(text) };
        let shown = match &mut self.wrap {
            // The user may have resized the window since the last text.
            Some(wrap) => match terminal_size_of(io::stdout()) {
                Some((Width(columns), _)) => Cow::Owned(wrap.wrapped(&shown, columns.into())),
                None => shown,
            },
            None => shown,
        };
        self.bytes(shown.as_bytes())
    }

    /// Prints text in a style. The caller must have checked that standard output shows styles.
    pub fn styled(&mut self, text: &str, style: Style) -> Result<(), Failure> {
        check(write!(self.out, "{style}"))?;
        self.text(text)?;
        check(write!(self.out, "{style:#}"))?;
        check(self.out.flush())
    }

    /// Prints bytes unchanged, and flushes the output.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if let Some(last) = bytes.last() {
            self.at_line_start = *last == b'\n';
            check(self.out.write_all(bytes))?;
        }
        check(self.out.flush())
    }

    /// Prints one line. Control characters are always escaped, even with `raw` and in a pipe: names from files may contain them, and a pager
    /// passes them to the terminal.
    pub fn line(&mut self, line: impl fmt::Display) -> Result<(), Failure> {
        self.whole(&printable(&line.to_string()).replace('\n', "\\n"))
    }

    fn whole(&mut self, line: &str) -> Result<(), Failure> {
        self.at_line_start = true;
        self.wrap.iter_mut().for_each(WordWrap::at_line_start);
        check(writeln!(self.out, "{line}"))
    }

    /// Prints one JSON value on one line. On a terminal, control characters are escaped even with `raw`: JSON has escapes for them, so the value
    /// stays the same.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(|e| Error::input(format!("cannot write JSON: {e}")))?;
        self.whole(&if self.is_terminal { escaped(&text) } else { Cow::Owned(text) })
    }

    /// Ends the current line on a terminal. Does nothing if the output is a file or a pipe, which get only the text.
    pub fn end_line(&mut self) -> Result<(), Failure> {
        if self.is_terminal && !self.at_line_start { self.line("") } else { Ok(()) }
    }

    /// Prints a newline, unless the last output ended with a newline.
    pub fn new_line(&mut self) -> Result<(), Failure> {
        if self.at_line_start { Ok(()) } else { self.line("") }
    }

    /// Flushes the output. Returns an error if some output could not be written.
    pub fn finish(mut self) -> Result<(), Failure> {
        check(self.out.flush())
    }
}

fn check(result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
        _ => Failure::Error(Error::io(e, "standard output".as_ref())),
    })
}

/// Prints one line on stderr with control characters escaped. Errors while writing to stderr are ignored.
pub fn say(line: fmt::Arguments<'_>) {
    say_in(Color::Auto, line);
}

/// Prints one line on stderr as [`say`] does. `color` determines whether the line may have colours.
pub fn say_in(color: Color, line: fmt::Arguments<'_>) {
    let line = printable(&line.to_string()).replace('\n', "\\n");
    let _ = writeln!(io::stderr(), "{}", marked(&line, color.suits(&io::stderr())));
}

/// Prints a dim line on stderr, for additional facts.
pub fn aside(color: Color, line: impl fmt::Display) {
    let line = printable(&line.to_string()).replace('\n', "\\n");
    let _ = writeln!(io::stderr(), "{}", painted(&line, DIM, color.suits(&io::stderr())));
}

/// Prints an error on stderr.
pub fn say_error(color: Color, e: &Error) {
    explained(e, io::stderr().is_terminal()).iter().for_each(|line| say_in(color, format_args!("{line}")));
}

/// Returns the text with its control characters escaped, except newline and tab.
pub fn printable(text: &str) -> Cow<'_, str> {
    let hides = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(hides) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if hides(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::{escaped, printable};

    #[test]
    fn escape_sequences_lose_their_power() {
        assert_eq!(printable("a\n\tb é"), "a\n\tb é");
        assert_eq!(printable("\u{1b}[2J\r\u{9b}1m"), "\\u{1b}[2J\\r\\u{9b}1m");
        let text = "\u{1b}[2J\u{9b}1m\u{7f} é\n";
        let json = serde_json::to_string(text).unwrap();
        assert_eq!(escaped(&json), r#""\u001b[2J\u009b1m\u007f é\n""#);
        assert_eq!(serde_json::from_str::<String>(&escaped(&json)).unwrap(), text);
    }
}
