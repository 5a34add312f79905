//! Stores the files of states by name: in a folder, in memory, or in an object storage that several servers can share.

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use prometheus_client::metrics::counter::Counter;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wingbeat::error::{Error, Result};

/// The end of the name of a damaged file, which the server does not read. The owner can repair the file and rename it back.
pub const DAMAGED: &str = ".damaged";
/// The age from which a temporary file counts as left behind.
const OLD: Duration = Duration::from_secs(3600);

/// Files in memory, in a folder or in an object store.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    root: Path,
    /// The path if the files are in a folder, otherwise `None`.
    local: Option<PathBuf>,
    pub traffic: Traffic,
}

/// Counts the files that were read and written whole, and their bytes.
#[derive(Debug, Clone, Default)]
pub struct Traffic {
    pub reads: Counter,
    pub read_bytes: Counter,
    pub writes: Counter,
    pub written_bytes: Counter,
}

/// Identifies the content of a file: two versions are equal if the file did not change.
#[derive(Debug, Clone)]
pub struct FileVersion {
    tag: Option<String>,
    /// The time of the last change, in milliseconds since 1970. `None` if this server has just written the file: a write returns only the tag.
    modified: Option<i64>,
    pub bytes: u64,
}

impl PartialEq for FileVersion {
    /// Compares the tags. A storage without tags tells versions apart by time and size.
    fn eq(&self, other: &FileVersion) -> bool {
        match (&self.tag, &other.tag) {
            (Some(tag), Some(of_other)) => tag == of_other,
            _ => self.modified.is_some() && (self.modified, self.bytes) == (other.modified, other.bytes),
        }
    }
}

/// A file in a listing.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The name of the file, without its folder.
    pub name: String,
    pub bytes: u64,
    /// The time of the file's last change, in seconds since 1970.
    pub modified: i64,
}

impl Store {
    /// Opens the storage at a URL or in a folder. Makes the folder if it is missing. `None` keeps files in memory.
    ///
    /// # Errors
    /// `Usage` if the URL is wrong or its kind is not supported; `File` if the folder cannot be made.
    pub fn open(url: Option<&str>) -> Result<Store> {
        let Some(url) = url else { return Ok(Store::new(Arc::new(InMemory::new()), Path::default(), None)) };
        if !url.contains("://") || url.starts_with("file://") {
            return Self::folder(url.strip_prefix("file://").unwrap_or(url));
        }
        let expected = |e: &dyn std::fmt::Display| {
            let text = format!(
                "expected a folder or a URL such as s3://bucket/prefix, found {:?}: {e}",
                wingbeat::low_level::front_end::short(url, 100)
            );
            Error::usage(text).field("states")
        };
        // An error means that another part of the program has chosen a library of cryptography already.
        #[cfg(feature = "cloud")]
        let _ = rustls::crypto::ring::default_provider().install_default();
        let parsed = url::Url::parse(url).map_err(|e| expected(&e))?;
        let settings = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?.to_ascii_lowercase(), value.into_string().ok()?)));
        let (inner, root) = object_store::parse_url_opts(&parsed, settings).map_err(|e| {
            let e = expected(&e);
            if cfg!(feature = "cloud") { e } else { e.hint("object storage needs a program that was built with the feature `cloud`") }
        })?;
        Ok(Store::new(inner.into(), root, None))
    }

    fn new(inner: Arc<dyn ObjectStore>, root: Path, local: Option<PathBuf>) -> Store {
        Store { inner, root, local, traffic: Traffic::default() }
    }

    fn folder(path: &str) -> Result<Store> {
        let folder = std::path::Path::new(path);
        let is_new = !folder.exists();
        make_private(folder).map_err(|e| Error::io(e, folder).field("states"))?;
        if !is_new && others_may_write(folder) {
            log::warn!("other users may write to the folder of states {}: they can replace states", folder.display());
        }
        sweep(folder);
        let inner = LocalFileSystem::new_with_prefix(folder).map_err(|e| Error::file(e.to_string()).field("states"))?;
        Ok(Store::new(Arc::new(inner), Path::default(), Some(folder.into())))
    }

    /// Returns whether a file is missing or regular. Opening a pipe would wait for ever, and a link can lead out of the folder.
    fn is_plain(&self, folder: &str, name: &str) -> bool {
        let kind = self.local.as_ref().map(|local| std::fs::symlink_metadata(local.join(folder).join(name)));
        kind.is_none_or(|kind| kind.map_or(true, |kind| kind.is_file()))
    }

    fn at(&self, folder: &str, name: &str) -> Path {
        folder.split('/').chain(Some(name)).fold(self.root.clone(), |path, part| path.join(part))
    }

    /// Writes a file, and returns its version. A record (a file of JSON) gets a checksum; a state has its own. A reader sees either the old or the
    /// new content, even if the process is killed while it writes.
    pub async fn put(&self, folder: &str, name: &str, content: Bytes) -> Result<FileVersion> {
        if let Some(local) = &self.local {
            let folder = local.join(folder);
            make_private(&folder).map_err(|e| Error::io(e, &folder))?;
        }
        let content = if is_record(name) { sealed(&content) } else { content };
        let bytes = content.len() as u64;
        let put = self.inner.put(&self.at(folder, name), content.into()).await.map_err(failed)?;
        self.traffic.writes.inc();
        self.traffic.written_bytes.inc_by(bytes);
        Ok(FileVersion { tag: put.e_tag, modified: None, bytes })
    }

    /// Reads a file. Returns `None` if the file does not exist.
    ///
    /// # Errors
    /// `File` if a record is damaged. The record is then renamed, so it no longer exists.
    pub async fn get(&self, folder: &str, name: &str) -> Result<Option<(Bytes, FileVersion)>> {
        if !self.is_plain(folder, name) {
            return Ok(None);
        }
        let Some(found) = found(self.inner.get(&self.at(folder, name)).await)? else { return Ok(None) };
        let version = version(&found.meta);
        let content = found.bytes().await.map_err(failed)?;
        self.traffic.reads.inc();
        self.traffic.read_bytes.inc_by(content.len() as u64);
        if !is_record(name) {
            return Ok(Some((content, version)));
        }
        match unsealed(&content) {
            Some(content) => Ok(Some((content, version))),
            None => {
                self.set_aside(folder, name, &version).await?;
                Err(Error::file(format!("the stored file {name} is damaged")).hint(format!("a damaged file is renamed to {name}{DAMAGED}")))
            }
        }
    }

    /// Adds [`DAMAGED`] to the name of a file if the file still has this version.
    pub async fn set_aside(&self, folder: &str, name: &str, version: &FileVersion) -> Result<()> {
        // Another request may already have replaced the damaged file by a valid file, which must keep its name.
        if self.version(folder, name).await?.as_ref() == Some(version) {
            found(self.inner.rename(&self.at(folder, name), &self.at(folder, &format!("{name}{DAMAGED}"))).await)?;
        }
        Ok(())
    }

    /// Reads the first `n` bytes of a file, or the whole file if it is shorter. Returns `None` if the file does not exist.
    pub async fn get_first(&self, folder: &str, name: &str, n: u64) -> Result<Option<Bytes>> {
        let Some(version) = self.version(folder, name).await? else { return Ok(None) };
        match n.min(version.bytes) {
            // The store refuses an empty range.
            0 => Ok(Some(Bytes::new())),
            n => found(self.inner.get_range(&self.at(folder, name), 0..n).await),
        }
    }

    /// Returns the version of a file, or `None` if the file does not exist.
    pub async fn version(&self, folder: &str, name: &str) -> Result<Option<FileVersion>> {
        if !self.is_plain(folder, name) {
            return Ok(None);
        }
        Ok(found(self.inner.head(&self.at(folder, name)).await)?.map(|meta| version(&meta)))
    }

    /// Lists the files of a folder, sorted by name.
    pub async fn list(&self, folder: &str) -> Result<Vec<Stored>> {
        let path = folder.split('/').fold(self.root.clone(), |path, part| path.join(part));
        let all: Vec<ObjectMeta> = self.inner.list(Some(&path)).try_collect().await.map_err(failed)?;
        let stored = |meta: &ObjectMeta| {
            Some(Stored { name: meta.location.filename()?.into(), bytes: meta.size, modified: meta.last_modified.timestamp() })
        };
        let mut all: Vec<Stored> = all.iter().filter_map(stored).collect();
        all.retain(|stored| self.is_plain(folder, &stored.name));
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Deletes a file. Returns false if the file did not exist.
    pub async fn delete(&self, folder: &str, name: &str) -> Result<bool> {
        if self.version(folder, name).await?.is_none() {
            return Ok(false);
        }
        Ok(found(self.inner.delete(&self.at(folder, name)).await)?.is_some())
    }
}

fn is_record(name: &str) -> bool {
    name.ends_with(".json")
}

/// The line with the checksum that follows a record, without its digits. It is JSON, too, so the file consists of lines of JSON.
const SEAL: [&str; 2] = ["\n{\"crc32\":\"", "\"}"];
const DIGITS: usize = 8;

/// Returns a record and the line with its checksum.
fn sealed(record: &[u8]) -> Bytes {
    let line = format!("{}{:0DIGITS$x}{}", SEAL[0], crc32fast::hash(record), SEAL[1]);
    [record, line.as_bytes()].concat().into()
}

/// Returns a record without the line with its checksum, or `None` if the record is damaged. A record of an older server has no such line, and must be
/// whole JSON.
fn unsealed(content: &Bytes) -> Option<Bytes> {
    let n = content.len().checked_sub(SEAL[0].len() + DIGITS + SEAL[1].len());
    let digits = |n: &usize| content[*n..].strip_prefix(SEAL[0].as_bytes())?.strip_suffix(SEAL[1].as_bytes());
    let Some((n, digits)) = n.and_then(|n| Some((n, digits(&n)?))) else {
        return serde_json::from_slice::<serde::de::IgnoredAny>(content).is_ok().then(|| content.clone());
    };
    (format!("{:0DIGITS$x}", crc32fast::hash(&content[..n])).as_bytes() == digits).then(|| content.slice(..n))
}

/// Makes a folder, and its parents, that only the user may read: a state reveals its text. An existing folder keeps its mode.
fn make_private(folder: &std::path::Path) -> std::io::Result<()> {
    let mut make = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut make, 0o700);
    make.recursive(true).create(folder)
}

#[cfg(unix)]
fn others_may_write(folder: &std::path::Path) -> bool {
    folder.metadata().is_ok_and(|found| std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o022 != 0)
}

#[cfg(not(unix))]
fn others_may_write(_: &std::path::Path) -> bool {
    false
}

/// Deletes temporary files that a killed server left in the folder. Keeps files younger than an hour, because another server may still be writing
/// them.
fn sweep(folder: &std::path::Path) {
    let entries = |folder: &std::path::Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = |folder: &std::path::Path| entries(folder).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    for file in folders(folder).flat_map(|model| folders(&model.path())).flat_map(|owner| entries(&owner.path())) {
        // The crate object_store writes to `NAME#NUMBER` and renames.
        let is_temporary = file.file_name().to_str().and_then(|name| name.rsplit_once('#')).is_some_and(|(_, n)| n.parse::<u64>().is_ok());
        let age = file.metadata().and_then(|found| found.modified()).ok().and_then(|time| time.elapsed().ok());
        if is_temporary && age.is_some_and(|age| age > OLD) {
            std::fs::remove_file(file.path()).unwrap_or_else(|e| log::warn!("{}: {e}", file.path().display()));
        }
    }
}

fn version(meta: &ObjectMeta) -> FileVersion {
    FileVersion { tag: meta.e_tag.clone(), modified: Some(meta.last_modified.timestamp_millis()), bytes: meta.size }
}

/// Converts a result of the storage. The error for a missing file becomes `None`.
fn found<T>(result: object_store::Result<T>) -> Result<Option<T>> {
    match result {
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        result => result.map(Some).map_err(failed),
    }
}

/// Converts an error of the storage. Its text can contain a path on the server. So the text becomes the place of the new error: only the log shows
/// places.
fn failed(e: object_store::Error) -> Error {
    Error::file("the storage of states failed").at(e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wingbeat::error::Kind;

    #[tokio::test]
    async fn files_are_kept_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/folder");
        for store in [
            Store::open(None).unwrap(),
            Store::open(path.to_str()).unwrap(),
            Store::open(Some(&format!("file://{}", path.display()))).unwrap(),
        ] {
            assert_eq!(store.get("a/b", "x").await.unwrap(), None);
            assert!(!store.delete("a/b", "x").await.unwrap() && store.list("a/b").await.unwrap().is_empty());
            store.put("a/b", "x", Bytes::from_static(b"12345")).await.unwrap();
            let (content, first) = store.get("a/b", "x").await.unwrap().unwrap();
            assert_eq!((content.as_ref(), store.version("a/b", "x").await.unwrap()), (b"12345".as_slice(), Some(first.clone())));
            assert_eq!(store.get_first("a/b", "x", 2).await.unwrap().unwrap(), "12");
            assert_eq!(store.get_first("a/b", "x", 200).await.unwrap().unwrap(), "12345");
            let written = store.put("a/b", "x", Bytes::from_static(b"1234567")).await.unwrap();
            assert_ne!(store.version("a/b", "x").await.unwrap().unwrap(), first);
            assert_eq!(store.version("a/b", "x").await.unwrap().unwrap(), written);
            store.put("a/b", "w", Bytes::new()).await.unwrap();
            store.put("a/c", "v", Bytes::new()).await.unwrap();
            let names: Vec<(String, u64)> = store.list("a/b").await.unwrap().into_iter().map(|file| (file.name, file.bytes)).collect();
            assert_eq!(names, [("w".into(), 0), ("x".into(), 7)]);
            assert!(store.delete("a/b", "x").await.unwrap() && store.delete("a/b", "w").await.unwrap());
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_folder_has_modes_and_no_foreign_files() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o750)).unwrap();
        let open = || Store::open(folder.path().to_str()).unwrap();
        open().put("a/b", "x", Bytes::from_static(b"1")).await.unwrap();
        let at = folder.path().join("a/b");
        assert_eq!((mode(folder.path()), mode(&folder.path().join("a")), mode(&at)), (0o750, 0o700, 0o700));
        // A link and a pipe are neither listed nor read.
        std::os::unix::fs::symlink("/etc/hostname", at.join("link")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(at.join("pipe")).status().unwrap().success());
        let store = open();
        assert_eq!(store.list("a/b").await.unwrap().len(), 1);
        for name in ["link", "pipe"] {
            assert!(store.get("a/b", name).await.unwrap().is_none() && store.version("a/b", name).await.unwrap().is_none(), "{name}");
        }
        // Only old temporary files are left-overs.
        for (name, hours) in [("old#1", 2), ("new#2", 0), ("named#x", 2)] {
            let file = std::fs::File::create(at.join(name)).unwrap();
            file.set_modified(std::time::SystemTime::now() - Duration::from_secs(3600 * hours)).unwrap();
        }
        open();
        assert_eq!(["old#1", "new#2", "named#x"].map(|name| at.join(name).exists()), [false, true, true]);
    }

    #[test]
    fn wrong_urls_are_refused() {
        for url in ["nonsense://x", "http://", "://"] {
            let e = Store::open(Some(url)).unwrap_err();
            assert_eq!((e.kind, e.field_name()), (Kind::Usage, Some("states")), "{url}");
        }
    }
}
