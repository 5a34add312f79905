//! Reads messages from a pipe or a file, one message per line.

use super::editor::EditorInput;
use crate::lines::{LineReader, MAX_BYTES, NextLine, NumberedLine, STANDARD};
use crate::prompt::utf8;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wingbeat::error::{Error, Result};

/// The time between two checks of the stop flag while no line comes.
const PATIENCE: Duration = Duration::from_millis(50);

/// A reader of messages from standard input that is not a terminal.
pub struct Pipe {
    lines: LineReader,
}

impl Pipe {
    pub fn new() -> Result<Pipe> {
        Ok(Pipe { lines: LineReader::open(Path::new(STANDARD))? })
    }

    /// Reads the next message. Returns `EditorInput::Interrupted` if the stop flag `stop` is set before a message comes.
    ///
    /// # Errors
    /// `File` if standard input cannot be read.
    pub fn read(&mut self, stop: &AtomicBool) -> Result<EditorInput> {
        loop {
            let next = self.lines.next(PATIENCE)?;
            if stop.load(Ordering::Relaxed) {
                return Ok(EditorInput::Interrupted);
            }
            let NumberedLine { number, bytes, .. } = match next {
                NextLine::Line(line) => line,
                NextLine::Wait => continue,
                NextLine::End => return Ok(EditorInput::End),
            };
            let text = match bytes {
                Some(bytes) => utf8(bytes),
                None => Err(Error::input(format!("expected a line of at most {MAX_BYTES} bytes, found a longer line"))),
            };
            return Ok(match text {
                Ok(text) => EditorInput::Line(text.trim_end_matches('\r').to_string()),
                Err(e) => EditorInput::Wrong(e.at(format!("standard input, line {number}"))),
            });
        }
    }
}
