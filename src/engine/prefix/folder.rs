//! The files of the prefix cache: one state file per entry, written by a separate thread.

use crate::error::{Error, Result};
use crate::exec::wait::receive;
use crate::session::{Model, Snapshot, StateExtras, is_damaged, saved_tokens};
use async_channel::{Receiver, Sender};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The metadata key of a file's namespace. The namespace is hashed, because it may be an API key.
const NAMESPACE: &str = "prefix_namespace";

/// The maximum number of snapshots that wait to be written to files. A waiting snapshot is in host memory.
const MAX_WAITING: usize = 8;

/// The folder of state files for one model.
pub struct Folder {
    path: PathBuf,
    /// The maximum size of all files in the folder together, in bytes.
    pub bytes: u64,
    left: Vec<Left>,
    jobs: Sender<WriteJob>,
    done: Receiver<Written>,
}

/// The file of a cache entry, left in the folder by an earlier engine.
pub struct Left {
    pub path: PathBuf,
    pub bytes: u64,
    pub namespace: String,
    pub tokens: Vec<u32>,
    pub has_logits: bool,
    modified: SystemTime,
}

struct WriteJob {
    entry: u64,
    path: PathBuf,
    namespace: String,
    tokens: Vec<u32>,
    snapshot: Arc<Snapshot>,
}

/// The result of a write: the key of the entry, and the path and the size in bytes of the entry's file. The second part is `None` if the file could
/// not be written.
pub type Written = (u64, Option<(PathBuf, u64)>);

/// Returns the SHA-256 of a namespace in hexadecimal. The hash is the same in every run, so that files of earlier engines are found.
pub fn hashed(namespace: &str) -> String {
    hex(Sha256::digest(namespace.as_bytes()).as_slice())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl Folder {
    /// Opens the folder of a model below `path`, and lists the files of earlier engines.
    ///
    /// # Errors
    /// `File` if the folder cannot be made or read; `Memory` if the thread that writes cannot be started.
    pub fn open(path: &Path, bytes: u64, model: &Model) -> Result<Folder> {
        // Number formats and devices differ in rounding, so an entry from another format or device would change texts. Each combination of weights,
        // number formats and device has its own folder.
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

    /// Returns the files that earlier engines left, the oldest first. A second call returns an empty list.
    pub fn take_left(&mut self) -> Vec<Left> {
        std::mem::take(&mut self.left)
    }

    /// Queues an entry to be written to its file. Returns the path of the file, or `None` if the queue is full.
    pub fn write(&self, entry: u64, namespace: &str, tokens: &[u32], snapshot: Arc<Snapshot>) -> Option<PathBuf> {
        let mut hash = Sha256::new();
        hash.update(namespace);
        tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
        let path = self.path.join(format!("{}.state", hex(hash.finalize().as_slice())));
        let job = WriteJob { entry, path: path.clone(), namespace: namespace.into(), tokens: tokens.to_vec(), snapshot };
        self.jobs.try_send(job).is_ok().then_some(path)
    }

    /// Returns the result of the next finished write, or `None` if no more writes have finished.
    pub fn written(&self) -> Option<Written> {
        self.done.try_recv().ok()
    }

    /// Blocks until the next write has finished. Returns its result, or `None` if the thread that writes has ended.
    pub fn wait(&self) -> Option<Written> {
        receive(&self.done).ok()?
    }
}

/// Reads the state in the file of an entry. Sets the file's modification time to now.
///
/// # Errors
/// Errors of [`Snapshot::load`]; `File` if the file belongs to another entry.
pub fn load(model: &Model, path: &Path, namespace: &str, tokens: &[u32]) -> Result<Snapshot> {
    // Later engines see from the modification time when the entry was last used.
    let touched = fs::File::options().append(true).open(path).and_then(|file| file.set_modified(SystemTime::now()));
    touched.unwrap_or_else(|e| log::debug!("{}: {e}", path.display()));
    let (snapshot, loaded) = Snapshot::load(model, path, false)?;
    // The file may contain another entry, even another caller's. No text may continue from such a state.
    let is_of_entry = loaded.tokens.as_deref() == Some(tokens) && loaded.metadata.get(NAMESPACE).is_some_and(|found| found == namespace);
    match is_of_entry {
        true => Ok(snapshot),
        false => Err(Error::file("expected the state of this entry, found the state of another entry").at(path.display())),
    }
}

/// Removes the file of an entry. A missing file is not an error.
pub fn remove(path: &Path) {
    fs::remove_file(path).unwrap_or_else(|e| log::debug!("{}: {e}", path.display()));
}

/// Reads the tokens and the metadata of a file. Returns `None` if the file is damaged or is not an entry of this model. Removes a damaged file only
/// if it has the name of an entry, because other files may belong to another program. The checksum is compared only when the entry is used, because
/// the folder can hold gigabytes.
fn read_left(path: &Path, model: &Model) -> Option<Left> {
    if path.extension()? != "state" {
        return None;
    }
    let file = fs::metadata(path).ok()?;
    let read = saved_tokens(path).inspect_err(|e| {
        log::warn!("prefix cache: {e}");
        if is_damaged(e) && is_entry(path) {
            remove(path);
        }
    });
    let read = read.ok()?;
    let namespace = read.metadata.get(NAMESPACE)?.clone();
    let is_of_model = read.metadata.get("weights_hash").is_some_and(|hash| hash == model.weights_hash());
    let (bytes, modified) = (file.len(), file.modified().unwrap_or(SystemTime::UNIX_EPOCH));
    is_of_model.then(|| Left { path: path.into(), bytes, namespace, tokens: read.tokens, has_logits: read.has_logits, modified })
}

/// Returns whether a file has the name of an entry: a SHA-256 in hexadecimal.
fn is_entry(path: &Path) -> bool {
    path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| stem.len() == 64 && stem.bytes().all(|c| c.is_ascii_hexdigit()))
}

fn start_writer(model: Model, jobs: Receiver<WriteJob>, done: Sender<Written>) -> Result<()> {
    let work = move || {
        while let Ok(Some(job)) = receive(&jobs) {
            let written = write(&model, &job).inspect_err(|e| log::warn!("prefix cache: {e}")).ok();
            // The error is ignored, because the engine may have ended.
            let _ = done.try_send((job.entry, written.map(|bytes| (job.path, bytes))));
        }
    };
    let thread = std::thread::Builder::new().name("prefix-cache".into()).spawn(work);
    thread.map(drop).map_err(|e| Error::memory(format!("the thread that writes the prefix cache could not be started: {e}")))
}

fn write(model: &Model, job: &WriteJob) -> Result<u64> {
    let metadata = [(NAMESPACE, job.namespace.clone())];
    job.snapshot.save(model, &job.path, StateExtras { tokens: Some(&job.tokens), metadata: &metadata, ..StateExtras::default() })?;
    fs::metadata(&job.path).map(|file| file.len()).map_err(|e| Error::io(e, &job.path))
}
