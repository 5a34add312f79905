//! Options of an engine.

use crate::chat::Format;
use std::path::PathBuf;

/// Options of an engine. Start from `EngineOptions::default()`.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The number of slots, 1 to 1023. Each slot runs one continuation at a time.
    pub slots: usize,
    /// The most requests that may wait for slots. A further request is refused with [`Kind::Busy`](crate::error::Kind::Busy).
    pub queue: usize,
    /// The longest time of a step in which one request prefills while others decode, as a multiple of the time of a step that only decodes.
    /// `None` sets no limit: each step prefills a whole chunk, which gives the highest throughput.
    pub prefill_slowdown: Option<f64>,
    /// The most bytes of events that the reader of a request may leave untaken. At this limit the request pauses: it keeps its slots and takes
    /// part in no step until at most half of the bytes are left. No request pauses while the engine drains.
    pub event_bytes: usize,
    /// Bounds of the prefix cache.
    pub cache: CacheOptions,
    /// Storage of named states.
    pub states: StateOptions,
    /// The `max_tokens` of requests that do not set `max_tokens`.
    pub max_tokens: usize,
    /// The chat format of messages. `None` selects the model's own format.
    pub format: Option<Format>,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            slots: 8,
            queue: 256,
            prefill_slowdown: Some(2.0),
            event_bytes: 8 << 20,
            cache: CacheOptions::default(),
            states: StateOptions::default(),
            max_tokens: 4096,
            format: None,
        }
    }
}

/// Bounds of the prefix cache. When a tier is full, its least recently used entry moves from the device to host memory, or from there to a file.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// The most bytes of device memory that entries may take.
    pub device_bytes: u64,
    /// The most bytes of host memory that entries may take.
    pub host_bytes: u64,
    /// A folder for files of entries. Later engines with the same model on the same device use the files, too.
    /// [`Engine::drain`](super::Engine::drain) writes the entries in memory to the folder. The files contain the tokens of prompts, and only
    /// their owner may read them.
    pub folder: Option<PathBuf>,
    /// The most bytes that the files may take.
    pub folder_bytes: u64,
    /// The number of tokens between two entries of a long prompt. Only a recurrent model uses it: a model with attention continues from any prefix.
    pub every: usize,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions { device_bytes: 256 << 20, host_bytes: 1 << 30, folder: None, folder_bytes: 4 << 30, every: 1024 }
    }
}

impl CacheOptions {
    /// Returns bounds with which the cache is off.
    pub fn off() -> CacheOptions {
        CacheOptions { device_bytes: 0, host_bytes: 0, folder: None, folder_bytes: 0, every: 1024 }
    }

    pub(super) fn is_on(&self) -> bool {
        self.device_bytes > 0 || self.host_bytes > 0 || self.folder.is_some()
    }
}

/// Storage of named states.
#[derive(Debug, Clone)]
pub struct StateOptions {
    /// A folder for state files. `None` keeps states in host memory until the engine ends.
    pub folder: Option<PathBuf>,
    /// The most bytes that states may take in host memory. Without a folder, a state beyond the limit is refused. With a folder, the least recently
    /// used states leave the memory.
    pub bytes: u64,
}

impl Default for StateOptions {
    fn default() -> StateOptions {
        StateOptions { folder: None, bytes: 1 << 30 }
    }
}
