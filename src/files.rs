//! Files that models are read from: files on disk, or files that the caller hands over ([`Files`]), as a page in a browser does.
//!
//! Each set of handed-over files has a folder of its own. A path such as `wingbeat:1/my-model/model.safetensors` names folder and file. So the
//! readers of checkpoints, vocabularies and chat templates take paths in both cases.

#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges may have one range")]

use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::future::Future;
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A future that several threads may poll in turn.
pub type Reading<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A file that is read by ranges, such as a file at a URL.
pub trait ReadRanges: Send + Sync {
    /// Reads ranges of bytes. Returns the bytes of each range, in the order of `ranges`.
    ///
    /// # Errors
    /// `File` if a range cannot be read.
    fn read(&self, ranges: Vec<Range<u64>>) -> Reading<'_, Vec<Vec<u8>>>;
}

/// A file that the caller handed over.
#[derive(Clone)]
pub(crate) enum Handed {
    /// All bytes of the file.
    Whole(Arc<Vec<u8>>),
    /// A file that is read by ranges.
    Ranged(Arc<RangedFile>),
}

/// A file that is read by ranges, with some of its bytes in memory.
pub(crate) struct RangedFile {
    /// The bytes that hold the header of a checkpoint.
    pub parts: Parts,
    reader: Arc<dyn ReadRanges>,
}

/// The bytes of a file that are in memory: runs of consecutive bytes, with gaps between the runs.
pub(crate) struct Parts {
    /// The number of bytes of the file.
    pub size: u64,
    /// Runs of bytes, by the position of their first byte.
    runs: BTreeMap<u64, Vec<u8>>,
}

/// The largest gap, in bytes, between two ranges that are read as one range. The bytes of the gap are then read, too.
const GAP_BYTES: u64 = 64 << 10;

/// Joins ranges with at most [`GAP_BYTES`] bytes between them. Returns the joined ranges in order.
pub(crate) fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut runs: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match runs.last_mut().filter(|run| range.start <= run.end + GAP_BYTES) {
            Some(run) => run.end = run.end.max(range.end),
            None => runs.push(range),
        }
    }
    runs
}

impl Parts {
    /// Returns the bytes from the beginning of the file to the first gap.
    pub fn head(&self) -> &[u8] {
        self.runs.get(&0).map_or(&[], Vec::as_slice)
    }

    /// Returns a range of bytes, or `None` if a byte is not in memory.
    pub fn get(&self, range: Range<u64>) -> Option<&[u8]> {
        self.from(range.start)?.get(..usize::try_from(range.end.checked_sub(range.start)?).ok()?)
    }

    /// Returns the bytes from the position `at` to the next gap, or `None` if the byte at `at` is not in memory.
    pub fn from(&self, at: u64) -> Option<&[u8]> {
        let (start, run) = self.runs.range(..=at).rev().find(|(start, run)| at < *start + run.len() as u64)?;
        run.get((at - start) as usize..)
    }

    /// Returns the ranges that must be read so that all bytes of `needed` are in memory.
    fn missing(&self, needed: Vec<Range<u64>>) -> Vec<Range<u64>> {
        let cut = needed.into_iter().map(|range| range.start.min(self.size)..range.end.min(self.size));
        let missing = cut.filter(|range| !range.is_empty() && self.get(range.clone()).is_none());
        joined(missing.map(|range| range.start + self.from(range.start).map_or(0, <[u8]>::len) as u64..range.end).collect())
    }

    /// Adds bytes. Bytes that follow a run become a part of it.
    fn insert(&mut self, start: u64, bytes: Vec<u8>) {
        match self.runs.range_mut(..start).next_back().filter(|(at, run)| *at + run.len() as u64 == start) {
            Some((_, run)) => run.extend(bytes),
            None => _ = self.runs.insert(start, bytes),
        }
    }
}

impl RangedFile {
    /// Reads ranges of bytes, and checks the length of each result.
    ///
    /// # Errors
    /// `File` if a range is outside of the file or cannot be read, or if the reader returns another number of bytes than the range has.
    pub async fn read(&self, ranges: Vec<Range<u64>>) -> Result<Vec<Vec<u8>>> {
        read_checked(self.reader.as_ref(), self.parts.size, ranges).await
    }
}

async fn read_checked(reader: &dyn ReadRanges, size: u64, ranges: Vec<Range<u64>>) -> Result<Vec<Vec<u8>>> {
    if let Some(range) = ranges.iter().find(|range| range.start > range.end || range.end > size) {
        return Err(Error::file(format!("cannot read the bytes {} to {}: the file has {size} bytes", range.start, range.end)));
    }
    let read = reader.read(ranges.clone()).await?;
    if read.len() != ranges.len() {
        return Err(Error::file(format!("expected the bytes of {} ranges, found {}", ranges.len(), read.len())));
    }
    match ranges.iter().zip(&read).find(|(range, bytes)| bytes.len() as u64 != range.end - range.start) {
        Some((range, bytes)) => {
            let text = format!("expected {} bytes from byte {} on, found {}", range.end - range.start, range.start, bytes.len());
            Err(Error::file(text).hint("the file has changed or was cut off: read it again"))
        }
        None => Ok(read),
    }
}

/// Files that the caller hands over in place of files on disk. Clones share the files. The files exist until the last clone is dropped. A model that
/// was loaded from the files holds a clone.
#[derive(Clone)]
pub struct Files(Arc<Mount>);

struct Mount {
    folder: PathBuf,
}

/// A file that a caller handed over. A file that is read by ranges is `Waiting` until [`Files::fetch_heads`] has read its header.
enum MountedFile {
    Ready(Handed),
    Waiting { size: u64, reader: Arc<dyn ReadRanges> },
}

/// Returns which ranges of a file must be in memory. The arguments are the file's name and the bytes that are in memory already. `None` leaves the
/// file out.
pub(crate) type Needed<'a> = &'a (dyn Fn(&str, &Parts) -> Result<Option<Vec<Range<u64>>>> + Sync);

type Mounts = BTreeMap<PathBuf, BTreeMap<String, MountedFile>>;

/// The files of all callers, by folder.
static MOUNTS: Mutex<Mounts> = Mutex::new(BTreeMap::new());
static N_MOUNTS: AtomicUsize = AtomicUsize::new(0);
/// The beginning of every path of a caller's file.
const SCHEME: &str = "wingbeat:";

fn mounts() -> std::sync::MutexGuard<'static, Mounts> {
    MOUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Mount {
    fn drop(&mut self) {
        mounts().remove(&self.folder);
    }
}

impl Files {
    /// Creates an empty folder. `name` is the folder's name in messages, and the model's name if the folder holds several files of one model. An
    /// empty name becomes `model`.
    pub fn new(name: &str) -> Files {
        let name = name.replace(['/', '\\'], "-");
        let id = N_MOUNTS.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(&format!("{SCHEME}{id}")).join(if name.is_empty() { "model" } else { &name });
        mounts().insert(folder.clone(), BTreeMap::new());
        Files(Arc::new(Mount { folder }))
    }

    /// Adds a file whose bytes are in memory.
    ///
    /// # Errors
    /// `Usage` if the name is not a plain file name, or if the folder already has a file of this name.
    pub fn add(&self, name: &str, bytes: impl Into<Vec<u8>>) -> Result<()> {
        self.insert(name, MountedFile::Ready(Handed::Whole(Arc::new(bytes.into()))))
    }

    /// Adds a file of `size` bytes that is read by ranges.
    ///
    /// # Errors
    /// `Usage` if the name is not a plain file name, or if the folder already has a file of this name.
    pub fn add_ranged(&self, name: &str, size: u64, reader: Arc<dyn ReadRanges>) -> Result<()> {
        self.insert(name, MountedFile::Waiting { size, reader })
    }

    fn insert(&self, name: &str, entry: MountedFile) -> Result<()> {
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\\']) {
            return Err(Error::usage(format!("expected a file name without folders, found {name:?}")));
        }
        let mut mounts = mounts();
        let files = mounts.get_mut(&self.0.folder).expect("the folder exists as long as its handle");
        match files.contains_key(name) {
            true => Err(Error::usage(format!("the file {name:?} is given twice"))),
            false => Ok(_ = files.insert(name.into(), entry)),
        }
    }

    /// Returns the path of the folder.
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.folder.join(name)
    }

    /// Reads the header of every file that is read by ranges. `needed(name, parts)` returns the ranges that must be in memory. After each read,
    /// `needed` is called again, until all its ranges are in memory. If `needed` returns `None`, the file is removed from the folder.
    pub(crate) async fn fetch_heads(&self, needed: Needed<'_>) -> Result<()> {
        let waiting = |entry: &MountedFile| match entry {
            MountedFile::Waiting { size, reader } => Some((*size, reader.clone())),
            MountedFile::Ready(_) => None,
        };
        let found: Vec<_> = match mounts().get(&self.0.folder) {
            Some(files) => files.iter().filter_map(|(name, entry)| Some((name.clone(), waiting(entry)?))).collect(),
            None => Vec::new(),
        };
        for (name, (size, reader)) in found {
            let place = |e: Error| e.at(self.path(&name).display());
            let mut parts = Parts { size, runs: BTreeMap::new() };
            let is_used = loop {
                let Some(needed) = needed(&name, &parts).map_err(place)? else { break false };
                let missing = parts.missing(needed);
                if missing.is_empty() {
                    break true;
                }
                let read = read_checked(reader.as_ref(), size, missing.clone()).await.map_err(place)?;
                missing.iter().zip(read).for_each(|(range, bytes)| parts.insert(range.start, bytes));
            };
            let mut mounts = mounts();
            let files = mounts.get_mut(&self.0.folder).expect("the folder exists as long as its handle");
            match is_used {
                false => files.remove(&name),
                true if parts.head().len() as u64 == size => {
                    let bytes = parts.runs.remove(&0).unwrap_or_default();
                    files.insert(name, MountedFile::Ready(Handed::Whole(Arc::new(bytes))))
                }
                true => files.insert(name, MountedFile::Ready(Handed::Ranged(Arc::new(RangedFile { parts, reader })))),
            };
        }
        Ok(())
    }
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Files").field(&self.0.folder).finish()
    }
}

/// Returns whether a path names a file or a folder that a caller handed over.
pub(crate) fn is_handed(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with(SCHEME))
}

/// Returns a file that a caller handed over, or `None` if the path belongs to the disk.
///
/// # Errors
/// `NotFound` if the caller handed over no such file, or if the file's header has not been read yet.
pub(crate) fn handed(path: &Path) -> Option<io::Result<Handed>> {
    if !is_handed(path) {
        return None;
    }
    let found = (|| match mounts().get(path.parent()?)?.get(path.file_name()?.to_str()?)? {
        MountedFile::Ready(handed) => Some(handed.clone()),
        MountedFile::Waiting { .. } => None,
    })();
    Some(found.ok_or_else(|| ErrorKind::NotFound.into()))
}

/// Opens a file for reading. Fails for a file that is read by ranges, because only a part of its bytes is in memory.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    match handed(path).transpose()? {
        None => Ok(Box::new(std::fs::File::open(path)?)),
        Some(Handed::Whole(bytes)) => Ok(Box::new(io::Cursor::new(Shared(bytes)))),
        Some(Handed::Ranged(_)) => Err(io::Error::other("the file is too large to be read as a whole")),
    }
}

struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Returns whether a path is a file.
pub(crate) fn is_file(path: &Path) -> bool {
    handed(path).map_or_else(|| path.is_file(), |found| found.is_ok())
}

/// Returns whether a path is a folder.
pub(crate) fn is_folder(path: &Path) -> bool {
    if is_handed(path) { mounts().contains_key(path) } else { path.is_dir() }
}

/// Returns a folder's path without `.`, `..` and links, or `None` if the folder does not exist.
pub(crate) fn absolute(folder: &Path) -> Option<PathBuf> {
    if is_handed(folder) { Some(folder.into()) } else { std::fs::canonicalize(folder).ok() }
}

/// Returns the paths of everything in a folder.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    if !is_handed(folder) {
        return std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect();
    }
    let mounts = mounts();
    let files = mounts.get(folder).ok_or(ErrorKind::NotFound)?;
    Ok(files.keys().map(|name| folder.join(name)).collect())
}

/// Returns the bytes of a text file without the byte order mark that some editors put before a text in UTF-8.
pub fn without_mark(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>, usize);

    impl ReadRanges for Bytes {
        fn read(&self, ranges: Vec<Range<u64>>) -> Reading<'_, Vec<Vec<u8>>> {
            let cut = |range: &Range<u64>| self.0[range.start as usize..range.end as usize - self.1].to_vec();
            Box::pin(async move { Ok(ranges.iter().map(cut).collect()) })
        }
    }

    fn fetch(files: &Files, needed: Needed<'_>) -> Result<()> {
        pollster::block_on(files.fetch_heads(needed))
    }

    #[test]
    fn files_exist_as_long_as_their_handle() {
        let files = Files::new("a/b");
        files.add("one", b"1".as_slice()).unwrap();
        assert!(files.add("one", b"2".as_slice()).unwrap_err().to_string().contains("twice"));
        assert!(files.add("../one", b"2".as_slice()).unwrap_err().to_string().contains("without folders"));
        let path = files.path("one");
        let mut text = String::new();
        open(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), is_file(&path), is_folder(files.folder())), ("1", true, true));
        assert_eq!(list(files.folder()).unwrap(), std::slice::from_ref(&path));
        assert_eq!(open(&files.path("two")).err().unwrap().kind(), ErrorKind::NotFound);
        let clone = files.clone();
        drop(files);
        assert!(is_file(&path));
        drop(clone);
        assert!(!is_file(&path));
    }

    #[test]
    fn a_head_grows_until_it_is_long_enough() {
        let files = Files::new("m");
        let bytes: Vec<u8> = (0..100).collect();
        for name in ["long", "small", "other"] {
            files.add_ranged(name, 100, Arc::new(Bytes(bytes.clone(), 0))).unwrap();
        }
        assert!(!is_file(&files.path("long")));
        fetch(&files, &|name, parts| {
            Ok(match name {
                "long" => Some(vec![0..parts.head().get(7).map_or(8, |&n| u64::from(n) * 3)]),
                "small" => Some(vec![0..parts.size + 5]),
                _ => None,
            })
        })
        .unwrap();
        let Some(Ok(Handed::Ranged(long))) = handed(&files.path("long")) else { panic!("not ranged") };
        assert_eq!((long.parts.head(), long.parts.size), (&bytes[..21], 100));
        assert_eq!(pollster::block_on(long.read(vec![90..100, 3..4])).unwrap(), [bytes[90..].to_vec(), vec![3]]);
        assert!(pollster::block_on(long.read(vec![90..101])).unwrap_err().to_string().contains("the file has 100 bytes"));
        assert!(matches!(handed(&files.path("small")), Some(Ok(Handed::Whole(_)))));
        assert!(!is_file(&files.path("other")));
        let cut = Files::new("cut");
        cut.add_ranged("x", 100, Arc::new(Bytes(bytes, 1))).unwrap();
        let error = fetch(&cut, &|_, _| Ok(Some(vec![0..9]))).unwrap_err().to_string();
        assert!(error.contains("expected 9 bytes from byte 0 on, found 8"), "{error}");
    }

    #[test]
    fn parts_are_read_where_they_are_missing() {
        let mut parts = Parts { size: 1_000_000, runs: BTreeMap::new() };
        parts.insert(0, vec![1; 10]);
        parts.insert(500_000, vec![2; 10]);
        assert_eq!(parts.missing(vec![0..5, 3..12, 500_005..500_010, 999_990..2_000_000]), [10..12, 999_990..1_000_000]);
        parts.insert(10, vec![3; 2]);
        assert_eq!((parts.head().len(), parts.get(8..12), parts.get(8..13)), (12, Some(&[1, 1, 3, 3][..]), None));
        assert_eq!(parts.from(500_008), Some(&[2, 2][..]));
        assert!(parts.missing(vec![0..12, 500_000..500_010]).is_empty());
    }

    #[test]
    fn ranges_that_are_close_are_read_at_once() {
        assert_eq!(joined(vec![70_000..80_000, 0..10, 10..20, 200_000..200_001]), [0..20, 70_000..80_000, 200_000..200_001]);
        assert_eq!(joined(vec![0..100, 20..30, 60_000..60_001]), [0..60_001]);
    }
}
