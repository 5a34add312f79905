//! Named states of callers. The storage has a file for each state. The memory of an engine has copies of the states that were used last.

use super::failure::{Answer, Failure};
use super::guard::Caller;
use super::store::{Store, Stored, Version};
use crate::engine::{Engine, StateInfo};
use crate::error::{Error, Result, size};
use axum::http::StatusCode;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The extension of a state's file.
const EXTENSION: &str = ".state";
/// The beginning of the names of states that the server keeps for `/v1/responses`. Listings leave out these states. If a caller's quota is full,
/// the oldest of these states are deleted.
pub const OF_RESPONSES: &str = "resp_";
/// The most bytes that the safetensors header of a state can have.
const MAX_HEADER: u64 = 1 << 20;

/// The states of all callers.
pub struct States {
    store: Store,
    quota: u64,
    /// The version of each state that an engine has in memory, by folder and name.
    held: Mutex<HashMap<(String, String), Version>>,
    /// Held while a file is written.
    writing: tokio::sync::Mutex<()>,
}

/// A state in a listing.
#[derive(Debug, Clone)]
pub struct Listed {
    pub name: String,
    pub bytes: u64,
    /// The number of tokens that led to the state.
    pub n_tokens: usize,
    /// The time of the last change, in seconds since 1970.
    pub modified: i64,
}

impl States {
    pub fn new(store: Store, quota: u64) -> States {
        States { store, quota, held: Mutex::default(), writing: tokio::sync::Mutex::default() }
    }

    /// Returns the storage. Responses are stored there, too.
    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn quota(&self) -> u64 {
        self.quota
    }

    /// Loads the current version of a state into the engine, unless the engine has this version. Returns false if the storage has no such state.
    ///
    /// # Errors
    /// 400 if the name is not valid or the file does not suit the model; 500 if the storage fails.
    pub async fn bring(&self, engine: &Engine, caller: &Caller, name: &str) -> Answer<bool> {
        let (folder, file) = (folder(engine, caller), file(name)?);
        let Some(version) = self.store.version(&folder, &file).await? else { return Ok(false) };
        let key = (folder.clone(), file.clone());
        let is_held = self.held().get(&key) == Some(&version);
        if is_held && engine.has_state(&caller.namespace, name) {
            return Ok(true);
        }
        let Some((content, version)) = self.store.get(&folder, &file).await? else { return Ok(false) };
        load(engine, caller, name, content).await?;
        self.held().insert(key, version);
        Ok(true)
    }

    /// Stores a state that the engine has.
    ///
    /// # Errors
    /// 413 if the caller's quota is full; 500 if the storage fails.
    pub async fn keep(&self, engine: &Engine, caller: &Caller, name: &str) -> Answer<StateInfo> {
        let content = exported(engine, caller, name).await?;
        let n_tokens = header_tokens(&content).unwrap_or(0);
        let bytes = content.len() as u64;
        self.put(engine, caller, name, content, true).await?;
        Ok(StateInfo { name: name.into(), n_tokens, bytes })
    }

    /// Checks an uploaded state and stores it.
    ///
    /// # Errors
    /// 400 if the file is not a state of this model, or has numbers that are not finite; 413 if the quota is full.
    pub async fn upload(&self, engine: &Engine, caller: &Caller, name: &str, content: Bytes) -> Answer<StateInfo> {
        file(name)?;
        self.check_room(engine, caller, name, content.len() as u64).await?;
        // The engine reads the file under another name first, so that a wrong file replaces nothing.
        let trial = super::ids::new_id("upload-");
        load(engine, caller, &trial, content).await?;
        let content = exported(engine, caller, &trial).await;
        let (engine_, namespace) = (engine.clone(), caller.namespace.clone());
        let _ = tokio::task::spawn_blocking(move || engine_.delete_state(&namespace, &trial)).await;
        let content = content?;
        check_finite(&content)?;
        self.put(engine, caller, name, content.clone(), false).await?;
        Ok(StateInfo { name: name.into(), n_tokens: header_tokens(&content).unwrap_or(0), bytes: content.len() as u64 })
    }

    /// Returns the file of a state, or `None` if there is no such state.
    pub async fn download(&self, engine: &Engine, caller: &Caller, name: &str) -> Answer<Option<Bytes>> {
        Ok(self.store.get(&folder(engine, caller), &file(name)?).await?.map(|(content, _)| content))
    }

    /// Copies the state `from` to the state `name`. Returns `None` if there is no state `from`.
    ///
    /// # Errors
    /// 413 if the quota is full.
    pub async fn fork(&self, engine: &Engine, caller: &Caller, from: &str, name: &str) -> Answer<Option<StateInfo>> {
        file(name)?;
        let Some(content) = self.download(engine, caller, from).await? else { return Ok(None) };
        let info = StateInfo { name: name.into(), n_tokens: header_tokens(&content).unwrap_or(0), bytes: content.len() as u64 };
        self.put(engine, caller, name, content, false).await?;
        Ok(Some(info))
    }

    /// Deletes a state. Returns false if there is no such state.
    pub async fn delete(&self, engine: &Engine, caller: &Caller, name: &str) -> Answer<bool> {
        let (folder, file) = (folder(engine, caller), file(name)?);
        self.held().remove(&(folder.clone(), file.clone()));
        let deleted = self.store.delete(&folder, &file).await?;
        let (engine, namespace, name) = (engine.clone(), caller.namespace.clone(), name.to_owned());
        // The engine may have no copy.
        let _ = tokio::task::spawn_blocking(move || engine.delete_state(&namespace, &name)).await;
        Ok(deleted)
    }

    /// Lists the states of a caller, sorted by name.
    pub async fn list(&self, engine: &Engine, caller: &Caller) -> Answer<Vec<Listed>> {
        let folder = folder(engine, caller);
        let mut all = Vec::new();
        for stored in self.store.list(&folder).await? {
            if let Some(name) = stored.name.strip_suffix(EXTENSION).filter(|name| !name.starts_with(OF_RESPONSES)) {
                all.push(self.listed(&folder, &stored, name).await?);
            }
        }
        Ok(all)
    }

    /// Returns the entry of one state in a listing, or `None` if there is no such state.
    pub async fn info(&self, engine: &Engine, caller: &Caller, name: &str) -> Answer<Option<Listed>> {
        let (folder, file) = (folder(engine, caller), file(name)?);
        match self.store.list(&folder).await?.into_iter().find(|stored| stored.name == file) {
            Some(stored) => self.listed(&folder, &stored, name).await.map(Some),
            None => Ok(None),
        }
    }

    async fn listed(&self, folder: &str, stored: &Stored, name: &str) -> Answer<Listed> {
        let first = self.store.get_first(folder, &stored.name, MAX_HEADER).await?;
        let n_tokens = first.and_then(|first| header_tokens(&first)).unwrap_or(0);
        Ok(Listed { name: name.into(), bytes: stored.bytes, n_tokens, modified: stored.modified })
    }

    /// Writes the file of a state. `is_held` is true if the engine has exactly this state under the name. Otherwise the engine's copy, if any, is
    /// outdated, and the next request loads the file.
    async fn put(&self, engine: &Engine, caller: &Caller, name: &str, content: Bytes, is_held: bool) -> Answer<()> {
        let (folder, file) = (folder(engine, caller), file(name)?);
        // One write at a time, so that two states do not take the same room.
        let _writing = self.writing.lock().await;
        self.check_room(engine, caller, name, content.len() as u64).await?;
        self.store.put(&folder, &file, content).await?;
        let key = (folder.clone(), file.clone());
        match self.store.version(&folder, &file).await?.filter(|_| is_held) {
            Some(version) => self.held().insert(key, version),
            None => self.held().remove(&key),
        };
        Ok(())
    }

    /// Checks that a new state of `bytes` fits into the caller's quota. If the quota is full, deletes states of responses, the oldest first, until
    /// the new state fits.
    async fn check_room(&self, engine: &Engine, caller: &Caller, name: &str, bytes: u64) -> Answer<()> {
        let (folder, file) = (folder(engine, caller), file(name)?);
        let mut all = self.store.list(&folder).await?;
        all.retain(|stored| stored.name != file);
        let mut used: u64 = all.iter().map(|stored| stored.bytes).sum();
        let mut old: Vec<&Stored> = all.iter().filter(|stored| stored.name.starts_with(OF_RESPONSES)).collect();
        old.sort_by_key(|stored| stored.modified);
        for stored in old {
            if used + bytes <= self.quota {
                break;
            }
            self.store.delete(&folder, &stored.name).await?;
            used -= stored.bytes;
        }
        if used + bytes <= self.quota {
            return Ok(());
        }
        let text = format!("the state needs {}, and other states use {} of the quota of {}", size(bytes), size(used), size(self.quota));
        Err(Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "quota_exceeded",
            Error::input(text).hint("delete states with DELETE /v1/states/NAME"),
        ))
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<(String, String), Version>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the folder of a caller's states for a model. The folder depends on the weights, because a state belongs to the weights that made it.
pub fn folder(engine: &Engine, caller: &Caller) -> String {
    let short = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).take(16).collect::<String>();
    let owner = if caller.namespace.is_empty() { "public".into() } else { short(&caller.namespace) };
    format!("{}/{owner}", short(engine.model().weights_hash()))
}

/// Returns the name of a state's file.
///
/// # Errors
/// 400 if the name is not valid. A valid name cannot leave the folder.
fn file(name: &str) -> Answer<String> {
    crate::engine::check_state_name(name)?;
    Ok(format!("{name}{EXTENSION}"))
}

/// Loads a state's file into the engine.
async fn load(engine: &Engine, caller: &Caller, name: &str, content: Bytes) -> Answer<()> {
    let (engine, namespace, name) = (engine.clone(), caller.namespace.clone(), name.to_owned());
    let load = move || -> Result<()> {
        let file = tempfile::NamedTempFile::new().map_err(|e| Error::io(e, "a temporary file".as_ref()))?;
        std::fs::write(file.path(), &content).map_err(|e| Error::io(e, file.path()))?;
        // The path of the temporary file means nothing to the caller, and hints name calls of the library.
        let refused = |e: Error| {
            Error { place: None, hint: None, ..e }
                .hint("upload a file that this server, or `wingbeat generate`, saved with the same weights")
        };
        engine.load_state(&namespace, &name, file.path()).map(drop).map_err(refused)
    };
    let loaded = tokio::task::spawn_blocking(load).await.map_err(|_| Error::file("reading the state panicked"))?;
    loaded.map_err(|e| Failure { status: StatusCode::BAD_REQUEST, code: Some("invalid_state"), ..e.into() })
}

/// Returns the file of a state that the engine has.
async fn exported(engine: &Engine, caller: &Caller, name: &str) -> Answer<Bytes> {
    let (engine, namespace, name) = (engine.clone(), caller.namespace.clone(), name.to_owned());
    let export = move || -> Result<Bytes> {
        let folder = tempfile::tempdir().map_err(|e| Error::io(e, "a temporary folder".as_ref()))?;
        let path = folder.path().join("state");
        engine.export_state(&namespace, &name, &path)?;
        std::fs::read(&path).map(Bytes::from).map_err(|e| Error::io(e, &path))
    };
    Ok(tokio::task::spawn_blocking(export).await.map_err(|_| Error::file("writing the state panicked"))??)
}

/// Returns the number of tokens in the metadata of a state's file, or `None` if the file is not a state. `content` is the whole file or its
/// beginning.
fn header_tokens(content: &[u8]) -> Option<usize> {
    let length = u64::from_le_bytes(content.get(..8)?.try_into().ok()?);
    let header = content.get(8..8usize.checked_add(usize::try_from(length).ok()?)?)?;
    let header: serde_json::Value = serde_json::from_slice(header).ok()?;
    header["__metadata__"]["n_tokens"].as_str()?.parse().ok()
}

/// Checks that all numbers of a state's file are finite.
fn check_finite(content: &[u8]) -> Answer<()> {
    let invalid = |text: String| Failure::new(StatusCode::BAD_REQUEST, "invalid_state", Error::input(text));
    let file = safetensors::SafeTensors::deserialize(content).map_err(|e| invalid(format!("the state is damaged: {e}")))?;
    for (name, tensor) in file.tensors() {
        let is_finite = match tensor.dtype() {
            safetensors::Dtype::F32 => tensor.data().chunks_exact(4).all(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]]).is_finite()),
            safetensors::Dtype::F16 => tensor.data().chunks_exact(2).all(|x| half::f16::from_le_bytes([x[0], x[1]]).is_finite()),
            _ => true,
        };
        // A state of RWKV-4 that has seen no token contains -1e30, which is finite.
        if !is_finite {
            return Err(invalid(format!("expected finite numbers, found NaN or infinity in {name}")));
        }
    }
    Ok(())
}
