//! The exit code of the program. The standard library's own type does not expose its number.

use std::process;

/// An exit code, 0 to 255.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitCode(u8);

impl ExitCode {
    /// The program has done its work.
    pub const SUCCESS: ExitCode = ExitCode(0);

    /// Returns the number of the code.
    pub fn number(self) -> u8 {
        self.0
    }
}

impl From<u8> for ExitCode {
    fn from(number: u8) -> ExitCode {
        ExitCode(number)
    }
}

impl From<ExitCode> for process::ExitCode {
    fn from(code: ExitCode) -> process::ExitCode {
        process::ExitCode::from(code.0)
    }
}
