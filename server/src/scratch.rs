//! Temporary files that older servers left when they were killed. Such a file has the text of a caller. This version keeps files of states in memory
//! and writes no temporary files.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;
use wingbeat::low_level::weights::new_file::{Lock, try_lock};

/// The beginning of the names of the folders that older servers made.
const PREFIX: &str = "wingbeat-serve-";
/// The age from which a folder without a file `lock` counts as left behind. A younger folder may belong to a server that is about to lock it.
const OLD: Duration = Duration::from_secs(60);

/// Deletes files that killed servers left in the system's folder for temporary files.
pub fn sweep() {
    sweep_in(&std::env::temp_dir());
}

/// Deletes the folders of servers that no longer run. Errors are only logged, because the folders may belong to another user.
fn sweep_in(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if is_ours && entry.file_type().is_ok_and(|kind| kind.is_dir()) && is_left(&entry.path()) {
            let removed = std::fs::remove_dir_all(entry.path());
            log::debug!("{}: files of a killed server, removed: {removed:?}", entry.path().display());
        }
    }
}

/// Returns whether no server uses a folder. A server holds a lock on the file `lock` in its folder. The lock ends with the process.
fn is_left(folder: &Path) -> bool {
    match OpenOptions::new().write(true).open(folder.join("lock")) {
        Ok(lock) => try_lock(&lock) == Lock::Taken,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let modified = folder.metadata().and_then(|found| found.modified());
            modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > OLD)) && has_only_temporary(folder)
        }
        Err(_) => false,
    }
}

/// Returns whether a folder has nothing but folders of `tempfile`. Any other folder may belong to a user who chose its name.
fn has_only_temporary(folder: &Path) -> bool {
    let is_temporary = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(".tmp")) && entry.path().is_dir())
    };
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.all(is_temporary))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::time::SystemTime;

    #[test]
    fn files_of_a_killed_server_are_deleted_and_those_of_a_living_one_are_not() {
        let parent = tempfile::tempdir().unwrap();
        let folder = |name: &str, has_lock: bool, age: u64| {
            let path = parent.path().join(name);
            std::fs::create_dir(&path).unwrap();
            let inner = path.join(if name == "wingbeat-serve-states" { "mine" } else { ".tmp123" });
            std::fs::create_dir(&inner).unwrap();
            std::fs::write(inner.join("state"), "private").unwrap();
            let lock = has_lock.then(|| File::create(path.join("lock")).unwrap());
            File::open(&path).unwrap().set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
            lock
        };
        let living = folder("wingbeat-serve-living", true, 3600).unwrap();
        assert!(try_lock(&living) == Lock::Taken);
        folder("wingbeat-serve-killed", true, 0);
        folder("wingbeat-serve-without-lock", false, 61);
        folder("wingbeat-serve-beginning", false, 0);
        folder("wingbeat-serve-states", false, 3600);
        folder("other", false, 3600);
        sweep_in(parent.path());
        let mut left: Vec<_> = std::fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["other", "wingbeat-serve-beginning", "wingbeat-serve-living", "wingbeat-serve-states"]);
        drop(living);
        sweep_in(parent.path());
        assert!(!parent.path().join("wingbeat-serve-living").exists());
    }
}
