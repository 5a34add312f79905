//! Messages without a terminal: one a line, as they come.

use super::editor::Input;
use crate::cli::lines::{Lines, MAX_BYTES, Next, Numbered, STANDARD};
use crate::cli::prompt::utf8;
use crate::error::{Error, Result};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long to wait for a line before looking whether somebody said stop.
const PATIENCE: Duration = Duration::from_millis(50);

/// Standard input, which is no terminal.
pub struct Pipe {
    lines: Lines,
}

impl Pipe {
    pub fn new() -> Result<Pipe> {
        Ok(Pipe { lines: Lines::open(Path::new(STANDARD))? })
    }

    /// The next message; `Interrupted` where somebody says stop before it is there.
    ///
    /// # Errors
    /// `Input` where nothing more can be read.
    pub fn read(&mut self, stop: &AtomicBool) -> Result<Input> {
        loop {
            let next = self.lines.next(PATIENCE)?;
            if stop.load(Ordering::Relaxed) {
                return Ok(Input::Interrupted);
            }
            let Numbered { number, bytes, .. } = match next {
                Next::Line(line) => line,
                Next::Wait => continue,
                Next::End => return Ok(Input::End),
            };
            let text = match bytes {
                Some(bytes) => utf8(bytes),
                None => Err(Error::input(format!("expected a line of at most {MAX_BYTES} bytes, found more"))),
            };
            return Ok(match text {
                Ok(text) => Input::Line(text.trim_end_matches('\r').to_string()),
                Err(e) => Input::Wrong(e.at(format!("standard input, line {number}"))),
            });
        }
    }
}
