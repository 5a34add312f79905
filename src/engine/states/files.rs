//! The files of named states.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The extension of state files.
pub const EXTENSION: &str = ".state";

/// The time of the last change and the length of a file.
pub type FileVersion = (SystemTime, u64);

/// Returns the version of a file, or `None` if the file cannot be read.
pub fn version(path: &Path) -> Option<FileVersion> {
    let file = fs::metadata(path).ok()?;
    Some((file.modified().ok()?, file.len()))
}

/// Returns the path of the file of a damaged state.
pub fn aside(path: &Path) -> PathBuf {
    path.with_extension("state.damaged")
}
