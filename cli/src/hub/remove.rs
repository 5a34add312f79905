//! Removes models from the cache. Never removes anything outside the cache, even if a link leads there.

use super::address::Address;
use super::cache::{Cache, files_below};
use super::partial::Partial;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use wingbeat::error::{Error, Result};

/// The folders that a repository has in the cache. If the repository is a link to another folder, only these parts of that folder are removed.
const PARTS: [&str; 4] = ["blobs", "refs", "snapshots", ".no_exist"];

/// The files that will be removed.
#[derive(Debug)]
pub struct Removal {
    links: Vec<PathBuf>,
    blobs: Vec<PathBuf>,
    /// The folder of the repository.
    folder: PathBuf,
    /// True if the whole folder is removed.
    is_whole: bool,
    /// The bytes that become free.
    pub size_bytes: u64,
    /// The held locks of interrupted downloads. No process can continue a download while its files are removed.
    _locks: Vec<File>,
}

impl Cache {
    /// Returns the files to remove for an address. For a file, these are its links, its blob if no other link needs the blob, and the rest of an
    /// interrupted download. If the address names no file, returns the whole repository. Returns `None` if the cache has nothing at this address.
    ///
    /// # Errors
    /// `File` if the folder of the file leads out of the cache, or if a process downloads the file now. `Input` if the address has a revision and no
    /// file.
    pub fn removal(&self, address: &Address) -> Result<Option<Removal>> {
        let folder = self.folder(address);
        if !folder.is_dir() {
            return Ok(None);
        }
        self.check_inside(&folder)?;
        let partials = self.partials(address);
        let Some(file) = &address.file else {
            if !address.is_unpinned() {
                return Err(Error::input("cannot remove one revision of a repository")
                    .at(address)
                    .hint("remove a file, or the repository"));
            }
            let size_bytes = files_below(&folder).iter().map(|file| own_size(&folder.join(file))).sum();
            let _locks = held(&partials)?;
            return Ok(Some(Removal { links: Vec::new(), blobs: Vec::new(), folder, is_whole: true, size_bytes, _locks }));
        };
        let mut links = Vec::new();
        for snapshot in self.known_snapshots(address) {
            let link = snapshot.join(file);
            if fs::symlink_metadata(&link).is_ok_and(|m| !m.is_dir()) {
                self.check_inside(link.parent().unwrap_or(&snapshot))?;
                links.push(link);
            }
        }
        self.removal_of(folder, links, &partials)
    }

    /// Returns the files that interrupted downloads at this address left, to remove them. Returns `None` if the cache has no such files.
    ///
    /// # Errors
    /// `File` if the folder leads out of the cache, or if a process downloads the file now.
    pub fn removal_of_partials(&self, address: &Address) -> Result<Option<Removal>> {
        self.removal_of(self.folder(address), Vec::new(), &self.partials(address))
    }

    fn removal_of(&self, folder: PathBuf, links: Vec<PathBuf>, partials: &[Partial]) -> Result<Option<Removal>> {
        if links.is_empty() && partials.is_empty() {
            return Ok(None);
        }
        let kept = self.blobs_without(&folder, &links);
        let mut blobs: Vec<PathBuf> = links.iter().filter_map(|link| blob_of(&folder, link)).filter(|blob| !kept.contains(blob)).collect();
        blobs.extend(partials.iter().map(|partial| partial.path.clone()));
        if !partials.is_empty() {
            self.check_inside(&folder.join("blobs"))?;
        }
        blobs.sort();
        blobs.dedup();
        let size_bytes = links.iter().chain(&blobs).map(|path| own_size(path)).sum();
        Ok(Some(Removal { links, blobs, folder, is_whole: false, size_bytes, _locks: held(partials)? }))
    }

    /// Returns the blobs that are needed by links of the repository other than `links`.
    fn blobs_without(&self, folder: &Path, links: &[PathBuf]) -> Vec<PathBuf> {
        let snapshots = folder.join("snapshots");
        let others = files_below(&snapshots).into_iter().map(|file| snapshots.join(file)).filter(|path| !links.contains(path));
        others.filter_map(|link| blob_of(folder, &link)).collect()
    }
}

/// Locks all blobs that are not complete.
fn held(partials: &[Partial]) -> Result<Vec<File>> {
    // Partial files of the same blob share a lock, which this process can hold only once.
    let mut locks: Vec<&Partial> = partials.iter().collect();
    locks.dedup_by(|a, b| a.has_lock_of(b));
    locks.into_iter().filter_map(|partial| partial.hold().transpose()).collect()
}

impl Removal {
    /// Removes the files, then the folders that became empty.
    ///
    /// # Errors
    /// `File` if a file cannot be removed.
    pub fn run(self) -> Result<()> {
        if self.is_whole {
            return remove_repository(&self.folder);
        }
        for path in self.links.iter().chain(&self.blobs) {
            fs::remove_file(path).map_err(|e| Error::io(e, path))?;
        }
        let snapshots = self.folder.join("snapshots");
        for link in &self.links {
            let parents = link.ancestors().skip(1).take_while(|folder| folder.starts_with(&snapshots));
            parents.map_while(|folder| fs::remove_dir(folder).ok()).for_each(drop);
        }
        if !snapshots.exists() && fs::remove_dir(self.folder.join("blobs")).is_ok() {
            let _ = remove_repository(&self.folder);
        }
        Ok(())
    }
}

/// Removes a repository. If its folder is a link, removes the parts of a cache from the linked folder. Then removes the link, and the linked folder
/// if it is empty.
fn remove_repository(folder: &Path) -> Result<()> {
    let io = |e| Error::io(e, folder);
    if !fs::symlink_metadata(folder).map_err(io)?.is_symlink() {
        return fs::remove_dir_all(folder).map_err(io);
    }
    let real = folder.canonicalize().map_err(io)?;
    for part in PARTS.map(|part| real.join(part)) {
        match fs::symlink_metadata(&part) {
            Ok(m) if m.is_dir() => fs::remove_dir_all(&part).map_err(|e| Error::io(e, &part))?,
            Ok(_) => fs::remove_file(&part).map_err(|e| Error::io(e, &part))?,
            Err(_) => {}
        }
    }
    let _ = fs::remove_dir(&real);
    // On Windows, a link to a folder is removed as a folder.
    fs::remove_file(folder).or_else(|_| fs::remove_dir(folder)).map_err(io)
}

/// Returns the blob of the same repository to which a link leads, or `None` if the link leads elsewhere. huggingface_hub 2.4 makes a blob a link to
/// a store that repositories share. The result is then the link in the repository, not the shared file.
fn blob_of(folder: &Path, link: &Path) -> Option<PathBuf> {
    let target = fs::read_link(link).ok()?;
    let target = link.parent()?.join(target);
    let (real, blobs) = (target.parent()?.canonicalize().ok()?, folder.join("blobs").canonicalize().ok()?);
    let is_own = real == blobs && blobs.parent() == folder.canonicalize().ok().as_deref();
    is_own.then(|| blobs.join(target.file_name().unwrap_or_default())).filter(|blob| fs::symlink_metadata(blob).is_ok_and(|m| !m.is_dir()))
}

/// Returns the size of a file, and 0 for a link.
fn own_size(path: &Path) -> u64 {
    fs::symlink_metadata(path).map_or(0, |m| if m.is_file() { m.len() } else { 0 })
}
