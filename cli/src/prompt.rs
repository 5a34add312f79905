//! Reads the input of a subcommand: an argument, a file, token ids, or standard input. Text is UTF-8; a byte order mark is removed.

use super::TYPED;
use super::escape::EscapeArgs;
use super::lines::is_standard;
use super::output::say;
use clap::ValueHint;
use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::{read_at_most, short, without_mark};

/// The maximum length of a text in bytes. Without a limit, an endless pipe would fill the memory.
const MAX_TEXT_BYTES: u64 = 1 << 30;

/// The input that the user gave to a subcommand.
pub enum GivenInput {
    Text(String),
    Tokens(Vec<u32>),
    /// The user gave no input, and standard input is a terminal.
    Nothing,
}

impl GivenInput {
    /// Returns the given token ids, or the ids into which `encode` converts the text. Without input, the vector is empty.
    pub fn tokens(self, encode: impl FnOnce(&str) -> Result<Vec<u32>>) -> Result<Vec<u32>> {
        match self {
            GivenInput::Text(text) => encode(&text),
            GivenInput::Tokens(tokens) => Ok(tokens),
            GivenInput::Nothing => Ok(Vec::new()),
        }
    }
}

/// The options for the text that a subcommand reads: an argument, a flag, a file or standard input.
#[derive(clap::Args)]
#[command(next_help_heading = "Input")]
pub struct TextArgs {
    /// Input text [default: read from standard input, if no flag gives the input]
    #[arg(conflicts_with_all = ["prompt", "file"], display_order = 0)]
    text: Option<String>,
    /// Input text, in place of the argument TEXT; after this flag, TEXT may begin with a hyphen
    #[arg(short, long, visible_alias = "text", value_name = "TEXT", allow_hyphen_values = true, conflicts_with = "file")]
    prompt: Option<String>,
    /// Read the input text from FILE; - is standard input
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    #[command(flatten)]
    pub escape: EscapeArgs,
}

/// The options for the input of a subcommand that reads a text or token ids.
#[derive(clap::Args)]
#[command(next_help_heading = "Input")]
pub struct InputArgs {
    #[command(flatten)]
    pub text: TextArgs,
    /// Input as token ids, such as 1,2,3, in place of a text
    #[arg(long, value_name = "IDS", conflicts_with_all = ["text", "prompt", "file"], hide_short_help = true)]
    tokens: Option<String>,
}

/// Determines whether a newline at the end of a file or a pipe is a part of the text. `echo` and editors add such a newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastNewline {
    Drop,
    Keep,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Input")]
pub struct NewlineArgs {
    /// Keep the newline at the end of a file or of standard input; by default, one newline at the end is dropped
    #[arg(long, hide_short_help = true)]
    keep_newline: bool,
}

impl NewlineArgs {
    pub fn last(&self) -> LastNewline {
        if self.keep_newline { LastNewline::Keep } else { LastNewline::Drop }
    }
}

impl TextArgs {
    /// Returns the text of the argument or of `--prompt`, or the text in the file of `--file`. Without these three, reads standard input, or
    /// returns `GivenInput::Nothing` if standard input is a terminal.
    ///
    /// # Errors
    /// `File` if the text cannot be read, `Input` if the text is too long or not UTF-8, `Usage` if an escape is wrong.
    pub fn read(&self, last: LastNewline) -> Result<GivenInput> {
        if let Some(text) = &self.text {
            note_file(text);
            return self.escape.text(text, "TEXT").map(GivenInput::Text);
        }
        if let Some(text) = &self.prompt {
            return self.escape.text(text, flag(TYPED.get().map_or(&[], Vec::as_slice))).map(GivenInput::Text);
        }
        match self.file.as_deref() {
            Some(path) if is_standard(path) => piped(all_of_stdin()?, last),
            Some(path) => {
                let file = std::fs::File::open(path).map_err(|e| Error::io(e, path))?;
                read_text(file).and_then(|bytes| utf8(ended(bytes, last))).map(GivenInput::Text).map_err(|e| e.at(path.display()))
            }
            None => stdin()?.map_or(Ok(GivenInput::Nothing), |bytes| piped(bytes, last)),
        }
    }

    /// Reads the text as [`read`](Self::read) does. A missing text is an error.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read), and `Usage` if no text is given.
    pub fn require(&self, last: LastNewline) -> Result<GivenInput> {
        required(self.read(last)?, "TEXT, --prompt TEXT, --file FILE")
    }
}

impl InputArgs {
    /// Returns the token ids of `--tokens`. Without this flag, reads a text as [`TextArgs::read`] does.
    ///
    /// # Errors
    /// The errors of [`TextArgs::read`], and `Usage` if an id is not a number.
    pub fn read(&self, last: LastNewline) -> Result<GivenInput> {
        match &self.tokens {
            Some(ids) => parse_ids(ids).map(GivenInput::Tokens).map_err(|e| e.at("--tokens")),
            None => self.text.read(last),
        }
    }

    /// Returns the path of the input, or `None` for a text, token ids and standard input.
    pub fn file(&self) -> Option<&Path> {
        self.text.file.as_deref().filter(|path| !is_standard(path))
    }

    /// Returns the name of the input: the path of its file, or `text`.
    pub fn name(&self) -> String {
        self.file().map_or_else(|| "text".into(), |path| path.display().to_string())
    }

    /// Returns the place of an error in the input: the path of the file, `--tokens` or `text`.
    pub fn place(&self) -> String {
        if self.tokens.is_some() { "--tokens".into() } else { self.name() }
    }

    /// Reads the input as [`read`](Self::read) does. A missing input is an error.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read), and `Usage` if no input is given.
    pub fn require(&self, last: LastNewline) -> Result<GivenInput> {
        required(self.read(last)?, INPUTS)
    }
}

/// Prints a note if the text is also the name of a file, because the file is not read.
fn note_file(text: &str) {
    if !text.contains(char::is_whitespace) && Path::new(text).is_file() {
        say(format_args!("note: the text is {:?} itself; `--file {text}` reads the file of this name", short(text, 60)));
    }
}

/// The arguments and flags that give input, as an error lists them.
pub const INPUTS: &str = "TEXT, --prompt TEXT, --file FILE, --tokens IDS";

/// Returns the error for missing input. `ways` lists the arguments and flags that give input.
pub fn no_input(ways: &str) -> Error {
    Error::usage(format!("nothing to read: give {ways}, or a text on standard input"))
}

fn required(given: GivenInput, ways: &str) -> Result<GivenInput> {
    if matches!(given, GivenInput::Nothing) { Err(no_input(ways)) } else { Ok(given) }
}

fn piped(bytes: Vec<u8>, last: LastNewline) -> Result<GivenInput> {
    utf8(ended(bytes, last)).map(GivenInput::Text).map_err(|e| e.at("standard input"))
}

/// Removes `\n` or `\r\n` at the end of a text, unless `last` is `Keep`.
fn ended(mut bytes: Vec<u8>, last: LastNewline) -> Vec<u8> {
    if last == LastNewline::Drop && bytes.ends_with(b"\n") {
        bytes.truncate(bytes.len() - if bytes.ends_with(b"\r\n") { 2 } else { 1 });
    }
    bytes
}

/// Returns the flag of the prompt as the user wrote it in `args`: `--text` is another name of `--prompt`.
pub fn flag(args: &[OsString]) -> &'static str {
    let is_text = |arg: &OsString| arg.to_str().is_some_and(|arg| arg == "--text" || arg.starts_with("--text="));
    if args.iter().any(is_text) { "--text" } else { "--prompt" }
}

/// Reads standard input to its end. Returns `None` if standard input is a terminal.
pub fn stdin() -> Result<Option<Vec<u8>>> {
    if std::io::stdin().is_terminal() { Ok(None) } else { all_of_stdin().map(Some) }
}

/// Reads standard input to its end. At a terminal, Ctrl-D ends the input.
fn all_of_stdin() -> Result<Vec<u8>> {
    read_text(std::io::stdin().lock()).map_err(|e| e.at("standard input"))
}

/// Reads a text to its end. A text of more than [`MAX_TEXT_BYTES`] bytes is an error.
pub fn read_text(from: impl Read) -> Result<Vec<u8>> {
    read_at_most(from, MAX_TEXT_BYTES)
}

/// Reads a text file.
///
/// # Errors
/// `File` if the file cannot be read, `Input` if the text is not UTF-8 or longer than [`MAX_TEXT_BYTES`].
pub fn text_file(path: &Path) -> Result<String> {
    let file = std::fs::File::open(path).map_err(|e| Error::io(e, path))?;
    read_text(file).and_then(utf8).map_err(|e| e.at(path.display()))
}

/// Parses token ids that are separated by commas or white space.
pub fn parse_ids(text: &str) -> Result<Vec<u32>> {
    let ids = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|s| !s.is_empty());
    ids.map(|s| s.parse().map_err(|_| Error::usage(format!("expected token ids such as 1,2,3, found {s:?}")))).collect()
}

/// Converts bytes in UTF-8 to a text and removes a byte order mark.
pub fn utf8(bytes: Vec<u8>) -> Result<String> {
    if is_utf16(&bytes) {
        return Err(utf16());
    }
    String::from_utf8(without_mark(bytes)).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::input(format!("expected UTF-8 text, found the invalid byte {:#04x} at byte {at}", e.as_bytes()[at])).hint(CONVERT)
    })
}

const CONVERT: &str = "convert the text to UTF-8 first, for example with iconv";

/// Returns whether a text begins like UTF-16: with a byte order mark, or with two ASCII characters of two bytes each.
pub fn is_utf16(text: &[u8]) -> bool {
    matches!(text, [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 1..=0x7f, 0, 1..=0x7f, ..] | [1..=0x7f, 0, 1..=0x7f, 0, ..])
}

/// Returns the error for a text in UTF-16.
pub fn utf16() -> Error {
    Error::input("expected UTF-8 text, found UTF-16").hint(CONVERT)
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
        assert!(utf8(b"ab\xff".to_vec()).unwrap_err().to_string().contains("0xff at byte 2"));
    }
}
