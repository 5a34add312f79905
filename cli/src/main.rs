//! The program `wingbeat`. Its code is in the library `wingbeat_cli`.

use std::process::ExitCode;

/// Reports a failed allocation as one error line and an exit code.
#[global_allocator]
static ALLOCATOR: wingbeat_cli::Allocator = wingbeat_cli::Allocator;

fn main() -> ExitCode {
    wingbeat_cli::run(std::env::args_os().collect()).into()
}
