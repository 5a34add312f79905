//! Stores files of states under names, in a folder, in memory, or in object storage that several servers share.

use crate::error::{Error, Result};
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use std::sync::Arc;

/// A storage of files.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    root: Path,
}

/// Identifies the content of a file: two versions are equal if the file did not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    tag: Option<String>,
    modified: i64,
    pub bytes: u64,
}

/// A file in a listing.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The name in the folder.
    pub name: String,
    pub bytes: u64,
    /// The time of the last change, in seconds since 1970.
    pub modified: i64,
}

impl Store {
    /// Opens the storage at a URL or in a folder. Makes the folder if it is missing. `None` keeps files in memory.
    ///
    /// # Errors
    /// `Usage` if the URL is wrong or its kind is not supported; `File` if the folder cannot be made.
    pub fn open(url: Option<&str>) -> Result<Store> {
        let Some(url) = url else { return Ok(Store { inner: Arc::new(InMemory::new()), root: Path::default() }) };
        if !url.contains("://") || url.starts_with("file://") {
            return Self::folder(url.strip_prefix("file://").unwrap_or(url));
        }
        let expected = |e: &dyn std::fmt::Display| {
            let text = format!("expected a folder or a URL such as s3://bucket/prefix, found {:?}: {e}", crate::error::short(url, 100));
            Error::usage(text).field("states")
        };
        let parsed = url::Url::parse(url).map_err(|e| expected(&e))?;
        let settings = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?.to_ascii_lowercase(), value.into_string().ok()?)));
        let (inner, root) = object_store::parse_url_opts(&parsed, settings).map_err(|e| {
            let e = expected(&e);
            if cfg!(feature = "cloud") { e } else { e.hint("object storage needs a program that was built with the feature `cloud`") }
        })?;
        Ok(Store { inner: inner.into(), root })
    }

    fn folder(path: &str) -> Result<Store> {
        let folder = std::path::Path::new(path);
        let made = || {
            std::fs::create_dir_all(folder)?;
            // A state reveals its text, so only the owner may read the folder.
            #[cfg(unix)]
            std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
            Ok(())
        };
        made().map_err(|e| Error::io(e, folder).field("states"))?;
        let inner = LocalFileSystem::new_with_prefix(folder).map_err(|e| Error::file(e.to_string()).field("states"))?;
        Ok(Store { inner: Arc::new(inner), root: Path::default() })
    }

    fn at(&self, folder: &str, name: &str) -> Path {
        folder.split('/').chain(Some(name)).fold(self.root.clone(), |path, part| path.join(part))
    }

    /// Writes a file. A reader sees either the old or the new content, even if the process is killed while it writes.
    pub async fn put(&self, folder: &str, name: &str, content: Bytes) -> Result<()> {
        self.inner.put(&self.at(folder, name), content.into()).await.map(drop).map_err(failed)
    }

    /// Reads a file. Returns `None` if the file does not exist.
    pub async fn get(&self, folder: &str, name: &str) -> Result<Option<(Bytes, Version)>> {
        let Some(found) = found(self.inner.get(&self.at(folder, name)).await)? else { return Ok(None) };
        let version = version(&found.meta);
        Ok(Some((found.bytes().await.map_err(failed)?, version)))
    }

    /// Reads the first `n` bytes of a file, or the whole file if it is shorter. Returns `None` if the file does not exist.
    pub async fn get_first(&self, folder: &str, name: &str, n: u64) -> Result<Option<Bytes>> {
        let Some(version) = self.version(folder, name).await? else { return Ok(None) };
        found(self.inner.get_range(&self.at(folder, name), 0..n.min(version.bytes)).await)
    }

    /// Returns the version of a file, or `None` if the file does not exist.
    pub async fn version(&self, folder: &str, name: &str) -> Result<Option<Version>> {
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

fn version(meta: &ObjectMeta) -> Version {
    Version { tag: meta.e_tag.clone(), modified: meta.last_modified.timestamp_millis(), bytes: meta.size }
}

/// Returns `None` if a file does not exist.
fn found<T>(result: object_store::Result<T>) -> Result<Option<T>> {
    match result {
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        result => result.map(Some).map_err(failed),
    }
}

/// Converts an error of the storage. The storage's text can have a path, so this text becomes the place, which only the log shows.
fn failed(e: object_store::Error) -> Error {
    Error::file("the storage of states failed").at(e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

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
            store.put("a/b", "x", Bytes::from_static(b"1234567")).await.unwrap();
            assert_ne!(store.version("a/b", "x").await.unwrap().unwrap(), first);
            store.put("a/b", "w", Bytes::new()).await.unwrap();
            store.put("a/c", "v", Bytes::new()).await.unwrap();
            let names: Vec<(String, u64)> = store.list("a/b").await.unwrap().into_iter().map(|file| (file.name, file.bytes)).collect();
            assert_eq!(names, [("w".into(), 0), ("x".into(), 7)]);
            assert!(store.delete("a/b", "x").await.unwrap() && store.delete("a/b", "w").await.unwrap());
        }
    }

    #[test]
    fn wrong_urls_are_refused() {
        for url in ["nonsense://x", "http://", "://"] {
            let e = Store::open(Some(url)).unwrap_err();
            assert_eq!((e.kind, e.field_name()), (Kind::Usage, Some("states")), "{url}");
        }
    }
}
