//! Writing to stdout and stderr: a closed pipe is no error, and a terminal gets no control characters from a model.

use super::Failure;
use super::style::{Color, DIM, explained, marked, painted};
use crate::error::Error;
use clap::builder::styling::Style;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal, StdoutLock, Write};

/// Standard output.
pub struct Output {
    out: StdoutLock<'static>,
    is_terminal: bool,
    /// Whether text is passed on as it is.
    raw: bool,
    /// Whether the last thing written ended a line.
    at_line_start: bool,
}

impl Output {
    /// `raw`: control characters reach a terminal, too.
    pub fn new(raw: bool) -> Output {
        let out = io::stdout().lock();
        Output { is_terminal: io::stdout().is_terminal(), out, raw, at_line_start: true }
    }

    /// Text from a model or a file, shown at once.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        let shown = if self.is_terminal && !self.raw { printable(text) } else { Cow::Borrowed(text) };
        self.bytes(shown.as_bytes())
    }

    /// The same in a style. The caller knows that whoever reads it shows styles.
    pub fn styled(&mut self, text: &str, style: Style) -> Result<(), Failure> {
        check(write!(self.out, "{style}"))?;
        self.text(text)?;
        check(write!(self.out, "{style:#}"))?;
        check(self.out.flush())
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if let Some(last) = bytes.last() {
            self.at_line_start = *last == b'\n';
            check(self.out.write_all(bytes))?;
        }
        check(self.out.flush())
    }

    /// One line of facts. Names and labels from files are in it, so control characters are written out wherever the line goes: a pager
    /// passes them on to the terminal.
    pub fn line(&mut self, line: impl fmt::Display) -> Result<(), Failure> {
        self.whole(&printable(&line.to_string()).replace('\n', "\\n"))
    }

    fn whole(&mut self, line: &str) -> Result<(), Failure> {
        self.at_line_start = true;
        check(writeln!(self.out, "{line}"))
    }

    /// One object on one line. A terminal gets no control characters even where text is passed on as it is: JSON has another way to say them.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(|e| Error::input(format!("cannot write JSON: {e}")))?;
        self.whole(&if self.is_terminal { escaped(&text) } else { Cow::Owned(text) })
    }

    /// Ends the last line, on a terminal only: a file gets the text and nothing else.
    pub fn end_line(&mut self) -> Result<(), Failure> {
        if self.is_terminal && !self.at_line_start { self.line("") } else { Ok(()) }
    }

    /// Ends the last line wherever it goes.
    pub fn new_line(&mut self) -> Result<(), Failure> {
        if self.at_line_start { Ok(()) } else { self.line("") }
    }

    /// Nothing that was written is lost from here on, or it is an error.
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

/// One line on stderr, whatever a hostile file put into it. Where nobody listens, nobody is told.
pub fn say(line: fmt::Arguments<'_>) {
    say_in(Color::Auto, line);
}

/// The same, with colours as the user wants them.
pub fn say_in(color: Color, line: fmt::Arguments<'_>) {
    let line = printable(&line.to_string()).replace('\n', "\\n");
    let _ = writeln!(io::stderr(), "{}", marked(&line, color.suits(&io::stderr())));
}

/// A dim line on stderr: something beside the matter.
pub fn aside(color: Color, line: impl fmt::Display) {
    let line = printable(&line.to_string()).replace('\n', "\\n");
    let _ = writeln!(io::stderr(), "{}", painted(&line, DIM, color.suits(&io::stderr())));
}

/// An error on stderr.
pub fn say_error(color: Color, e: &Error) {
    explained(e, io::stderr().is_terminal()).iter().for_each(|line| say_in(color, format_args!("{line}")));
}

/// JSON without control characters. Those below the blank are escaped in any case.
fn escaped(json: &str) -> Cow<'_, str> {
    if !json.contains(char::is_control) {
        return Cow::Borrowed(json);
    }
    Cow::Owned(json.chars().map(|c| if c.is_control() { format!("\\u{:04x}", c as u32) } else { c.to_string() }).collect())
}

/// Control characters other than newline and tab, written out.
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
