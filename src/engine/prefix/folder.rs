//! The tier of files: one state file for each entry, written by a thread of its own.

use crate::error::{Error, Result};
use crate::session::{Model, Snapshot, StateExtras, saved_tokens};
use async_channel::{Receiver, Sender};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The key under which a file names its namespace. A hash: namespaces may be keys of an interface.
const NAMESPACE: &str = "prefix_namespace";

/// Snapshots that wait to be written, at most: each is in memory until then.
const MAX_WAITING: usize = 8;

/// A folder of state files for one model.
pub struct Folder {
    path: PathBuf,
    /// Files take at most so many.
    pub bytes: u64,
    left: Vec<Left>,
    jobs: Sender<Job>,
    done: Receiver<Written>,
}

/// A file that an earlier run left.
pub struct Left {
    pub path: PathBuf,
    pub bytes: u64,
    pub namespace: String,
    pub tokens: Vec<u32>,
    pub has_logits: bool,
    modified: SystemTime,
}

struct Job {
    entry: u64,
    path: PathBuf,
    namespace: String,
    tokens: Vec<u32>,
    snapshot: Arc<Snapshot>,
}

/// The entry, and its file with the bytes of it; `None` where it could not be written.
pub type Written = (u64, Option<(PathBuf, u64)>);

/// The name under which the cache knows a namespace: a hash, so that files of earlier runs have the same.
pub fn hashed(namespace: &str) -> String {
    hex(Sha256::digest(namespace.as_bytes()).as_slice())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl Folder {
    /// Opens the folder of a model below `path`, and lists what earlier runs left there.
    ///
    /// # Errors
    /// `File`: the folder cannot be made or read. `Memory`: the thread that writes cannot be started.
    pub fn open(path: &Path, bytes: u64, model: &Model) -> Result<Folder> {
        // Another format or another device rounds otherwise: texts would not be those that are made without a cache.
        let path = path.join(&hashed(&format!("{} {}", model.weights_hash(), model.numerics()))[..16]);
        let io = |e| Error::io(e, &path);
        fs::create_dir_all(&path).map_err(io)?;
        let mut left: Vec<Left> = fs::read_dir(&path).map_err(io)?.flatten().filter_map(|file| read_left(&file.path(), model)).collect();
        left.sort_by_key(|left| left.modified);
        let (jobs, inbox) = async_channel::bounded(MAX_WAITING);
        let (done, is_done) = async_channel::unbounded();
        start_writer(model.clone(), inbox, done)?;
        Ok(Folder { path, bytes, left, jobs, done: is_done })
    }

    /// What earlier runs left, the oldest first. Nothing the second time.
    pub fn take_left(&mut self) -> Vec<Left> {
        std::mem::take(&mut self.left)
    }

    /// Has an entry written. Returns its file, or `None` if too many wait already.
    pub fn write(&self, entry: u64, namespace: &str, tokens: &[u32], snapshot: Arc<Snapshot>) -> Option<PathBuf> {
        let mut hash = Sha256::new();
        hash.update(namespace);
        tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
        let path = self.path.join(format!("{}.state", hex(hash.finalize().as_slice())));
        let job = Job { entry, path: path.clone(), namespace: namespace.into(), tokens: tokens.to_vec(), snapshot };
        self.jobs.try_send(job).is_ok().then_some(path)
    }

    /// The next entry that was written, if there is one.
    pub fn written(&self) -> Option<Written> {
        self.done.try_recv().ok()
    }

    /// Waits for the next entry that is written.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn wait(&self) -> Option<Written> {
        self.done.recv_blocking().ok()
    }
}

/// Reads an entry's file.
///
/// # Errors
/// As [`Snapshot::load`].
pub fn load(model: &Model, path: &Path) -> Result<Snapshot> {
    // The time of change says which file was used last, should the engine end.
    let touched = fs::File::options().append(true).open(path).and_then(|file| file.set_modified(SystemTime::now()));
    touched.unwrap_or_else(|e| log::debug!("{}: {e}", path.display()));
    Snapshot::load(model, path, false).map(|(snapshot, _)| snapshot)
}

/// Removes an entry's file. One that is gone already is as good.
pub fn remove(path: &Path) {
    fs::remove_file(path).unwrap_or_else(|e| log::debug!("{}: {e}", path.display()));
}

/// `None` of a file that is no entry, or a damaged one: a killed process leaves none, so it is not ours to remove.
fn read_left(path: &Path, model: &Model) -> Option<Left> {
    if path.extension()? != "state" {
        return None;
    }
    let file = fs::metadata(path).ok()?;
    let read = saved_tokens(path).inspect_err(|e| log::warn!("prefix cache: {e}")).ok()?;
    let namespace = read.metadata.get(NAMESPACE)?.clone();
    let is_of_model = read.metadata.get("weights_hash").is_some_and(|hash| hash == model.weights_hash());
    let (bytes, modified) = (file.len(), file.modified().unwrap_or(SystemTime::UNIX_EPOCH));
    is_of_model.then(|| Left { path: path.into(), bytes, namespace, tokens: read.tokens, has_logits: read.has_logits, modified })
}

#[cfg(not(target_arch = "wasm32"))]
fn start_writer(model: Model, jobs: Receiver<Job>, done: Sender<Written>) -> Result<()> {
    let work = move || {
        while let Ok(job) = jobs.recv_blocking() {
            let written = write(&model, &job).inspect_err(|e| log::warn!("prefix cache: {e}")).ok();
            // The engine may have ended.
            let _ = done.try_send((job.entry, written.map(|bytes| (job.path, bytes))));
        }
    };
    let thread = std::thread::Builder::new().name("prefix-cache".into()).spawn(work);
    thread.map(drop).map_err(|e| Error::memory(format!("the thread that writes the prefix cache could not be started: {e}")))
}

#[cfg(target_arch = "wasm32")]
fn start_writer(_: Model, _: Receiver<Job>, _: Sender<Written>) -> Result<()> {
    Err(Error::input("a browser has no folder for the prefix cache"))
}

#[cfg(not(target_arch = "wasm32"))]
fn write(model: &Model, job: &Job) -> Result<u64> {
    let metadata = [(NAMESPACE, job.namespace.clone())];
    job.snapshot.save(model, &job.path, StateExtras { tokens: Some(&job.tokens), metadata: &metadata, ..StateExtras::default() })?;
    fs::metadata(&job.path).map(|file| file.len()).map_err(|e| Error::io(e, &job.path))
}
