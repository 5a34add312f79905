//! Where text comes from: an argument, a file, token ids, or stdin. UTF-8, without its byte order mark.

use super::escape::EscapeArgs;
use super::lines::is_standard;
use crate::error::{Error, Result, read_at_most};
use clap::ValueHint;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;

/// Bytes of a text that a verb reads whole. A pipe without end must not fill the memory.
const MAX_TEXT_BYTES: u64 = 1 << 30;

/// What was given.
pub enum Given {
    Text(String),
    Tokens(Vec<u32>),
    /// Nothing, and stdin is a terminal.
    Nothing,
}

impl Given {
    /// The ids: those given, or those of the text. None where nothing was given.
    pub fn tokens(self, encode: impl FnOnce(&str) -> Result<Vec<u32>>) -> Result<Vec<u32>> {
        match self {
            Given::Text(text) => encode(&text),
            Given::Tokens(tokens) => Ok(tokens),
            Given::Nothing => Ok(Vec::new()),
        }
    }
}

/// The text of a verb: an argument, a flag, a file or standard input.
#[derive(clap::Args)]
#[command(next_help_heading = "Input")]
pub struct TextArgs {
    /// Text to read; without TEXT, --prompt and --file it is standard input
    #[arg(conflicts_with_all = ["prompt", "file"], display_order = 0)]
    text: Option<String>,
    /// Text to read, as a flag; it may begin with a hyphen
    #[arg(short, long, visible_alias = "text", value_name = "TEXT", allow_hyphen_values = true, conflicts_with = "file")]
    prompt: Option<String>,
    /// Read the text from FILE; - is standard input
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    #[command(flatten)]
    pub escape: EscapeArgs,
}

/// The text of a verb that takes token ids, too.
#[derive(clap::Args)]
#[command(next_help_heading = "Input")]
pub struct InputArgs {
    #[command(flatten)]
    pub text: TextArgs,
    /// Read token ids in place of a text, such as 1,2,3
    #[arg(long, value_name = "IDS", conflicts_with_all = ["text", "prompt", "file"], hide_short_help = true)]
    tokens: Option<String>,
}

/// What happens to a newline at the end of a file or a pipe: `echo` and editors add one that is no part of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastNewline {
    Drop,
    Keep,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Input")]
pub struct NewlineArgs {
    /// Keep the newline at the end of a file or of standard input; without this flag one is dropped
    #[arg(long, hide_short_help = true)]
    keep_newline: bool,
}

impl NewlineArgs {
    pub fn last(&self) -> LastNewline {
        if self.keep_newline { LastNewline::Keep } else { LastNewline::Drop }
    }
}

impl TextArgs {
    /// Reads the argument, the file, or standard input unless that is a terminal.
    ///
    /// # Errors
    /// `File` and `Input` where the text cannot be read or is not UTF-8, `Usage` at a wrong escape.
    pub fn read(&self, last: LastNewline) -> Result<Given> {
        if let Some(text) = &self.text {
            return self.escape.text(text, "TEXT").map(Given::Text);
        }
        if let Some(text) = &self.prompt {
            return self.escape.text(text, "--prompt").map(Given::Text);
        }
        match self.file.as_deref() {
            Some(path) if is_standard(path) => piped(all_of_stdin()?, last),
            Some(path) => {
                let file = std::fs::File::open(path).map_err(|e| Error::io(e, path))?;
                read_text(file).and_then(|bytes| utf8(ended(bytes, last))).map(Given::Text).map_err(|e| e.at(path.display()))
            }
            None => stdin()?.map_or(Ok(Given::Nothing), |bytes| piped(bytes, last)),
        }
    }

    /// The same where no text is an error.
    ///
    /// # Errors
    /// As [`read`](Self::read), and `Usage` if there is no text.
    pub fn require(&self, last: LastNewline) -> Result<Given> {
        required(self.read(last)?, "TEXT, --prompt TEXT, --file FILE")
    }
}

impl InputArgs {
    /// Reads the ids, the argument, the file, or standard input unless that is a terminal.
    ///
    /// # Errors
    /// As those of [`TextArgs::read`], and `Usage` if the ids are none.
    pub fn read(&self, last: LastNewline) -> Result<Given> {
        match &self.tokens {
            Some(ids) => parse_ids(ids).map(Given::Tokens).map_err(|e| e.at("--tokens")),
            None => self.text.read(last),
        }
    }

    /// The same where no input is an error.
    ///
    /// # Errors
    /// As [`read`](Self::read), and `Usage` if there is no input.
    pub fn require(&self, last: LastNewline) -> Result<Given> {
        required(self.read(last)?, INPUTS)
    }
}

/// Every way to give input, for an error.
pub const INPUTS: &str = "TEXT, --prompt TEXT, --file FILE, --tokens IDS";

/// Nothing was given, and nobody is there to ask.
pub fn no_input(ways: &str) -> Error {
    Error::usage(format!("expected something to read: {ways}, or standard input"))
}

fn required(given: Given, ways: &str) -> Result<Given> {
    if matches!(given, Given::Nothing) { Err(no_input(ways)) } else { Ok(given) }
}

fn piped(bytes: Vec<u8>, last: LastNewline) -> Result<Given> {
    utf8(ended(bytes, last)).map(Given::Text).map_err(|e| e.at("standard input"))
}

/// A text without the newline at its end, `\n` or `\r\n`, unless that is kept.
fn ended(mut bytes: Vec<u8>, last: LastNewline) -> Vec<u8> {
    if last == LastNewline::Drop && bytes.ends_with(b"\n") {
        bytes.truncate(bytes.len() - if bytes.ends_with(b"\r\n") { 2 } else { 1 });
    }
    bytes
}

/// All of standard input; `None` if it is a terminal.
pub fn stdin() -> Result<Option<Vec<u8>>> {
    if std::io::stdin().is_terminal() { Ok(None) } else { all_of_stdin().map(Some) }
}

/// All of standard input, a terminal's too: up to Ctrl-D.
fn all_of_stdin() -> Result<Vec<u8>> {
    read_text(std::io::stdin().lock()).map_err(|e| e.at("standard input"))
}

/// Reads a text whole.
fn read_text(from: impl Read) -> Result<Vec<u8>> {
    read_at_most(from, MAX_TEXT_BYTES)
}

/// Ids between commas or white space.
pub fn parse_ids(text: &str) -> Result<Vec<u32>> {
    let ids = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|s| !s.is_empty());
    ids.map(|s| s.parse().map_err(|_| Error::usage(format!("expected token ids such as 1,2,3, found {s:?}")))).collect()
}

/// Text without its byte order mark.
pub fn utf8(mut bytes: Vec<u8>) -> Result<String> {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::input(format!("expected UTF-8, found the byte {:#04x} at {at}", e.as_bytes()[at]))
            .hint("convert it first, for example with iconv")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_newline_at_the_end_is_dropped() {
        let dropped = |text: &str| String::from_utf8(ended(text.into(), LastNewline::Drop)).unwrap();
        for (text, want) in [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a\r", "a\r"), ("\n", ""), ("", ""), ("\na", "\na")] {
            assert_eq!(dropped(text), want, "{text:?}");
        }
        assert_eq!(ended(b"a\n".to_vec(), LastNewline::Keep), b"a\n");
    }

    #[test]
    fn ids_and_utf8() {
        assert_eq!(parse_ids("1, 2\n3,").unwrap(), [1, 2, 3]);
        assert!(parse_ids("").unwrap().is_empty());
        assert!(parse_ids("1,x").is_err() && parse_ids("-1").is_err());
        assert_eq!(utf8(b"\xef\xbb\xbfa".to_vec()).unwrap(), "a");
        assert!(utf8(b"ab\xff".to_vec()).unwrap_err().to_string().contains("0xff at 2"));
    }
}
