//! How an engine is started.

use crate::chat::Format;
use std::path::PathBuf;

/// How an engine is started. Start from `EngineOptions::default()`.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Generations that run at once, 1 to 1023.
    pub slots: usize,
    /// Requests that wait for a slot, at most; one more is refused with [`Kind::Busy`](crate::error::Kind::Busy).
    pub queue: usize,
    /// How long a step may take while a prompt is read and others decode, as a multiple of a step without the prompt. `None`: as long as
    /// a chunk of the prompt takes, for the most tokens in all.
    pub prefill_slowdown: Option<f64>,
    /// Bytes of a request's events that its reader has not taken, at which the request pauses: it keeps its slots and takes part in no step
    /// until the reader has taken half of them. No request pauses while the engine drains.
    pub event_bytes: usize,
    /// What earlier prompts and texts leave for requests that begin alike.
    pub cache: CacheOptions,
    /// Where named states are kept.
    pub states: StateOptions,
    /// Tokens of a text whose request names no limit.
    pub max_tokens: usize,
    /// How messages are written; the model's own format if none.
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

/// Bounds of the prefix cache. An entry moves from the device to host memory to a file, the one that was used longest ago first.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// Bytes of the device.
    pub device_bytes: u64,
    /// Bytes of host memory.
    pub host_bytes: u64,
    /// A folder of files; they serve later engines with the same model on the same device, too. [`Engine::drain`](super::Engine::drain)
    /// writes what is in memory there. They hold the tokens of prompts, and only their owner may read
    /// them.
    pub folder: Option<PathBuf>,
    /// Bytes of the files.
    pub folder_bytes: u64,
    /// Tokens of a long prompt between two entries, for a model with a recurrent state. A model with attention needs none.
    pub every: usize,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions { device_bytes: 256 << 20, host_bytes: 1 << 30, folder: None, folder_bytes: 4 << 30, every: 1024 }
    }
}

impl CacheOptions {
    /// Keeps nothing.
    pub fn off() -> CacheOptions {
        CacheOptions { device_bytes: 0, host_bytes: 0, folder: None, folder_bytes: 0, every: 1024 }
    }

    pub(super) fn is_on(&self) -> bool {
        self.device_bytes > 0 || self.host_bytes > 0 || self.folder.is_some()
    }
}

/// Where named states are kept.
#[derive(Debug, Clone)]
pub struct StateOptions {
    /// A folder of state files; without one, states end with the engine.
    pub folder: Option<PathBuf>,
    /// Bytes of states in host memory. Without a folder, a state that finds no room is refused.
    pub bytes: u64,
}

impl Default for StateOptions {
    fn default() -> StateOptions {
        StateOptions { folder: None, bytes: 1 << 30 }
    }
}
