//! The program: everything is in `cli`.

use std::process::ExitCode;

/// Out of memory is a line and an exit code.
#[global_allocator]
static ALLOCATOR: wingbeat::cli::Allocator = wingbeat::cli::Allocator;

fn main() -> ExitCode {
    wingbeat::cli::run()
}
