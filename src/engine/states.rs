//! Named states: a request begins with a named state (`state`), or saves the state after its text under a name (`save_state`).
//!
//! A state consists of a slot's snapshot and the sampler's memory. With a folder, a separate thread also writes each state to a state file. `wingbeat
//! generate` can read such files, too.

mod files;
mod writer;

use super::options::StateOptions;
use super::prefix::hashed;
use crate::error::{Error, Kind, Result, size};
use crate::exec::wait::receive;
use crate::sample::{self, Sampler};
use crate::session::{LoadedState, Model, Snapshot, StateExtras, is_damaged, saved_tokens};
use async_channel::{Receiver, Sender};
use files::{EXTENSION, FileVersion, aside, version};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The maximum length of a state's name, in bytes.
const MAX_NAME: usize = 100;

/// A state from which a request can begin.
#[derive(Debug)]
pub(super) struct State {
    pub snapshot: Snapshot,
    pub loaded: LoadedState,
}

impl State {
    /// Restores the state's penalty counts, recent tokens and random stream in `sampler`. If `seed` is given, the random stream of this seed replaces
    /// the state's. If the state has no sampler, `sampler` reads the state's tokens instead.
    pub fn begin(&self, sampler: &mut Sampler, seed: Option<u64>) {
        self.loaded.begin(sampler, seed);
    }

    /// Returns the seed of the state's sampler, or `None` if the state has no sampler.
    pub fn seed(&self) -> Option<u64> {
        self.loaded.sampler.as_ref().map(|memory| memory.seed)
    }

    /// Returns the bytes at the end of the state's tokens that are not part of a text yet: an incomplete character, or the beginning of a stop
    /// text.
    pub fn pending(&self) -> &[u8] {
        &self.loaded.pending
    }

    /// Returns the state after a text. `tokens` are all tokens of the state, or `None` if the tokens are unknown.
    pub fn new(snapshot: Snapshot, sampler: sample::Memory, pending: Vec<u8>, tokens: Option<Vec<u32>>) -> State {
        let loaded = LoadedState { tokens, sampler: Some(sampler), pending, ..LoadedState::default() };
        State { snapshot, loaded }
    }

    /// Returns the tokens of the state, or `None` if the tokens are unknown.
    pub fn tokens(&self) -> Option<&[u32]> {
        self.loaded.tokens.as_deref()
    }

    fn save(&self, model: &Model, path: &Path) -> Result<()> {
        self.snapshot.save(model, path, self.extras())
    }

    fn extras(&self) -> StateExtras<'_> {
        let LoadedState { tokens, sampler, pending, .. } = &self.loaded;
        StateExtras { tokens: tokens.as_deref(), sampler: sampler.as_ref(), pending, metadata: &[] }
    }

    fn load(model: &Model, path: &Path) -> Result<State> {
        let (snapshot, loaded) = Snapshot::load(model, path, false)?;
        Ok(State { snapshot, loaded })
    }
}

/// The name and the size of a named state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateInfo {
    /// The name of the state.
    pub name: String,
    /// The number of tokens that led to the state.
    pub n_tokens: usize,
    /// The number of bytes that the state takes in host memory, or in its file if the state is not in memory.
    pub bytes: u64,
}

/// Named states by namespace and name. A request never sees the states of another namespace.
pub(super) struct States {
    inner: Arc<Inner>,
    /// The thread that writes files. `None` if there is no folder.
    writer: Option<writer::Writer>,
}

struct Inner {
    model: Model,
    folder: Option<PathBuf>,
    /// The maximum size of the states in host memory, in bytes.
    bytes: u64,
    /// True if a state may be removed from memory although it has no file.
    forgets: bool,
    held: Mutex<Held>,
    /// Signals that a file has been written.
    written: Condvar,
    /// The writer takes this lock before each file. Tests hold the lock to delay the writer.
    #[cfg(test)]
    gate: Mutex<()>,
}

#[derive(Default)]
struct Held {
    states: HashMap<Key, (Arc<State>, u64)>,
    /// States whose files are being written or wait for the writer. The number identifies the latest write under this name. When an older write
    /// finishes, the entry stays.
    writing: HashMap<Key, (Arc<State>, u64)>,
    clock: u64,
}

/// The namespace and the name of a state.
type Key = (String, String);

impl States {
    /// Opens the folder for state files if `options` has a folder. `wake` receives a message whenever a file has been written.
    ///
    /// # Errors
    /// `File` if the folder cannot be made; `Memory` if the thread that writes cannot be started.
    pub fn new(model: &Model, options: &StateOptions, wake: Sender<()>) -> Result<States> {
        let folder = options.folder.clone();
        if let Some(folder) = &folder {
            fs::create_dir_all(folder).map_err(|e| Error::io(e, folder))?;
        }
        let inner = Arc::new(Inner {
            model: model.clone(),
            folder,
            bytes: options.bytes,
            forgets: options.forgets,
            held: Mutex::default(),
            written: Condvar::new(),
            #[cfg(test)]
            gate: Mutex::default(),
        });
        let writer = inner.folder.is_some().then(|| writer::Writer::start(inner.clone(), wake)).transpose()?;
        Ok(States { inner, writer })
    }

    /// Delays the thread that writes files until the guard is dropped.
    #[cfg(test)]
    pub fn hold_writer(&self) -> MutexGuard<'_, ()> {
        self.inner.gate.lock().unwrap()
    }

    /// Returns the state with this name, even while its file is being written.
    ///
    /// # Errors
    /// `Input` if the name is unknown or invalid; errors of [`Snapshot::load`] if the file must be read. A damaged file is renamed, so the name is
    /// then unknown.
    pub fn get(&self, namespace: &str, name: &str) -> Result<Arc<State>> {
        check_name(name)?;
        let key = key(namespace, name);
        let known = {
            let mut held = self.inner.lock();
            held.clock += 1;
            let now = held.clock;
            let known = held.states.get_mut(&key).map(|(state, last_used)| {
                *last_used = now;
                state.clone()
            });
            held.writing(&key).or(known)
        };
        match (known, self.inner.path(namespace, name).filter(|path| path.exists())) {
            (Some(state), _) => Ok(state),
            // The file is read without the lock, so that other callers can continue.
            (None, Some(path)) => {
                let read = version(&path);
                let state = State::load(&self.inner.model, &path).map_err(|e| self.inner.set_aside(&key, &path, &read, e))?;
                let state = Arc::new(state);
                self.inner.hold(&mut self.inner.lock(), key, state.clone())?;
                Ok(state)
            }
            (None, None) => Err(self.inner.unknown(&self.inner.lock(), namespace, name)),
        }
    }

    /// Returns whether a state with this name is in memory.
    pub fn holds(&self, namespace: &str, name: &str) -> bool {
        self.inner.lock().states.contains_key(&key(namespace, name))
    }

    /// Keeps a state under a name and replaces an older state of that name. With a folder, blocks until its file is written.
    ///
    /// # Errors
    /// Errors of [`begin_put`](Self::begin_put).
    pub fn put(&self, namespace: &str, name: &str, state: State) -> Result<StateInfo> {
        let saved = self.begin_put(namespace, name, state);
        receive(&saved)?.unwrap_or_else(|| Err(Error::device("the thread that writes states has ended")))
    }

    /// Begins to keep a state under a name, and replaces an older state of that name. Returns a channel that receives the result: after the file is
    /// written, or at once if there is no folder. Blocks while eight states wait to be written.
    ///
    /// # Errors
    /// The channel receives an error: `Input` if the name is invalid; `Model` if the state belongs to other weights; `Memory` if there is neither
    /// room nor a folder; `File` if the file cannot be written.
    pub fn begin_put(&self, namespace: &str, name: &str, state: State) -> Receiver<Result<StateInfo>> {
        let (saved, is_saved) = async_channel::bounded(1);
        let checked = check_name(name).and_then(|()| state.snapshot.check_model(&self.inner.model));
        let info = info(name, &state);
        let (key, state) = (key(namespace, name), Arc::new(state));
        if let (Some(writer), Ok(())) = (&self.writer, &checked) {
            writer.write(key, state, info, saved);
            return is_saved;
        }
        let held = checked.and_then(|()| self.inner.hold(&mut self.inner.lock(), key, state));
        let _ = saved.try_send(held.map(|()| info));
        is_saved
    }

    /// Lists the states of a namespace, sorted by name.
    ///
    /// # Errors
    /// `File` if the folder cannot be read.
    pub fn list(&self, namespace: &str) -> Result<Vec<StateInfo>> {
        let mut all = self.inner.lock().list(namespace);
        if let Some(folder) = self.inner.folder_of(namespace).filter(|folder| folder.exists()) {
            for file in fs::read_dir(&folder).map_err(|e| Error::io(e, &folder))?.flatten() {
                let path = file.path();
                let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(EXTENSION)) else { continue };
                if check_name(name).is_err() || all.iter().any(|known| known.name == name) {
                    continue;
                }
                match saved_tokens(&path) {
                    Ok(saved) => {
                        let bytes = file.metadata().map_or(0, |m| m.len());
                        all.push(StateInfo { name: name.into(), n_tokens: saved.n_tokens, bytes });
                    }
                    // A damaged file is put aside only when a request uses the state.
                    Err(e) => log::warn!("states: {e}"),
                }
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Copies the state `name` to the name `new`, and replaces an older state of that name.
    ///
    /// # Errors
    /// Errors of [`get`](Self::get) and [`put`](Self::put).
    pub fn fork(&self, namespace: &str, name: &str, new: &str) -> Result<StateInfo> {
        let State { snapshot, loaded } = &*self.get(namespace, name)?;
        self.put(namespace, new, State { snapshot: snapshot.clone(), loaded: loaded.clone() })
    }

    /// Gives the state `name` the name `new`, and replaces an older state of that name. Returns false if no state in memory has the name `name`. Only
    /// for states without files, because a file would keep its old name.
    pub fn rename(&self, namespace: &str, name: &str, new: &str) -> bool {
        let mut held = self.inner.lock();
        let Some(state) = held.states.remove(&key(namespace, name)) else { return false };
        held.states.insert(key(namespace, new), state);
        true
    }

    /// Deletes a state and its file, even a damaged file. Blocks while the file is being written. Requests that began from the state continue.
    ///
    /// # Errors
    /// `Input` if the name is unknown or invalid; `File` if the file cannot be removed.
    pub fn delete(&self, namespace: &str, name: &str) -> Result<()> {
        check_name(name)?;
        let key = key(namespace, name);
        // Holding the lock keeps new writes of this state from beginning before its file is removed.
        let held = self.inner.lock();
        let mut held = self.inner.written.wait_while(held, |held| held.writing.contains_key(&key)).unwrap_or_else(PoisonError::into_inner);
        let mut was_there = held.states.remove(&key).is_some();
        let files = self.inner.path(namespace, name).map(|path| [aside(&path), path]);
        for path in files.into_iter().flatten().filter(|path| path.exists()) {
            fs::remove_file(&path).map_err(|e| Error::io(e, &path))?;
            was_there = true;
        }
        if was_there { Ok(()) } else { Err(self.inner.unknown(&held, namespace, name)) }
    }

    /// Reads a state file and keeps the state under a name.
    ///
    /// # Errors
    /// Errors of [`Snapshot::load`] and [`put`](Self::put).
    pub fn load(&self, namespace: &str, name: &str, path: &Path) -> Result<StateInfo> {
        self.put(namespace, name, State::load(&self.inner.model, path)?)
    }

    /// Returns the bytes of the file that [`save`](Self::save) writes.
    ///
    /// # Errors
    /// Errors of [`get`](Self::get) and [`Snapshot::bytes`].
    pub fn bytes(&self, namespace: &str, name: &str) -> Result<Vec<u8>> {
        let state = self.get(namespace, name)?;
        state.snapshot.bytes(&self.inner.model, state.extras())
    }

    /// Writes a state to a file.
    ///
    /// # Errors
    /// Errors of [`get`](Self::get) and [`Snapshot::save`].
    pub fn save(&self, namespace: &str, name: &str, path: &Path) -> Result<()> {
        self.get(namespace, name)?.save(&self.inner.model, path)
    }
}

impl Inner {
    /// Keeps a state in memory. If the memory is full, removes the least recently used states, if states may be removed.
    ///
    /// # Errors
    /// `Memory` if there is no folder, and either no state may be removed to make room or the state alone exceeds the limit.
    fn hold(&self, held: &mut Held, key: Key, state: Arc<State>) -> Result<()> {
        let new = state.snapshot.n_bytes();
        let others = |held: &Held| held.states.iter().filter(|(k, _)| **k != key).map(|(_, (s, _))| s.snapshot.n_bytes()).sum::<u64>();
        if self.folder.is_some() || self.forgets && new <= self.bytes {
            while others(held) + new > self.bytes
                && let Some(oldest) =
                    held.states.iter().filter(|(k, _)| **k != key).min_by_key(|(_, (_, used))| *used).map(|(k, _)| k.clone())
            {
                held.states.remove(&oldest);
            }
        } else if others(held) + new > self.bytes {
            let text =
                format!("no memory for a state of {}: other states take {} of at most {}", size(new), size(others(held)), size(self.bytes));
            return Err(Error::memory(text).hint("delete another state, or give the engine a folder for states"));
        }
        held.clock += 1;
        let now = held.clock;
        held.states.insert(key, (state, now));
        Ok(())
    }

    fn folder_of(&self, namespace: &str) -> Option<PathBuf> {
        // A namespace may be an API key and may contain any character, so its hash is the name of the folder.
        let model = &hashed(self.model.weights_hash())[..16];
        Some(self.folder.as_ref()?.join(model).join(&hashed(namespace)[..16]))
    }

    fn path(&self, namespace: &str, name: &str) -> Option<PathBuf> {
        Some(self.folder_of(namespace)?.join(format!("{name}{EXTENSION}")))
    }

    /// Renames the file of a state if `e`, the error from reading, means damage. So the next save does not replace a file that its owner may want to
    /// repair. `read` is the version of the file that was read. Writes one line to the log. Returns the error, which then names the new file.
    fn set_aside(&self, key: &Key, path: &Path, read: &Option<FileVersion>, e: Error) -> Error {
        let held = self.lock();
        // Another caller may have replaced the damaged file, or replaces it now.
        if !is_damaged(&e) || held.writing.contains_key(key) || version(path) != *read {
            log::warn!("states: {e}");
            return e;
        }
        let aside = aside(path);
        match fs::rename(path, &aside) {
            Ok(()) => {
                let e = Error { hint: None, ..e }.hint(format!("save the state again; the damaged file is now {}", aside.display()));
                log::warn!("states: {e}");
                e
            }
            Err(io) => {
                log::warn!("states: {e}; the file cannot be renamed: {io}");
                e
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the error for an unknown name. Its hint lists names of states in the namespace.
    fn unknown(&self, held: &Held, namespace: &str, name: &str) -> Error {
        let mut names: Vec<String> = held.list(namespace).into_iter().map(|known| known.name).collect();
        let files = self.folder_of(namespace).and_then(|folder| fs::read_dir(folder).ok());
        let in_folder =
            files.into_iter().flatten().flatten().filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(EXTENSION)?.into()));
        names.extend(in_folder.take(MAX_LISTED));
        names.sort();
        names.dedup();
        names.truncate(MAX_LISTED);
        let e = Error::input(format!("{UNKNOWN} {name:?}"));
        match names.is_empty() {
            true => e.hint("no state has been saved yet: save one with `save_state`, or begin without a state"),
            false => e.hint(format!("saved states: {}", names.join(", "))),
        }
    }
}

impl Held {
    fn writing(&self, key: &Key) -> Option<Arc<State>> {
        self.writing.get(key).map(|(state, _)| state.clone())
    }

    /// Returns the states in memory that belong to a namespace.
    fn list(&self, namespace: &str) -> Vec<StateInfo> {
        let mut all: HashMap<&str, &State> = HashMap::new();
        let of = |(of, _): &&Key| of == namespace;
        all.extend(self.states.iter().filter(|(key, _)| of(key)).map(|((_, name), (state, _))| (name.as_str(), &**state)));
        all.extend(self.writing.iter().filter(|(key, _)| of(key)).map(|((_, name), (state, _))| (name.as_str(), &**state)));
        all.into_iter().map(|(name, state)| info(name, state)).collect()
    }
}

fn key(namespace: &str, name: &str) -> Key {
    (namespace.into(), name.into())
}

/// The beginning of the error about an unknown state.
const UNKNOWN: &str = "unknown state";

/// Returns whether an error says that a state's name is unknown.
pub fn is_unknown_state(e: &Error) -> bool {
    e.kind == Kind::Input && e.message.starts_with(UNKNOWN)
}

/// The maximum number of names in the error about an unknown state.
const MAX_LISTED: usize = 20;

fn info(name: &str, state: &State) -> StateInfo {
    StateInfo { name: name.into(), n_tokens: state.snapshot.n_tokens(), bytes: state.snapshot.n_bytes() }
}

/// Checks that a text can be the name of a state: 1 to 100 letters, digits, dots, dashes and underscores, without a dot at the beginning. Such a name
/// is also safe as a file's name.
///
/// # Errors
/// `Input` if the text is not a name.
pub fn check_name(name: &str) -> Result<()> {
    let is_name = (1..=MAX_NAME).contains(&name.len())
        && !name.starts_with('.')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    match is_name {
        true => Ok(()),
        false => Err(Error::input(format!(
            "expected a state's name of 1 to {MAX_NAME} letters, digits, dots, dashes and underscores, without a dot at the beginning; found {:?}",
            crate::error::short(name, 40)
        ))),
    }
}
