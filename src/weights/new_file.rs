//! Writes files that appear under their final name only when they are complete.
//!
//! A file is written under a temporary name, `.wingbeat-*.part`, in its folder, and renamed when it is complete. The writing process locks the
//! temporary file. If the process is killed, the lock ends, and the next process that writes to the folder removes the file.

use crate::error::{Error, Result, size};
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::NamedTempFile;

const PREFIX: &str = ".wingbeat-";
const SUFFIX: &str = ".part";

/// The largest number of attempts to create a temporary file. An attempt fails if another process removes the file before this process locks it.
const ATTEMPTS: usize = 16;

/// The users that may read a new file. A file that replaces another keeps the permissions of the replaced file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// All users that the umask allows.
    Umask,
    /// Only the owner, for files with text that a person typed.
    Owner,
}

/// A file that is being written. Dropping the value without [`NewFile::finish`] removes the temporary file.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    /// The permissions of the file that is replaced, or `None` if no file is replaced.
    permissions: Option<Permissions>,
    temporary: NamedTempFile,
    _listed: UnfinishedPath,
}

impl NewFile {
    /// Creates the temporary file for `path`, and removes temporary files of killed processes from the folder. If `path` is a link, the target
    /// of the link is replaced.
    ///
    /// # Errors
    ///
    /// `File` if `path` is a folder or a device, or if its folder does not exist or is not writable.
    pub fn create(path: &Path, readers: Readers) -> Result<NewFile> {
        let existing = std::fs::metadata(path).ok();
        if existing.as_ref().is_some_and(|m| !m.is_file()) {
            return Err(Error::file("expected the name of a file to write, found a folder or a device").at(path.display()));
        }
        let io = |e| Error::io(e, path);
        let folder = folder_of(path);
        std::fs::metadata(folder).map_err(io)?;
        let real = existing.as_ref().and_then(|_| path.canonicalize().ok()).unwrap_or_else(|| path.to_path_buf());
        let folder = folder_of(&real);
        remove_abandoned(folder);
        let is_public = existing.is_none() && readers == Readers::Umask;
        let (temporary, listed) = locked(folder, is_public).map_err(io)?;
        Ok(NewFile { path: real, permissions: existing.map(|m| m.permissions()), temporary, _listed: listed })
    }

    /// Returns the temporary file, to which the caller writes.
    pub fn file(&self) -> &File {
        self.temporary.as_file()
    }

    /// Checks that the disk has room for a file of `size_bytes` bytes. The check passes if the free space is unknown.
    ///
    /// # Errors
    ///
    /// `File` if the disk has less free space.
    pub fn check_room(&self, size_bytes: u64) -> Result<()> {
        match free_bytes(folder_of(&self.path)) {
            Some(free) if free < size_bytes => {
                let text = format!("the file needs {}, but the disk has only {} free", size(size_bytes), size(free));
                Err(Error::file(text).at(self.path.display()).hint("free some space or write to another disk"))
            }
            _ => Ok(()),
        }
    }

    /// Waits until the data are on the disk, then renames the temporary file to the final name.
    ///
    /// # Errors
    ///
    /// `File` if the disk is full or the folder is gone. The temporary file is then removed.
    pub fn finish(self) -> Result<()> {
        let NewFile { path, permissions, temporary, _listed } = self;
        let io = |e| Error::io(e, &path);
        if let Some(permissions) = permissions {
            set_mode(temporary.as_file(), permissions).map_err(io)?;
        }
        temporary.as_file().sync_all().map_err(io)?;
        temporary.persist(&path).map_err(|e| io(e.error))?;
        sync_folder(folder_of(&path));
        Ok(())
    }
}

/// Returns the folder of a path, or `.` if the path is only a file name.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates and locks a temporary file in `folder`. If `is_public` is true, the umask determines the file's permissions. Otherwise, only the
/// owner can read and write the file.
fn locked(folder: &Path, is_public: bool) -> io::Result<(NamedTempFile, UnfinishedPath)> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(if is_public { 0o666 } else { 0o600 }));
    let _ = is_public;
    let mut attempt = 0;
    loop {
        let mut unfinished = unfinished();
        let temporary = builder.tempfile_in(folder)?;
        unfinished.push(temporary.path().to_path_buf());
        drop(unfinished);
        let listed = UnfinishedPath(temporary.path().to_path_buf());
        // Another process may have removed the file before it was locked.
        let is_ours = try_lock(temporary.as_file()) != Lock::Held && temporary.path().exists();
        attempt += 1;
        if is_ours || attempt == ATTEMPTS {
            return Ok((temporary, listed));
        }
    }
}

/// Removes the temporary files in `folder` that no process has locked. Errors are ignored, because the files may belong to another user.
fn remove_abandoned(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
        // Only plain files are removed, never links and pipes.
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let path = entry.path();
        let Ok(file) = OpenOptions::new().write(true).open(&path) else { continue };
        if try_lock(&file) == Lock::Taken {
            let removed = std::fs::remove_file(&path);
            log::debug!("{}: temporary file of a killed process, removed: {removed:?}", path.display());
        }
    }
}

/// The result of [`try_lock`].
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(not(any(unix, windows)), allow(dead_code))]
pub enum Lock {
    Taken,
    /// Another process holds the lock.
    Held,
    /// The lock could not be tested, for example because the file system has no locks.
    Unknown,
}

/// Tries to lock a file without waiting. The lock ends when the last handle of the file is closed, even if the process is killed.
#[cfg(any(unix, windows))]
pub fn try_lock(file: &File) -> Lock {
    match fs4::FileExt::try_lock(file) {
        Ok(()) => Lock::Taken,
        Err(fs4::TryLockError::WouldBlock) => Lock::Held,
        Err(_) => Lock::Unknown,
    }
}

/// Returns [`Lock::Unknown`]: this system has no locks.
#[cfg(not(any(unix, windows)))]
pub fn try_lock(_: &File) -> Lock {
    Lock::Unknown
}

/// Returns the free bytes of the folder's disk, or `None` if unknown. A report of 0 counts as unknown, because some file systems always report 0.
#[cfg(any(unix, windows))]
pub fn free_bytes(folder: &Path) -> Option<u64> {
    fs4::free_space(folder).ok().filter(|&free| free > 0)
}

#[cfg(not(any(unix, windows)))]
pub fn free_bytes(_: &Path) -> Option<u64> {
    None
}

/// Sets the permissions of a file, without the setuid, setgid and sticky bits.
#[cfg(unix)]
fn set_mode(file: &File, permissions: Permissions) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(Permissions::from_mode(permissions.mode() & 0o777))
}

#[cfg(not(unix))]
fn set_mode(_: &File, _: Permissions) -> io::Result<()> {
    Ok(())
}

/// Writes the list of names in the folder to the disk, so that the new name survives a crash. Errors are ignored: some file systems do not support
/// this, and the file's data are already on the disk.
fn sync_folder(folder: &Path) {
    if cfg!(unix) {
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
}

/// The paths of this process's unfinished temporary files.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Locks the list of temporary files.
fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A path in `UNFINISHED`. Dropping this value removes the path from the list.
#[derive(Debug)]
struct UnfinishedPath(PathBuf);

impl Drop for UnfinishedPath {
    fn drop(&mut self) {
        unfinished().retain(|path| *path != self.0);
    }
}

/// Removes the temporary files of this process, shortly before the process ends. From then on, threads that create temporary files block forever, so
/// that no new file is left behind.
pub fn remove_unfinished() {
    let unfinished = unfinished();
    unfinished.iter().for_each(|path| _ = std::fs::remove_file(path));
    std::mem::forget(unfinished);
}

/// Removes the temporary files of this process. Neither waits nor allocates, so a signal handler may call it. Files stay if another thread has locked
/// the list. Files with long paths stay, too, because the standard library allocates for long paths.
pub fn remove_unfinished_at_once() {
    const LONGEST: usize = 256;
    if let Ok(unfinished) = UNFINISHED.try_lock() {
        let short = unfinished.iter().filter(|path| path.as_os_str().len() < LONGEST);
        short.for_each(|path| _ = std::fs::remove_file(path));
        std::mem::forget(unfinished);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(folder: &Path) -> Vec<String> {
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn write(path: &Path, readers: Readers, text: &str) {
        let new = NewFile::create(path, readers).unwrap();
        new.file().write_all(text.as_bytes()).unwrap();
        new.finish().unwrap();
    }

    #[test]
    fn abandoned_files_are_removed_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str| std::fs::write(folder.path().join(name), "x").unwrap();
        [".wingbeat-abc.part", ".wingbeat-abc", "x.part"].into_iter().for_each(put);
        std::fs::create_dir(folder.path().join(".wingbeat-folder.part")).unwrap();
        let first = NewFile::create(&folder.path().join("a"), Readers::Umask).unwrap();
        let second = NewFile::create(&folder.path().join("b"), Readers::Umask).unwrap();
        assert_eq!(names(folder.path()).len(), 5, "{:?}", names(folder.path()));
        second.finish().unwrap();
        first.finish().unwrap();
        let mut left = names(folder.path());
        left.sort();
        assert_eq!(left, [".wingbeat-abc", ".wingbeat-folder.part", "a", "b", "x.part"]);
        let third = NewFile::create(&folder.path().join("c"), Readers::Umask).unwrap();
        third.check_room(1).unwrap();
        let full = third.check_room(u64::MAX >> 8).unwrap_err().to_string();
        assert!(full.contains("c: the file needs 65536.00 TiB, but the disk has only "), "{full}");
        drop(third);
        assert_eq!(names(folder.path()).len(), 5);
        assert!(unfinished().iter().all(|path| !path.starts_with(folder.path())));
    }

    #[cfg(unix)]
    #[test]
    fn permissions_are_those_of_the_replaced_file() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        write(&path, Readers::Owner, "new");
        assert_eq!(mode(&path), 0o600);
        for kept in [0o600, 0o640, 0o644] {
            std::fs::set_permissions(&path, Permissions::from_mode(kept)).unwrap();
            write(&path, Readers::Umask, "again");
            write(&path, Readers::Owner, "again");
            assert_eq!(mode(&path), kept);
        }
        let plain = folder.path().join("plain");
        std::fs::write(&plain, "").unwrap();
        let umasked = folder.path().join("umasked");
        write(&umasked, Readers::Umask, "");
        assert_eq!(mode(&umasked), mode(&plain));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (inner, link) = (folder.path().join("inner"), folder.path().join("link"));
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("real"), "old").unwrap();
        std::os::unix::fs::symlink("inner/real", &link).unwrap();
        write(&link, Readers::Umask, "new");
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(inner.join("real")).unwrap(), "new");
    }
}
