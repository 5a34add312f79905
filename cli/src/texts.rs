//! Reads the texts of subcommands that take several texts: arguments, the lines of a file, or the lines of standard input.

use super::lines::is_standard;
use super::prompt::{read_text, stdin, utf8};
use clap::ValueHint;
use serde_json::Value;
use std::path::PathBuf;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::{short, with_place};

/// The sources of texts: arguments, a file or standard input.
#[derive(clap::Args)]
#[command(next_help_heading = "Input")]
pub struct TextsArgs {
    /// Read one text per line from FILE; - is standard input
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// Read each line as a JSON object, and take the text from its field NAME
    #[arg(long, value_name = "NAME")]
    field: Option<String>,
}

/// A text, and its place in the input for errors, such as `texts.txt:3`.
pub struct PlacedText {
    pub place: String,
    pub text: String,
}

impl TextsArgs {
    /// Returns the texts `given` as arguments, or else the lines of `--file` or of standard input. `what` names one text, such as `document`.
    ///
    /// # Errors
    /// `Usage` if arguments are given together with `--file` or `--field`, or if no text is given. `File` if the file cannot be read.
    /// `Input` if the input is not UTF-8, or if a line has no text in the field that `--field` names.
    pub fn read(&self, given: Vec<String>, what: &str) -> Result<Vec<PlacedText>> {
        let none = || Error::usage(format!("expected at least one {what}: give arguments, --file FILE, or lines on standard input"));
        if !given.is_empty() {
            if self.file.is_some() || self.field.is_some() {
                return Err(Error::usage(format!("{what}s given as arguments cannot be used with --file or --field")));
            }
            return Ok(given.into_iter().enumerate().map(|(i, text)| PlacedText { place: format!("{what} {}", i + 1), text }).collect());
        }
        let (place, bytes) = match self.file.as_deref().filter(|path| !is_standard(path)) {
            Some(path) => {
                let file = std::fs::File::open(path).map_err(|e| Error::io(e, path))?;
                (path.display().to_string(), read_text(file).map_err(|e| e.at(path.display()))?)
            }
            None => ("standard input".to_string(), stdin()?.ok_or_else(none)?),
        };
        let text = utf8(bytes).map_err(|e| e.at(&place))?;
        let line = |(i, line): (usize, &str)| {
            let place = format!("{place}:{}", i + 1);
            let text = self.field.as_ref().map_or_else(|| Ok(line.to_string()), |name| field(line, name).map_err(|e| e.at(&place)))?;
            Ok(PlacedText { place, text })
        };
        let texts = text.lines().enumerate().map(line).collect::<Result<Vec<_>>>()?;
        if texts.is_empty() { Err(none().at(place)) } else { Ok(texts) }
    }
}

/// Returns the text in a field of a JSON object.
fn field(line: &str, name: &str) -> Result<String> {
    let object: Value = serde_json::from_str(line).map_err(|e| Error::input(format!("expected a JSON object: {}", with_place(&e))))?;
    let text = object.get(name).and_then(Value::as_str);
    text.map(str::to_string).ok_or_else(|| Error::input(format!("expected a text in the field {:?}, found no text", short(name, 40))))
}
