//! The binding of wingbeat for Python: the module `wingbeat._native`.
//!
//! The package `wingbeat` (python/wingbeat) is the API for users; it calls this module. Importing the module starts nothing: no thread, no logger, no
//! signal handler.

mod bridge;
mod command;
mod errors;
mod events;
mod generation;
mod load;
mod logs;
mod model;
mod options;
mod process;
mod reading;
mod vocab;

use pyo3::prelude::*;

#[global_allocator]
static ALLOCATOR: wingbeat_cli::Allocator = wingbeat_cli::Allocator;

#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::command::run;
    #[pymodule_export]
    use super::generation::Generation;
    #[pymodule_export]
    use super::model::Model;
    #[pymodule_export]
    use super::process::at_exit;
    #[pymodule_export]
    use super::vocab::Vocab;
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
