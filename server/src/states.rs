//! Named states of callers. The storage has a file for each state. The memory of an engine has copies of the states that were used last.

use super::failure::{Answer, Failure, blocking};
use super::guard::Caller;
use super::store::{DAMAGED, FileVersion, Store, Stored};
use axum::http::StatusCode;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use wingbeat::engine::{Engine, StateInfo, is_unknown_state};
use wingbeat::error::{Error, Kind};
use wingbeat::low_level::front_end::size;
use wingbeat::low_level::session::{check_state_file, is_damaged};

/// The extension of a state's file.
const EXTENSION: &str = ".state";
/// The prefix of the names of states that the server keeps for `/v1/responses`. Listings leave these states out. If a caller's quota is full, the
/// oldest of these states are deleted.
pub const OF_RESPONSES: &str = "resp_";
/// The maximum number of entries in `States::held`. If there are more, all entries are dropped.
const MAX_HELD: usize = 1 << 16;
/// The maximum size of the safetensors header in a state's file, in bytes.
const MAX_HEADER: u64 = 1 << 20;

/// The states of all callers.
pub struct States {
    store: Store,
    /// The maximum size of a caller's states of a model, in bytes. `None` sets no limit.
    quota: Option<u64>,
    /// The version of each state that an engine has in memory. The key is the engine's id, the folder and the file.
    held: Mutex<HashMap<(usize, String, String), FileVersion>>,
    /// For each folder, a lock that is held while a file is written.
    writing: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// A state that the engine has under a temporary name. Dropping this guard deletes the state, for example after an error or when the client has left.
/// A renamed state stays.
struct Temporary<'a> {
    engine: &'a Engine,
    namespace: &'a str,
    name: String,
}

impl<'a> Temporary<'a> {
    fn new(engine: &'a Engine, caller: &'a Caller, name: String) -> Temporary<'a> {
        Temporary { engine, namespace: &caller.namespace, name }
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // Fails if the state was renamed, or if other states have displaced it.
        let _ = self.engine.delete_state(self.namespace, &self.name);
    }
}

/// A state in a listing.
#[derive(Debug, Clone)]
pub struct Listed {
    pub info: StateInfo,
    /// The time of the state's last change, in seconds since 1970.
    pub modified: i64,
}

impl States {
    pub fn new(store: Store, quota: Option<u64>) -> States {
        States { store, quota, held: Mutex::default(), writing: Mutex::default() }
    }

    /// Returns the storage. Responses are stored there, too.
    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn quota(&self) -> Option<u64> {
        self.quota
    }

    /// Loads the current version of a state into the engine, unless the engine has this version. Returns false if the storage has no such state.
    ///
    /// # Errors
    /// 400 if the name is not valid, or the context is too short for the state; 500 if the storage fails, or the file is damaged. A damaged file is
    /// renamed (deleted if it belongs to a response), so the storage has no such state then.
    pub async fn bring(&self, engine: &Engine, caller: &Caller, name: &str) -> Answer<bool> {
        let (folder, file) = (folder(engine, caller), file(name)?);
        let Some(version) = self.store.version(&folder, &file).await? else { return Ok(false) };
        let is_held = self.held().get(&(engine.id(), folder.clone(), file.clone())) == Some(&version);
        if is_held && engine.has_state(&caller.namespace, name) {
            return Ok(true);
        }
        let Some((content, version)) = self.store.get(&folder, &file).await? else { return Ok(false) };
        let loaded = Temporary::new(engine, caller, super::ids::new_id("loading-"));
        if let Err(e) = self.load(engine, caller, &loaded.name, content).await {
            return Err(self.unreadable(&folder, name, &version, e).await);
        }
        self.hold(engine, caller, &loaded.name, name, version)?;
        Ok(true)
    }

    /// Returns the failure for a stored state that cannot be read. Renames a damaged file, or deletes it if it belongs to a response, because the response
    /// has its text.
    async fn unreadable(&self, folder: &str, name: &str, version: &FileVersion, mut e: Error) -> Failure {
        // A client cannot use these fields: the place is a name within the engine, and the hint names functions of the library.
        (e.place, e.field, e.hint) = (None, None, None);
        if !is_damaged(&e) {
            return e.into();
        }
        let file = format!("{name}{EXTENSION}");
        let (done, hint) = match name.starts_with(OF_RESPONSES) {
            true => (self.store.delete(folder, &file).await.map(drop), "it was deleted".into()),
            false => {
                (self.store.set_aside(folder, &file, version).await, format!("save it again; the damaged file is now {file}{DAMAGED}"))
            }
        };
        if let Err(e) = done {
            return e.into();
        }
        e.message = format!("the state {name:?} cannot be read: {}", e.message);
        e.hint(hint).into()
    }

    /// Returns the file of a state, or `None` if there is no such state.
    ///
    /// # Errors
    /// 500 if the file is damaged. The file is then renamed, or deleted if it belongs to a response.
    async fn content(&self, folder: &str, name: &str) -> Answer<Option<Bytes>> {
        let Some((content, version)) = self.store.get(folder, &file(name)?).await? else { return Ok(None) };
        match check_state_file(&content) {
            Ok(()) => Ok(Some(content)),
            Err(e) => Err(self.unreadable(folder, name, &version, e).await),
        }
    }

    /// Renames the engine's state `new` to `name`, and records that its content is `version` of the stored file. Does both under one lock: otherwise, the
    /// engine could have the content of one request, and `held` the version of another.
    fn hold(&self, engine: &Engine, caller: &Caller, new: &str, name: &str, version: FileVersion) -> Answer<()> {
        let key = (engine.id(), folder(engine, caller), file(name)?);
        let mut held = self.held();
        // A state without an entry is only loaded once more, so dropping all entries is harmless.
        if held.len() >= MAX_HELD {
            held.clear();
        }
        match engine.rename_state(&caller.namespace, new, name) {
            true => held.insert(key, version),
            // Other states have displaced `new` from the engine's memory.
            false => held.remove(&key),
        };
        Ok(())
    }

    /// Stores the engine's state `saved` under the name `name`. The engine then has the state under this name, so the next request of a session reads
    /// only the version from the storage.
    ///
    /// # Errors
    /// 413 if the caller's quota is full; 507 if the server cannot store the file.
    pub async fn keep(&self, engine: &Engine, caller: &Caller, saved: &str, name: &str) -> Answer<StateInfo> {
        self.store_new(engine, caller, Temporary::new(engine, caller, saved.into()), name, false).await
    }

    /// Checks an uploaded state and stores it.
    ///
    /// # Errors
    /// 400 if the file is not a state of this model, or has numbers that are too large; 413 if the quota is full; 507 if the server cannot store the
    /// file.
    pub async fn upload(&self, engine: &Engine, caller: &Caller, name: &str, content: Bytes) -> Answer<StateInfo> {
        file(name)?;
        // The engine reads the file under another name first, so that a wrong file replaces nothing.
        let trial = Temporary::new(engine, caller, super::ids::new_id("upload-"));
        self.load(engine, caller, &trial.name, content).await.map_err(refused)?;
        self.store_new(engine, caller, trial, name, true).await
    }

    /// Stores the engine's state `new` under the name `name`. If `is_foreign` is true, a caller has uploaded the state, so its numbers are checked.
    async fn store_new(&self, engine: &Engine, caller: &Caller, new: Temporary<'_>, name: &str, is_foreign: bool) -> Answer<StateInfo> {
        let content = self.exported(engine, caller, &new.name, is_foreign).await?;
        let (info, version) = self.put_state(engine, caller, name, content).await?;
        self.hold(engine, caller, &new.name, name, version)?;
        Ok(info)
    }

    /// Returns the file of a state, or `None` if there is no such state.
    ///
    /// # Errors
    /// 500 if the file is damaged. The file is then renamed, or deleted if it belongs to a response.
    pub async fn download(&self, engine: &Engine, caller: &Caller, name: &str) -> Answer<Option<Bytes>> {
        self.content(&folder(engine, caller), name).await
    }

    /// Copies the state `from` to the state `name`. Returns `None` if there is no state `from`.
    ///
    /// # Errors
    /// 413 if the quota is full; 500 if the file of `from` is damaged; 507 if the server cannot store the copy.
    pub async fn fork(&self, engine: &Engine, caller: &Caller, from: &str, name: &str) -> Answer<Option<StateInfo>> {
        file(name)?;
        let Some(content) = self.download(engine, caller, from).await? else { return Ok(None) };
        self.put_state(engine, caller, name, content).await.map(|(info, _)| Some(info))
    }

    /// Deletes a state, and its damaged file. Returns false if there is no such state.
    pub async fn delete(&self, engine: &Engine, caller: &Caller, name: &str) -> Answer<bool> {
        let (folder, file) = (folder(engine, caller), file(name)?);
        let mut deleted = self.store.delete(&folder, &file).await?;
        deleted |= self.store.delete(&folder, &format!("{file}{DAMAGED}")).await?;
        let (engine, namespace, name) = (engine.clone(), caller.namespace.clone(), name.to_owned());
        // An error is ignored, because the engine may have no copy of the state.
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
        Ok(Listed { info: StateInfo { name: name.into(), n_tokens, bytes: stored.bytes }, modified: stored.modified })
    }

    async fn put_state(&self, engine: &Engine, caller: &Caller, name: &str, content: Bytes) -> Answer<(StateInfo, FileVersion)> {
        let info = StateInfo { name: name.into(), n_tokens: header_tokens(&content).unwrap_or(0), bytes: content.len() as u64 };
        let version = self.put(&folder(engine, caller), &file(name)?, content).await?;
        Ok((info, version))
    }

    /// Writes a file to the folder of a caller, within the caller's quota, and returns the file's version. Without a quota, the storage is not asked
    /// for a list of the files.
    ///
    /// # Errors
    /// 413 if the quota is full; 507 if the server cannot store the file.
    pub async fn put(&self, folder: &str, file: &str, content: Bytes) -> Answer<FileVersion> {
        let write = async |content| self.store.put(folder, file, content).await.map_err(|e| Failure::from(e).unstored());
        let Some(quota) = self.quota else { return write(content).await };
        // A caller has only one write at a time. Otherwise, two files could claim the same free bytes of the quota.
        let lock = self.writing.lock().unwrap_or_else(PoisonError::into_inner).entry(folder.into()).or_default().clone();
        let _writing = lock.lock().await;
        self.make_room(folder, file, content.len() as u64, quota).await.map_err(Failure::unstored)?;
        write(content).await
    }

    /// Returns how many bytes the new state `name` of a caller can have. The new state would replace an older state of this name, so that state's
    /// bytes count as free.
    pub async fn room(&self, engine: &Engine, caller: &Caller, name: &str) -> Answer<u64> {
        let Some(quota) = self.quota else { return Ok(u64::MAX) };
        let (folder, file) = (folder(engine, caller), file(name)?);
        let used: u64 = self.store.list(&folder).await?.iter().filter(|stored| is_fixed(stored, &file)).map(|stored| stored.bytes).sum();
        Ok(quota.saturating_sub(used))
    }

    /// Makes room for a new file of `bytes` bytes. Deletes files of responses and damaged files, the oldest first, until the new file fits.
    async fn make_room(&self, folder: &str, file: &str, bytes: u64, quota: u64) -> Answer<()> {
        let all = self.store.list(folder).await?;
        let fixed: u64 = all.iter().filter(|stored| is_fixed(stored, file)).map(|stored| stored.bytes).sum();
        if fixed + bytes > quota {
            let text = format!("the new file needs {}, and saved states use {} of the quota of {}", size(bytes), size(fixed), size(quota));
            let e = Error::input(text).hint("delete states with DELETE /v1/states/NAME");
            return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "quota_exceeded", e));
        }
        let mut old: Vec<&Stored> = all.iter().filter(|stored| stored.name != file && !is_fixed(stored, file)).collect();
        old.sort_by_key(|stored| stored.modified);
        let mut used = fixed + old.iter().map(|stored| stored.bytes).sum::<u64>();
        for stored in old {
            if used + bytes <= quota {
                break;
            }
            self.store.delete(folder, &stored.name).await?;
            if stored.name.ends_with(DAMAGED) {
                log::warn!("{folder}/{}: this damaged file was deleted, because the quota is full", stored.name);
            }
            used -= stored.bytes;
        }
        Ok(())
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<(usize, String, String), FileVersion>> {
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
    wingbeat::engine::check_state_name(name)?;
    Ok(format!("{name}{EXTENSION}"))
}

/// Checks that a caller may give this name to a new state.
///
/// # Errors
/// 400 that names `field` if the name is not valid, or belongs to a response.
pub fn check_new_name(name: &str, field: &str) -> Answer<()> {
    if name.starts_with(OF_RESPONSES) {
        let e = Error::input(format!("the names that begin with {OF_RESPONSES} belong to /v1/responses"));
        return Err(e.field(field).hint("choose another name").into());
    }
    wingbeat::engine::check_state_name(name).map_err(|e| e.field(field).into())
}

/// Returns the failure for an upload that the engine does not accept.
fn refused(mut e: Error) -> Failure {
    if !matches!(e.kind, Kind::File | Kind::Model | Kind::Input) {
        return e.into();
    }
    // A caller cannot use these fields: the place is a name within the engine, and the hint names functions of the library.
    (e.place, e.field, e.hint) = (None, None, None);
    let e = e.hint("upload a file that this server, or `wingbeat generate`, saved with the same weights");
    Failure::new(StatusCode::BAD_REQUEST, "invalid_state", e)
}

impl States {
    /// Loads a state's file into the engine. The file stays in memory: it has private text, and a killed server would leave a temporary file.
    async fn load(&self, engine: &Engine, caller: &Caller, name: &str, content: Bytes) -> Result<(), Error> {
        let (engine, namespace, name) = (engine.clone(), caller.namespace.clone(), name.to_owned());
        blocking(move || engine.import_state(&namespace, &name, content).map(drop)).await
    }

    /// Exports the state `name` from the engine. Returns the content of the state's file. If `is_foreign` is true, a caller
    /// has uploaded the state, so its numbers are checked.
    ///
    /// # Errors
    /// 400 if a number is too large; 507 if other states have displaced the state from the engine's memory.
    async fn exported(&self, engine: &Engine, caller: &Caller, name: &str, is_foreign: bool) -> Answer<Bytes> {
        let (engine, namespace, name) = (engine.clone(), caller.namespace.clone(), name.to_owned());
        let export = move || -> Answer<Bytes> {
            let content = engine.state_bytes(&namespace, &name).map_err(|e| match is_unknown_state(&e) {
                // The temporary name means nothing to the caller.
                true => Failure::from(Error::file("other states displaced the new state from memory")),
                false => e.into(),
            });
            let content = content.map_err(Failure::unstored)?;
            if is_foreign {
                check_numbers(&content)?;
            }
            Ok(content.into())
        };
        blocking(export).await
    }
}

/// Returns whether a stored file must stay when the new file `file` needs room. Files of responses and damaged files can be deleted, and an older file
/// with the name `file` is replaced.
fn is_fixed(stored: &Stored, file: &str) -> bool {
    stored.name != file && !stored.name.starts_with(OF_RESPONSES) && !stored.name.ends_with(DAMAGED)
}

/// Returns the number of tokens in the metadata of a state's file, or `None` if the file is not a state. `content` is the whole file or its
/// beginning.
fn header_tokens(content: &[u8]) -> Option<usize> {
    let length = u64::from_le_bytes(content.get(..8)?.try_into().ok()?);
    let header = content.get(8..8usize.checked_add(usize::try_from(length).ok()?)?)?;
    let header: serde_json::Value = serde_json::from_slice(header).ok()?;
    header["__metadata__"]["n_tokens"].as_str()?.parse().ok()
}

/// The largest magnitude of a number in an uploaded state. A norm squares numbers that are computed from the state, and f32 must not overflow.
const LARGEST: f32 = 1e15;
/// An allowed exception: the exponent of a zero weight, in a state of RWKV-4 before its first token.
const NO_WEIGHT: f32 = -1e30;

/// Checks that a model can compute with all numbers of a state's file.
fn check_numbers(content: &[u8]) -> Answer<()> {
    let invalid = |text: String| Failure::new(StatusCode::BAD_REQUEST, "invalid_state", Error::input(text));
    let file = safetensors::SafeTensors::deserialize(content).map_err(|e| invalid(format!("the state is damaged: {e}")))?;
    for (name, tensor) in file.tensors() {
        let fits = |x: f32| x.abs() <= LARGEST || x == NO_WEIGHT;
        let all_fit = match tensor.dtype() {
            safetensors::Dtype::F32 => tensor.data().chunks_exact(4).all(|x| fits(f32::from_le_bytes([x[0], x[1], x[2], x[3]]))),
            safetensors::Dtype::F16 => tensor.data().chunks_exact(2).all(|x| half::f16::from_le_bytes([x[0], x[1]]).is_finite()),
            _ => true,
        };
        if !all_fit {
            return Err(invalid(format!(
                "expected numbers from -{LARGEST:e} to {LARGEST:e}, found larger numbers, infinity or NaN in {name}"
            )));
        }
    }
    Ok(())
}
