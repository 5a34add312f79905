//! Files that interrupted downloads left. A file `blobs/HASH.incomplete` can be continued. A file `blobs/HASH.XXXXXXXX.incomplete` of
//! huggingface_hub 2.4 or later is never continued. If wingbeat started the download, the lock file contains the name of the downloaded file.

use super::address::Address;
use super::cache::Cache;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::weights::new_file::{Lock, try_lock};

/// The extension of the name of an incomplete blob.
pub const INCOMPLETE: &str = "incomplete";
/// The maximum size in bytes of a lock file that is read. A lock file contains only a file's name.
const LONGEST_NAME: u64 = 1000;

/// A file that an interrupted download left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partial {
    /// The address of the file, or of the repository if the file is unknown.
    pub address: Address,
    pub path: PathBuf,
    pub size_bytes: u64,
    lock: PathBuf,
}

impl Partial {
    /// Returns whether both files belong to the same blob. Such files share one lock.
    pub fn has_lock_of(&self, other: &Partial) -> bool {
        self.lock == other.lock
    }

    /// Locks the blob, so that no process continues the download. Returns `None` if the lock file does not exist or cannot be opened.
    ///
    /// # Errors
    /// `File` if a process downloads the file now.
    pub fn hold(&self) -> Result<Option<File>> {
        let Ok(file) = opened(&self.lock) else { return Ok(None) };
        if try_lock(&file) == Lock::Held {
            let e = Error::file("another process downloads this file").at(&self.address);
            return Err(e.hint("wait until it ends, or stop it"));
        }
        Ok(Some(file))
    }
}

impl Cache {
    /// Returns the files that interrupted downloads of a repository left. If the address names a file, returns only files that are known to be parts
    /// of this file.
    pub fn partials(&self, address: &Address) -> Vec<Partial> {
        let repository = Address { file: None, ..address.clone() };
        let entries = fs::read_dir(self.folder(address).join("blobs")).into_iter().flatten().flatten();
        let found = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let hash = hash_of(&name)?;
            // `metadata` does not follow links, so this skips links and pipes.
            let size_bytes = entry.metadata().ok().filter(|m| m.is_file())?.len();
            let lock = self.lock_of(address, hash);
            let file = opened(&lock).ok().and_then(|_| fs::read_to_string(&lock).ok());
            let address = file.and_then(|file| repository.with_file(&file).ok()).unwrap_or_else(|| repository.clone());
            Some(Partial { address, path: entry.path(), size_bytes, lock })
        });
        let mut found: Vec<Partial> = found.filter(|partial| address.file.is_none() || partial.address.file == address.file).collect();
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found
    }
}

/// Returns the hash in the name of a partial file, or `None` for other names.
fn hash_of(name: &str) -> Option<&str> {
    let stem = name.strip_suffix(INCOMPLETE)?.strip_suffix('.')?;
    let (hash, process) = stem.split_once('.').unwrap_or((stem, "0"));
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    (is_plain(hash) && is_plain(process)).then_some(hash)
}

/// Opens a lock for reading, if it is a small file.
fn opened(lock: &Path) -> std::io::Result<File> {
    match fs::symlink_metadata(lock)? {
        m if m.is_file() && m.len() <= LONGEST_NAME => File::open(lock),
        _ => Err(std::io::ErrorKind::InvalidInput.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::hash_of;

    #[test]
    fn names_of_partial_files_are_those_of_python() {
        let hash = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        assert_eq!(hash_of(&format!("{hash}.incomplete")), Some(hash));
        assert_eq!(hash_of(&format!("{hash}.0123abcd.incomplete")), Some(hash));
        for other in [hash, ".incomplete", "incomplete", "a.b.c.incomplete", "\u{202e}.incomplete", "..incomplete"] {
            assert_eq!(hash_of(other), None, "{other}");
        }
    }
}
