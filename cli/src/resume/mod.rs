//! Results of `batch` that a later run can continue, for example after a kill. Three files belong to a run: the results as JSON lines, a
//! lock, and a record of the settings.
//!
//! [`FoundResults::at`] locks the file of results and reads which lines are done. [`RunFile::settle`] compares the settings of both runs.
//! [`FoundResults::continued`] returns [`Results`], to which new results are appended.

mod id;
mod lock;
mod results;
mod run_file;

pub use id::Id;
pub use results::{EarlierResult, Errors, FoundResults, Results};
pub use run_file::{RunFile, hash_of_checkpoint, hash_of_parts};
