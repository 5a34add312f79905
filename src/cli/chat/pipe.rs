//! Messages without a terminal: one a line, as they come.

use super::editor::Input;
use crate::cli::prompt::utf8;
use crate::error::{Error, Result};
use std::io::{BufRead, stdin};

/// Standard input, which is no terminal.
#[derive(Default)]
pub struct Pipe {
    n_lines: usize,
}

impl Pipe {
    /// The next message.
    ///
    /// # Errors
    /// `Input` where nothing more can be read.
    pub fn read(&mut self) -> Result<Input> {
        let mut bytes = Vec::new();
        let n = stdin().lock().read_until(b'\n', &mut bytes).map_err(|e| Error::input(e.to_string()).at("standard input"))?;
        if n == 0 {
            return Ok(Input::End);
        }
        self.n_lines += 1;
        Ok(match utf8(bytes) {
            Ok(text) => Input::Line(text.trim_end_matches(['\n', '\r']).to_string()),
            Err(e) => Input::Wrong(e.at(format!("standard input, line {}", self.n_lines))),
        })
    }
}
