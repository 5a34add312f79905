//! Named states: where a request begins, and where its text ended.
//!
//! A state is a slot's memory on the host with what the sampler remembers. In a folder, states outlive the engine, and each is a state
//! file as `generate` writes and reads it.

use super::prefix::hashed;
use crate::error::{Error, Result, size};
use crate::sample::{self, Sampler};
use crate::session::{LoadedState, Model, Snapshot, StateExtras, saved_tokens};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Characters of a name, at most.
const MAX_NAME: usize = 100;

/// A state that a request can begin from.
#[derive(Debug)]
pub(super) struct State {
    pub snapshot: Snapshot,
    pub loaded: LoadedState,
}

impl State {
    /// Tells a sampler what was before.
    pub fn begin(&self, sampler: &mut Sampler, seed: Option<u64>) {
        self.loaded.begin(sampler, seed);
    }

    /// What the text before kept back at its end.
    pub fn pending(&self) -> &[u8] {
        &self.loaded.pending
    }

    /// The state of a text that has ended. `tokens` led there, where they are known.
    pub fn new(snapshot: Snapshot, sampler: sample::Memory, pending: Vec<u8>, tokens: Option<Vec<u32>>) -> State {
        let loaded = LoadedState { tokens, sampler: Some(sampler), pending, ..LoadedState::default() };
        State { snapshot, loaded }
    }

    /// The tokens that led here, where they are known.
    pub fn tokens(&self) -> Option<&[u32]> {
        self.loaded.tokens.as_deref()
    }

    fn save(&self, model: &Model, path: &Path) -> Result<()> {
        let LoadedState { tokens, sampler, pending, .. } = &self.loaded;
        self.snapshot.save(model, path, StateExtras { tokens: tokens.as_deref(), sampler: sampler.as_ref(), pending, metadata: &[] })
    }

    fn load(model: &Model, path: &Path) -> Result<State> {
        let (snapshot, loaded) = Snapshot::load(model, path, false)?;
        Ok(State { snapshot, loaded })
    }
}

/// A named state, for a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateInfo {
    pub name: String,
    /// Tokens that it has read.
    pub n_tokens: usize,
    /// Bytes in memory, or of its file where it is in no memory.
    pub bytes: u64,
}

/// States by namespace and name. Namespaces never see each other's.
pub(super) struct States {
    model: Model,
    folder: Option<PathBuf>,
    /// States in memory take at most so many.
    bytes: u64,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    states: HashMap<(String, String), (Arc<State>, u64)>,
    clock: u64,
}

impl States {
    /// States in memory, and in the folder if there is one.
    ///
    /// # Errors
    /// `File`: the folder cannot be made.
    pub fn new(model: &Model, folder: Option<PathBuf>, bytes: u64) -> Result<States> {
        if let Some(folder) = &folder {
            fs::create_dir_all(folder).map_err(|e| Error::io(e, folder))?;
        }
        Ok(States { model: model.clone(), folder, bytes, held: Mutex::default() })
    }

    /// The state of that name.
    ///
    /// # Errors
    /// `Input`: there is none, or the name is none. As [`Snapshot::load`] for its file.
    pub fn get(&self, namespace: &str, name: &str) -> Result<Arc<State>> {
        check_name(name)?;
        let known = {
            let mut held = self.lock();
            held.clock += 1;
            let now = held.clock;
            held.states.get_mut(&key(namespace, name)).map(|(state, last_used)| {
                *last_used = now;
                state.clone()
            })
        };
        match (known, self.path(namespace, name).filter(|path| path.exists())) {
            (Some(state), _) => Ok(state),
            // Not under the lock: others go on while a file is read.
            (None, Some(path)) => {
                let state = Arc::new(State::load(&self.model, &path)?);
                self.hold(&mut self.lock(), namespace, name, state.clone())?;
                Ok(state)
            }
            (None, None) => Err(Error::input(format!("expected the name of a state, found {name:?}, which is none"))),
        }
    }

    /// Keeps a state under a name, in the place of one that had it.
    ///
    /// # Errors
    /// `Input`: the name is none. `Model`: the state is of other weights. `Memory`: there is no room and no folder. `File`: its file cannot be
    /// written.
    pub fn put(&self, namespace: &str, name: &str, state: State) -> Result<StateInfo> {
        check_name(name)?;
        state.snapshot.check_model(&self.model)?;
        if let Some(path) = self.path(namespace, name) {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(|e| Error::io(e, folder))?;
            }
            state.save(&self.model, &path)?;
        }
        let info = info(name, &state);
        self.hold(&mut self.lock(), namespace, name, Arc::new(state))?;
        Ok(info)
    }

    /// Keeps a state in memory. What has a file may leave it.
    fn hold(&self, held: &mut Held, namespace: &str, name: &str, state: Arc<State>) -> Result<()> {
        let new = state.snapshot.n_bytes();
        let key = key(namespace, name);
        let others = |held: &Held| held.states.iter().filter(|(k, _)| **k != key).map(|(_, (s, _))| s.snapshot.n_bytes()).sum::<u64>();
        if self.folder.is_some() {
            while others(held) + new > self.bytes
                && let Some(oldest) =
                    held.states.iter().filter(|(k, _)| **k != key).min_by_key(|(_, (_, used))| *used).map(|(k, _)| k.clone())
            {
                held.states.remove(&oldest);
            }
        } else if others(held) + new > self.bytes {
            let text = format!("states take {} of {}, and this one {}", size(others(held)), size(self.bytes), size(new));
            return Err(Error::memory(text).hint("delete one, or give the engine a folder for states"));
        }
        held.clock += 1;
        let now = held.clock;
        held.states.insert(key, (state, now));
        Ok(())
    }

    /// All states of a namespace, by name.
    ///
    /// # Errors
    /// `File`: the folder cannot be read.
    pub fn list(&self, namespace: &str) -> Result<Vec<StateInfo>> {
        let in_memory = |held: &Held| {
            let own = held.states.iter().filter(|((of, _), _)| of == namespace);
            own.map(|((_, name), (state, _))| info(name, state)).collect()
        };
        let mut all: Vec<StateInfo> = in_memory(&self.lock());
        if let Some(folder) = self.folder_of(namespace).filter(|folder| folder.exists()) {
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
                    Err(e) => log::warn!("states: {e}"),
                }
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Gives a state a second name. Both go on alone.
    ///
    /// # Errors
    /// As [`get`](Self::get) and [`put`](Self::put).
    pub fn fork(&self, namespace: &str, name: &str, new: &str) -> Result<StateInfo> {
        let State { snapshot, loaded } = &*self.get(namespace, name)?;
        self.put(namespace, new, State { snapshot: snapshot.clone(), loaded: loaded.clone() })
    }

    /// Forgets a state, and removes its file. Requests that began from it go on.
    ///
    /// # Errors
    /// `Input`: there is none of that name. `File`: its file cannot be removed.
    pub fn delete(&self, namespace: &str, name: &str) -> Result<()> {
        check_name(name)?;
        // Under the lock, so that nobody reads the file again before it is gone.
        let mut held = self.lock();
        let was_held = held.states.remove(&key(namespace, name)).is_some();
        match self.path(namespace, name).filter(|path| path.exists()) {
            Some(path) => fs::remove_file(&path).map_err(|e| Error::io(e, &path)),
            None if was_held => Ok(()),
            None => Err(Error::input(format!("expected the name of a state, found {name:?}, which is none"))),
        }
    }

    /// Reads a state file and keeps it under a name.
    ///
    /// # Errors
    /// As [`Snapshot::load`] and [`put`](Self::put).
    pub fn load(&self, namespace: &str, name: &str, path: &Path) -> Result<StateInfo> {
        self.put(namespace, name, State::load(&self.model, path)?)
    }

    /// Writes a state to a file.
    ///
    /// # Errors
    /// As [`get`](Self::get) and [`Snapshot::save`].
    pub fn save(&self, namespace: &str, name: &str, path: &Path) -> Result<()> {
        self.get(namespace, name)?.save(&self.model, path)
    }

    fn folder_of(&self, namespace: &str) -> Option<PathBuf> {
        // A hash: a namespace may be the key of an interface, and hold any character.
        let model = &hashed(self.model.weights_hash())[..16];
        Some(self.folder.as_ref()?.join(model).join(&hashed(namespace)[..16]))
    }

    fn path(&self, namespace: &str, name: &str) -> Option<PathBuf> {
        Some(self.folder_of(namespace)?.join(format!("{name}{EXTENSION}")))
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the files of states end.
const EXTENSION: &str = ".state";

fn key(namespace: &str, name: &str) -> (String, String) {
    (namespace.into(), name.into())
}

fn info(name: &str, state: &State) -> StateInfo {
    StateInfo { name: name.into(), n_tokens: state.snapshot.n_tokens(), bytes: state.snapshot.n_bytes() }
}

/// A name is a file's name, too.
pub(super) fn check_name(name: &str) -> Result<()> {
    let is_name = (1..=MAX_NAME).contains(&name.len())
        && !name.starts_with('.')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    match is_name {
        true => Ok(()),
        false => Err(Error::input(format!(
            "expected a name of 1 to {MAX_NAME} letters, digits, dots, dashes and underscores, found {:?}",
            crate::error::short(name, 40)
        ))),
    }
}
