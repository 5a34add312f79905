//! The program `wingbeat`. Its code is in the library's module `cli`.

use std::process::ExitCode;

/// Reports a failed allocation as one error line and an exit code.
#[global_allocator]
static ALLOCATOR: wingbeat::cli::Allocator = wingbeat::cli::Allocator;

fn main() -> ExitCode {
    wingbeat::cli::run(std::env::args_os().collect()).into()
}
