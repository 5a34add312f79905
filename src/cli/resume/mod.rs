//! Results that a killed run leaves and the next run continues: a file of JSON lines, a lock beside the file, and a record of the settings.
//!
//! [`Found::at`] locks the file and reads which lines are done, [`RunFile::settle`] compares the settings, and [`Found::continued`] makes a
//! [`Results`], which appends lines.

mod id;
mod lock;
mod results;
mod run_file;

pub use id::Id;
pub use results::{Errors, Found, Results, Was};
pub use run_file::{RunFile, hash_of_checkpoint, hash_of_parts};
