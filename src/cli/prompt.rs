//! Where text comes from: an argument, a file, token ids, or stdin. UTF-8, without its byte order mark.

use super::model_options::no_input;
use crate::error::{Error, Result, read_at_most};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

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

/// The first that was given: ids, a file, an argument; else stdin, unless somebody would have to type it.
pub fn read(text: Option<String>, file: Option<&Path>, tokens: Option<&str>) -> Result<Given> {
    if let Some(ids) = tokens {
        return Ok(Given::Tokens(parse_ids(ids).map_err(|e| e.at("--tokens"))?));
    }
    if let Some(path) = file {
        let file = std::fs::File::open(path).map_err(|e| Error::io(e, path))?;
        return read_text(file).and_then(utf8).map(Given::Text).map_err(|e| e.at(path.display()));
    }
    if let Some(text) = text {
        return Ok(Given::Text(text));
    }
    match stdin()? {
        Some(bytes) => utf8(bytes).map(Given::Text).map_err(|e| e.at("standard input")),
        None => Ok(Given::Nothing),
    }
}

/// A text that a verb reads whole.
#[derive(clap::Args)]
pub struct TextArgs {
    /// The text; also from standard input
    #[arg(long, conflicts_with_all = ["file", "tokens"])]
    text: Option<String>,
    /// Read the text from a file
    #[arg(short, long, value_name = "FILE", conflicts_with = "tokens")]
    file: Option<PathBuf>,
    /// The text as token ids
    #[arg(long, value_name = "IDS")]
    tokens: Option<String>,
}

impl TextArgs {
    /// What was given; nothing is no input.
    pub fn require(&self) -> Result<Given> {
        match read(self.text.clone(), self.file.as_deref(), self.tokens.as_deref())? {
            Given::Nothing => Err(no_input("--text TEXT, -f FILE, --tokens IDS")),
            given => Ok(given),
        }
    }
}

/// All of stdin; none where it is a terminal.
pub fn stdin() -> Result<Option<Vec<u8>>> {
    let input = std::io::stdin();
    if input.is_terminal() {
        return Ok(None);
    }
    read_text(input.lock()).map(Some).map_err(|e| e.at("standard input"))
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
    fn ids_and_utf8() {
        assert_eq!(parse_ids("1, 2\n3,").unwrap(), [1, 2, 3]);
        assert!(parse_ids("").unwrap().is_empty());
        assert!(parse_ids("1,x").is_err() && parse_ids("-1").is_err());
        assert_eq!(utf8(b"\xef\xbb\xbfa".to_vec()).unwrap(), "a");
        assert!(utf8(b"ab\xff".to_vec()).unwrap_err().to_string().contains("0xff at 2"));
    }
}
