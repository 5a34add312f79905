//! Locks a file of results, so that only one process at a time writes results. For the results `OUT.jsonl`, the locked file is
//! `OUT.jsonl.lock`.
//!
//! The system releases the lock when the process ends, even if the process is killed. The file of results itself is not locked: `--retry-errors`
//! replaces that file, and on Windows other programs could not read a locked file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::weights::new_file::{self, folder_of, try_lock};

/// The text at the beginning of a lock file. The process id follows this text.
const MARK: &str = "wingbeat batch, process ";

/// The number of attempts to lock the file. An attempt fails if another process removes the lock file first.
const ATTEMPTS: usize = 16;

/// A lock that this process holds. Dropping this value releases the lock.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Locks a file of results, which need not exist yet. Returns `None` and logs a warning if the file system has no locks, or if the lock
    /// file cannot be opened.
    ///
    /// # Errors
    /// `File` if another process holds the lock, or if a file that is not a lock file has the path of the lock file. `File` if the folder of
    /// the results does not exist.
    pub fn take(results: &Path) -> Result<Option<Lock>> {
        let path = beside(results, "lock")?;
        for _ in 0..ATTEMPTS {
            if std::fs::metadata(&path).is_ok_and(|m| !m.is_file()) {
                return Err(other_file(&path));
            }
            let file = match OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path) {
                Ok(file) => file,
                Err(e) => return Ok(without(&path, e)),
            };
            match try_lock(&file) {
                new_file::Lock::Taken => {}
                new_file::Lock::Held => return Err(held(results, &path)),
                new_file::Lock::Unknown => return Ok(without(&path, "the file system has no locks")),
            }
            if is_at(&file, &path) {
                return Lock { file, path }.marked().map(Some);
            }
        }
        Err(held(results, &path))
    }

    /// Writes the id of this process to the lock file.
    ///
    /// # Errors
    /// `File` if the file has content that is not from a lock file.
    fn marked(mut self) -> Result<Lock> {
        let mut found = [0; MARK.len()];
        let n = self.file.read(&mut found).map_err(|e| Error::io(e, &self.path))?;
        if !MARK.as_bytes().starts_with(&found[..n]) {
            return Err(other_file(&self.path));
        }
        let written = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        let written = written.and_then(|_| writeln!(self.file, "{MARK}{}", std::process::id()));
        // Continue after a failed write: only error messages use the process id.
        written.unwrap_or_else(|e| log::debug!("{}: {e}", self.path.display()));
        Ok(self)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Remove the file while it is still locked. Another process may already have opened this file. That process then sees that `path` names no
        // file or another file (`is_at`), and tries again. On Windows no process could see this, so the file stays.
        let is_ours = std::fs::read(&self.path).is_ok_and(|text| text.starts_with(MARK.as_bytes()));
        if cfg!(unix) && is_ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns the path of `results` with `.` and `extension` appended: `OUT.jsonl.lock`. If `results` is a link, its target determines the
/// path.
///
/// # Errors
/// `File` if the folder of the results does not exist.
pub fn beside(results: &Path, extension: &str) -> Result<PathBuf> {
    let io = |e| Error::io(e, results);
    let real = match results.canonicalize() {
        Ok(real) => real,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            folder_of(results).canonicalize().map_err(io)?.join(results.file_name().unwrap_or_default())
        }
        Err(e) => return Err(io(e)),
    };
    let mut name = real.into_os_string();
    name.push(".");
    name.push(extension);
    Ok(name.into())
}

/// Returns whether `path` still names the open file `file`. The lock's previous owner may have removed the file after this process opened it.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |m: std::fs::Metadata| (m.dev(), m.ino());
    file.metadata().map(id).ok() == std::fs::metadata(path).map(id).ok()
}

/// Returns true: lock files are never removed on this system.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

fn held(results: &Path, path: &Path) -> Error {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let process: String = text.strip_prefix(MARK).unwrap_or_default().chars().take_while(char::is_ascii_digit).take(20).collect();
    let who = if process.is_empty() { String::new() } else { format!(", process {process},") };
    Error::file(format!("another run of batch{who} is writing to this file"))
        .at(results.display())
        .hint("wait for that run, or name another result file with -o")
}

fn other_file(path: &Path) -> Error {
    Error::file("expected a lock file of batch, found a file with other contents")
        .at(path.display())
        .hint("move this file away, or name another result file with -o")
}

fn without(path: &Path, why: impl fmt::Display) -> Option<Lock> {
    log::warn!("{}: the results are not locked, so a second run could write to the same file: {why}", path.display());
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_run_is_refused_until_the_first_ends() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("out.jsonl");
        let first = Lock::take(&results).unwrap().unwrap();
        let said = Lock::take(&results).unwrap_err().to_string();
        assert!(
            said.contains("out.jsonl: another run of batch") && (cfg!(windows) || said.contains(&std::process::id().to_string())),
            "{said}"
        );
        // A link to the same results has the same lock.
        #[cfg(unix)]
        {
            std::fs::write(&results, "").unwrap();
            let link = folder.path().join("link");
            std::os::unix::fs::symlink("out.jsonl", &link).unwrap();
            assert!(Lock::take(&link).is_err());
        }
        drop(first);
        assert!(!cfg!(unix) || !folder.path().join("out.jsonl.lock").exists());
        // A killed run leaves its lock file.
        std::fs::write(folder.path().join("out.jsonl.lock"), format!("{MARK}1\n")).unwrap();
        drop(Lock::take(&results).unwrap().unwrap());
        assert!(Lock::take(&folder.path().join("absent/out.jsonl")).unwrap_err().to_string().contains("absent"));
    }

    #[test]
    fn a_file_that_is_no_lock_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl.lock");
        std::fs::write(&path, "mine").unwrap();
        assert!(Lock::take(&folder.path().join("out.jsonl")).unwrap_err().to_string().contains("found a file with other contents"));
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }
}
