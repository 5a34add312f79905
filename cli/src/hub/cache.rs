//! The cache of Hugging Face's programs: `models--OWNER--REPO/` with `blobs/HASH`, `refs/REVISION`, and links `snapshots/COMMIT/FILE` to blobs.

use super::address::{Address, check_path, is_commit, is_model};
use super::digest::Etag;
use super::partial::Partial;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::size;
use wingbeat::low_level::weights::new_file::free_bytes;

/// The configuration of a model that is a folder of files. A download links this file last, so a snapshot without it is not complete.
pub const CONFIG: &str = "config.json";
/// The list of the files over which the weights are spread.
const INDEX: &str = "model.safetensors.index.json";
const LARGEST_INDEX: u64 = 64 << 20;

/// The depth to which folders of a snapshot are searched.
const DEPTH: usize = 64;

/// The folder with all downloaded repositories.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// A model in the cache: a file, or a folder of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedFile {
    /// The address. It has no file if the model is a folder.
    pub address: Address,
    pub path: PathBuf,
    pub size_bytes: u64,
}

/// The contents of the cache.
#[derive(Debug, Default)]
pub struct Contents {
    /// The models, each once, ordered by address. Links that lead out of the cache are left out.
    pub models: Vec<CachedFile>,
    /// Files that interrupted downloads left.
    pub partials: Vec<Partial>,
    /// The errors of folders and files that could not be read.
    pub faults: Vec<Error>,
}

impl Cache {
    /// Returns the cache in the folder `root`, which need not exist.
    pub fn new(root: PathBuf) -> Cache {
        Cache { root }
    }

    /// Returns the folder of a repository.
    pub fn folder(&self, address: &Address) -> PathBuf {
        self.root.join(format!("models--{}--{}", address.owner, address.repository))
    }

    /// Returns the path of the file that a process locks while it writes the blob with the hash `etag`.
    pub fn lock(&self, address: &Address, etag: &Etag) -> PathBuf {
        self.lock_of(address, etag.as_str())
    }

    /// Returns the path of the lock of the blob with this hash.
    pub fn lock_of(&self, address: &Address, hash: &str) -> PathBuf {
        self.root.join(".locks").join(format!("models--{}--{}", address.owner, address.repository)).join(format!("{hash}.lock"))
    }

    /// Returns the path of the model at `address`, or `None` if the cache does not have the model. If the address names no file, the repository
    /// must be a complete folder model, or have exactly one model file in the cache.
    ///
    /// # Errors
    /// `File` if a link leads out of the cache. `Input` if the cache has several models of the repository, and the address names no file.
    pub fn find(&self, address: &Address) -> Result<Option<PathBuf>> {
        for snapshot in self.known_snapshots(address) {
            let found = match &address.file {
                Some(file) => self.existing(&snapshot.join(file))?,
                None => self.only_model(address, &snapshot)?,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Returns the path of the folder model, or of the only model file, in a snapshot. Returns `None` if the snapshot has no complete model.
    fn only_model(&self, address: &Address, snapshot: &Path) -> Result<Option<PathBuf>> {
        if self.is_complete(snapshot)? {
            return Ok(Some(snapshot.to_path_buf()));
        }
        if snapshot.join(CONFIG).exists() {
            return Ok(None);
        }
        let files = files_below(snapshot).into_iter().filter(|file| is_model(file) && self.has(snapshot, file)).collect::<Vec<_>>();
        match files.as_slice() {
            [] => Ok(None),
            [file] => self.existing(&snapshot.join(file)),
            [file, ..] => Err(Error::input(format!("expected one model of this repository in the cache, found {}", files.len()))
                .at(address)
                .hint(format!("add the name of a file: {}", address.with_file(file)?))),
        }
    }

    /// Returns whether a snapshot is a folder model with all its weights.
    fn is_complete(&self, snapshot: &Path) -> Result<bool> {
        if self.existing(&snapshot.join(CONFIG))?.is_none() {
            return Ok(false);
        }
        let Some(index) = self.existing(&snapshot.join(INDEX))? else {
            return Ok(files_below(snapshot)
                .iter()
                .any(|file| !file.contains('/') && file.ends_with(".safetensors") && self.has(snapshot, file)));
        };
        if fs::metadata(&index).is_ok_and(|m| m.len() > LARGEST_INDEX) {
            return Ok(false);
        }
        let index: serde_json::Value = fs::read(&index).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let mut files = index["weight_map"].as_object().into_iter().flatten().filter_map(|(_, file)| file.as_str());
        Ok(files.all(|file| check_path("file", file).is_ok() && self.has(snapshot, file)))
    }

    /// Returns whether a snapshot has a file. Pipes, folders and links that leave the cache do not count.
    fn has(&self, snapshot: &Path, file: &str) -> bool {
        matches!(self.existing(&snapshot.join(file)), Ok(Some(_)))
    }

    /// Returns the contents of the cache. A repository that cannot be read adds to `Contents::faults`.
    ///
    /// # Errors
    /// `File` if the cache exists and cannot be read.
    pub fn list(&self) -> Result<Contents> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Contents::default()),
            Err(e) => return Err(Error::io(e, &self.root)),
        };
        let mut found = Contents::default();
        let Contents { models, partials, faults } = &mut found;
        for address in entries.flatten().filter_map(|entry| address_of(&entry.file_name())) {
            let folder = self.folder(&address);
            if let Err(e) = fs::read_dir(&folder) {
                faults.push(Error::io(e, &folder));
                continue;
            }
            for snapshot in self.snapshots(&address, faults) {
                for cached in self.models_of(&address, &snapshot) {
                    if !models.iter().any(|known| known.address == cached.address) {
                        models.push(cached);
                    }
                }
            }
            partials.extend(self.partials(&address));
        }
        models.sort_by_key(|cached| cached.address.to_string().to_lowercase());
        partials.sort_by_key(|partial| partial.address.to_string().to_lowercase());
        Ok(found)
    }

    fn models_of(&self, address: &Address, snapshot: &Path) -> Vec<CachedFile> {
        let files = files_below(snapshot).into_iter().filter(|file| is_model(file));
        let files: Vec<(String, u64)> = files
            .filter_map(|file| {
                let path = self.existing(&snapshot.join(&file)).ok()??;
                Some((file, fs::metadata(path).ok()?.len()))
            })
            .collect();
        if self.is_complete(snapshot).unwrap_or(false) {
            let size_bytes = files.iter().filter(|(file, _)| !file.contains('/')).map(|(_, size)| size).sum();
            return vec![CachedFile { address: address.clone(), path: snapshot.to_path_buf(), size_bytes }];
        }
        let cached = |(file, size_bytes): (String, u64)| {
            let path = snapshot.join(&file);
            Some(CachedFile { address: address.with_file(&file).ok()?, path, size_bytes })
        };
        files.into_iter().filter_map(cached).collect()
    }

    /// Returns the folders of the snapshots that match the address's revision. For the default revision, returns the snapshot of `main` first, then
    /// all other snapshots from new to old. Adds to `faults` an error for each folder and file that could not be read.
    pub fn snapshots(&self, address: &Address, faults: &mut Vec<Error>) -> Vec<PathBuf> {
        let folder = self.folder(address).join("snapshots");
        let commit = match is_commit(&address.revision) {
            true => Some(address.revision.clone()),
            false => self.commit_of(address).unwrap_or_else(|e| {
                faults.push(e);
                None
            }),
        };
        let mut found: Vec<PathBuf> = commit.iter().map(|commit| folder.join(commit)).filter(|path| is_folder(path)).collect();
        if address.is_unpinned() {
            let entries = fs::read_dir(&folder);
            faults.extend(
                entries.as_ref().err().filter(|e| e.kind() != io::ErrorKind::NotFound).map(|e| Error::io(e.kind().into(), &folder)),
            );
            let commits = entries.into_iter().flatten().flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_commit));
            let mut others: Vec<PathBuf> =
                commits.map(|entry| entry.path()).filter(|path| is_folder(path) && !found.contains(path)).collect();
            others.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).and_then(|m| m.modified()).ok()));
            found.extend(others);
        }
        let unreadable = found.iter().filter_map(|path| Some((fs::read_dir(path).err()?, path)));
        faults.extend(unreadable.map(|(e, path)| Error::io(e, path)));
        found
    }

    /// Returns the snapshots as [`snapshots`](Self::snapshots) does, and warns of what cannot be read.
    pub fn known_snapshots(&self, address: &Address) -> Vec<PathBuf> {
        let mut faults = Vec::new();
        let found = self.snapshots(address, &mut faults);
        faults.iter().for_each(|e| log::warn!("{e}"));
        found
    }

    /// Returns the commit that the cache has for the address's revision, or `None` if the cache has no valid commit.
    fn commit_of(&self, address: &Address) -> Result<Option<String>> {
        let path = self.folder(address).join("refs").join(&address.revision);
        let Some(inside) = self.existing(&path)? else { return Ok(None) };
        let is_short = fs::metadata(&inside).is_ok_and(|m| m.len() <= 64);
        let text = if is_short { fs::read_to_string(&inside).unwrap_or_default() } else { String::new() };
        Ok(Some(text.trim().to_string()).filter(|commit| is_commit(commit)))
    }

    /// Returns `path` if it is a file in the cache, and `None` if it does not exist.
    ///
    /// # Errors
    /// `File` if the path leads out of the cache, or to something else than a file.
    pub fn existing(&self, path: &Path) -> Result<Option<PathBuf>> {
        match path.canonicalize() {
            Ok(real) if real.is_file() => self.check_inside(path).map(|()| Some(path.to_path_buf())),
            Ok(_) => Err(Error::file("expected a file in the cache, found a folder or a device").at(path.display())),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(e) => Err(Error::io(e, path)),
        }
    }

    /// Checks that `path` is in the cache after all links are followed. The folder of a repository may be a link to another disk: then this folder is
    /// in the cache, too.
    ///
    /// # Errors
    /// `File` if the path leads out of the cache, or does not exist.
    pub fn check_inside(&self, path: &Path) -> Result<()> {
        let real = path.canonicalize().map_err(|e| Error::io(e, path))?;
        let root = self.root.canonicalize().map_err(|e| Error::io(e, &self.root))?;
        let first = path.strip_prefix(&self.root).ok().and_then(|inside| inside.components().next());
        let repository =
            first.filter(|name| address_of(name.as_os_str()).is_some()).and_then(|name| self.root.join(name).canonicalize().ok());
        if real.starts_with(&root) || repository.is_some_and(|repository| real.starts_with(repository)) {
            return Ok(());
        }
        let e = Error::file(format!("expected a file in the cache, found a link that leaves it, to {}", real.display()));
        Err(e.at(path.display()).hint("remove the link, then run the command again"))
    }

    /// Creates a folder in the cache.
    ///
    /// # Errors
    /// `File` if the folder cannot be created, or if it is a link that leaves the cache.
    pub fn create(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).map_err(|e| Error::io(e, folder))?;
        self.check_inside(folder)
    }

    /// Returns the path of a file at a commit if the snapshot has the file with this content. Writes nothing, so that the models of a read-only cache
    /// can be used.
    pub fn snapshot_file(&self, address: &Address, commit: &str, etag: &Etag, size_bytes: u64) -> Option<PathBuf> {
        let path = self.folder(address).join("snapshots").join(commit).join(address.file.as_deref()?);
        self.existing(&path).ok()??;
        let is_same = match fs::read_link(&path) {
            Ok(target) => target.file_name().is_some_and(|name| name == etag.as_str()),
            // Where the system has no links, the file itself is in the snapshot, and only its size can be compared quickly.
            Err(_) => fs::metadata(&path).is_ok_and(|m| m.len() == size_bytes),
        };
        is_same.then_some(path)
    }

    /// Returns why a download cannot write into a repository's folders, or `None` if it can. Creates missing folders, and a temporary file in each
    /// folder.
    pub fn refuses_writing(&self, address: &Address, commit: &str) -> Option<Error> {
        let folder = self.folder(address);
        let lock = self.lock_of(address, "");
        let folders = [Some(folder.join("blobs")), Some(folder.join("snapshots").join(commit)), lock.parent().map(Path::to_path_buf)];
        folders.into_iter().flatten().find_map(|folder| {
            let written = self.create(&folder).and_then(|()| tempfile::tempfile_in(&folder).map_err(|e| Error::io(e, &folder)));
            written.err()
        })
    }

    /// Returns an error if a repository's disk has less than `needed` bytes free.
    ///
    /// # Errors
    /// `File` if there is too little space.
    pub fn check_space(&self, address: &Address, needed: u64) -> Result<()> {
        let folder = self.folder(address);
        let Some(folder) = folder.ancestors().find(|folder| folder.exists()) else { return Ok(()) };
        let Some(free) = free_bytes(folder).filter(|free| *free < needed) else { return Ok(()) };
        let text = format!("the download needs {}, but the disk has only {} free", size(needed), size(free));
        Err(Error::file(text).at(folder.display()).hint("free some space, or set HF_HOME to a folder on another disk"))
    }

    /// Creates `snapshots/COMMIT/FILE` as a link to the blob, and returns the link's path. An existing file of this name is replaced. If the system
    /// has no links for this user, moves the blob there, as Hugging Face's programs do.
    ///
    /// # Errors
    /// `File` if the link cannot be created.
    pub fn link(&self, address: &Address, commit: &str, file: &str, etag: &Etag) -> Result<PathBuf> {
        let path = self.folder(address).join("snapshots").join(commit).join(file);
        let folder = path.parent().unwrap_or(&self.root);
        self.create(folder)?;
        let mut target = PathBuf::from_iter(std::iter::repeat_n("..", 2 + file.matches('/').count()));
        target.extend(["blobs", etag.as_str()]);
        if fs::read_link(&path).is_ok_and(|old| old == target) {
            return Ok(path);
        }
        let _ = fs::remove_file(&path);
        let blob = self.folder(address).join("blobs").join(etag.as_str());
        symlink(&target, &path).or_else(|_| fs::rename(&blob, &path)).map_err(|e| Error::io(e, &path))?;
        self.check_inside(&path)?;
        Ok(path)
    }

    /// Stores `commit` as the commit of the address's revision, in a file of the folder `refs`. Does nothing if the cache already has this commit,
    /// or if the revision is itself a commit. Replaces an existing file and never writes into it: a link could lead out of the cache, and a pipe
    /// would wait for a reader.
    ///
    /// # Errors
    /// `File` if the file cannot be written.
    pub fn remember(&self, address: &Address, commit: &str) -> Result<()> {
        let path = self.folder(address).join("refs").join(&address.revision);
        if is_commit(&address.revision) {
            return Ok(());
        }
        match self.commit_of(address) {
            Ok(known) if known.as_deref() == Some(commit) => return Ok(()),
            Ok(_) => {}
            Err(e) => log::warn!("{}: {}: replaced by the commit {commit}", path.display(), e.message),
        }
        let folder = path.parent().unwrap_or(&self.root);
        self.create(folder)?;
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = builder.prefix(".ref-").tempfile_in(self.folder(address)).map_err(|e| Error::io(e, folder))?;
        file.write_all(commit.as_bytes()).map_err(|e| Error::io(e, &path))?;
        file.persist(&path).map(drop).map_err(|e| Error::io(e.error, &path))
    }
}

#[cfg(unix)]
fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

#[cfg(windows)]
fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, path)
}

#[cfg(not(any(unix, windows)))]
fn symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns whether `path` is a folder, and not a link to one.
pub fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| m.is_dir())
}

/// Returns the address of the repository in the folder `models--OWNER--REPO`, or `None` if the name is different.
fn address_of(name: &OsStr) -> Option<Address> {
    let (owner, repository) = name.to_str()?.strip_prefix("models--")?.split_once("--")?;
    Address::in_repository(&format!("{owner}/{repository}"), None).ok()
}

/// Returns the paths of all files and links below a folder, relative to it and with `/` between folders. Links to folders are not followed.
pub fn files_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    walk(folder, "", DEPTH, &mut found);
    found.sort();
    found
}

fn walk(folder: &Path, before: &str, depth: usize, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{before}{name}");
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 0 => walk(&entry.path(), &format!("{path}/"), depth - 1, found),
            Ok(kind) if !kind.is_dir() => found.push(path),
            _ => {}
        }
    }
}

#[cfg(all(test, unix))]
mod tests;
