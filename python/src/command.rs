//! The program `wingbeat` in Python's process.

use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs the program with its name and its arguments, and ends the process with the program's exit code.
#[pyfunction]
pub fn run(py: Python<'_>, args: Vec<OsString>) {
    let code = py.detach(|| wingbeat_cli::run(args));
    // Python has nothing to clean up: the process has run nothing but the program.
    std::process::exit(code.number().into());
}
