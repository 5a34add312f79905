//! Removes models from the cache. Nothing outside the cache is removed, whatever its links say.

use super::address::Address;
use super::cache::{Cache, files_below, is_folder};
use std::fs;
use std::path::{Path, PathBuf};
use wingbeat::error::{Error, Result};

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
}

impl Cache {
    /// Returns what has to be removed for an address: a file's links, and its blob if no other link needs it; or, without a file, the whole
    /// repository. Returns `None` if the cache has nothing at this address.
    ///
    /// # Errors
    /// `File` if the folder of the file leads out of the cache. `Input` if the address has a revision and no file.
    pub fn removal(&self, address: &Address) -> Result<Option<Removal>> {
        let folder = self.folder(address);
        if !is_folder(&folder) {
            return Ok(None);
        }
        self.check_inside(&folder)?;
        let Some(file) = &address.file else {
            if !address.is_unpinned() {
                return Err(Error::input("cannot remove one revision of a repository")
                    .at(address)
                    .hint("remove a file, or the repository"));
            }
            let size_bytes = files_below(&folder).iter().map(|file| own_size(&folder.join(file))).sum();
            return Ok(Some(Removal { links: Vec::new(), blobs: Vec::new(), folder, is_whole: true, size_bytes }));
        };
        let mut links = Vec::new();
        for snapshot in self.snapshots(address)? {
            let link = snapshot.join(file);
            if fs::symlink_metadata(&link).is_ok_and(|m| !m.is_dir()) {
                self.check_inside(link.parent().unwrap_or(&snapshot))?;
                links.push(link);
            }
        }
        if links.is_empty() {
            return Ok(None);
        }
        let kept = self.blobs_without(&folder, &links);
        let mut blobs: Vec<PathBuf> = links.iter().filter_map(|link| blob_of(&folder, link)).filter(|blob| !kept.contains(blob)).collect();
        blobs.sort();
        blobs.dedup();
        let size_bytes = links.iter().chain(&blobs).map(|path| own_size(path)).sum();
        Ok(Some(Removal { links, blobs, folder, is_whole: false, size_bytes }))
    }

    /// Returns the blobs of all links of a repository except `links`.
    fn blobs_without(&self, folder: &Path, links: &[PathBuf]) -> Vec<PathBuf> {
        let snapshots = folder.join("snapshots");
        let others = files_below(&snapshots).into_iter().map(|file| snapshots.join(file)).filter(|path| !links.contains(path));
        others.filter_map(|link| blob_of(folder, &link)).collect()
    }
}

impl Removal {
    /// Removes the files, then the folders that became empty.
    ///
    /// # Errors
    /// `File` if a file cannot be removed.
    pub fn run(self) -> Result<()> {
        if self.is_whole {
            return fs::remove_dir_all(&self.folder).map_err(|e| Error::io(e, &self.folder));
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
            let _ = fs::remove_dir_all(&self.folder);
        }
        Ok(())
    }
}

/// Returns the blob of the same repository to which a link leads, or `None` if it leads elsewhere.
fn blob_of(folder: &Path, link: &Path) -> Option<PathBuf> {
    let (real, blobs) = (link.canonicalize().ok()?, folder.join("blobs").canonicalize().ok()?);
    let is_link = fs::symlink_metadata(link).is_ok_and(|m| m.is_symlink());
    (is_link && real.parent() == Some(&blobs) && blobs.parent() == folder.canonicalize().ok().as_deref()).then_some(real)
}

/// Returns the size of a file, and 0 for a link.
fn own_size(path: &Path) -> u64 {
    fs::symlink_metadata(path).map_or(0, |m| if m.is_file() { m.len() } else { 0 })
}
