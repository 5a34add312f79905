//! The folder for files that the server needs for a moment, in the system's folder for temporary files. The server deletes its folder when it ends,
//! and folders of killed servers when it first makes its own.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tempfile::TempDir;
use wingbeat::low_level::weights::new_file::{Lock, try_lock};

const PREFIX: &str = "wingbeat-serve-";

/// The folder of one server, which is made when it is first needed.
#[derive(Default)]
pub struct ScratchFolder(Mutex<Option<Folder>>);

struct Folder {
    folder: TempDir,
    /// A file in the folder that this process has locked. The lock ends when the process ends, even if it is killed.
    _lock: File,
}

impl ScratchFolder {
    /// Returns the path of the folder.
    ///
    /// # Errors
    /// The error with which the folder cannot be made.
    pub fn path(&self) -> io::Result<PathBuf> {
        self.path_in(&std::env::temp_dir())
    }

    fn path_in(&self, parent: &Path) -> io::Result<PathBuf> {
        let mut folder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A program that cleans up old temporary files may have deleted the folder.
        if let Some(made) = folder.as_ref().filter(|made| made.folder.path().is_dir()) {
            return Ok(made.folder.path().into());
        }
        sweep(parent);
        let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = File::create(made.path().join("lock"))?;
        try_lock(&lock);
        let path = made.path().into();
        *folder = Some(Folder { folder: made, _lock: lock });
        Ok(path)
    }
}

/// Deletes the folders of servers that no longer run. Errors are ignored, because the folders may belong to another user.
fn sweep(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        // A folder without a lock may be about to get it.
        let lock = OpenOptions::new().write(true).open(entry.path().join("lock"));
        if lock.is_ok_and(|lock| try_lock(&lock) == Lock::Taken) {
            let removed = std::fs::remove_dir_all(entry.path());
            log::debug!("{}: files of a killed server, removed: {removed:?}", entry.path().display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_killed_server_are_deleted_and_those_of_a_living_one_are_not() {
        let parent = tempfile::tempdir().unwrap();
        let [living, killed] = [(); 2].map(|()| ScratchFolder::default());
        let path = living.path_in(parent.path()).unwrap();
        assert_eq!(living.path_in(parent.path()).unwrap(), path);
        std::fs::write(path.join("state"), "x").unwrap();
        let left = killed.path_in(parent.path()).unwrap();
        std::fs::write(left.join("state"), "x").unwrap();
        // The process has ended, but its destructors have not run.
        let Folder { folder, _lock } = killed.0.into_inner().unwrap().unwrap();
        assert_eq!(folder.keep(), left);
        drop(_lock);
        let other = ScratchFolder::default();
        other.path_in(parent.path()).unwrap();
        assert!(path.join("state").exists() && !left.exists());
        std::fs::remove_dir_all(&path).unwrap();
        assert_ne!(living.path_in(parent.path()).unwrap(), path);
        drop((living, other));
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
