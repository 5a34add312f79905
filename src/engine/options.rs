//! Options of an engine.

use super::request::UNLIMITED;
use crate::chat::Format;
use crate::error::{Error, Result};
use crate::session::{EmbedOptions, MAX_SLOTS, Model, Snapshot, Speculation};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Options of an [`Engine`](super::Engine). Start from `EngineOptions::default()`.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The number of slots, 1 to 1022 with a prefix cache and 1 to 1023 without. Each slot runs one continuation at a time.
    pub slots: usize,
    /// The maximum number of requests that wait for slots; 0 counts as 1. A further request is refused with [`Kind::Busy`](crate::error::Kind::Busy).
    pub queue: usize,
    /// The maximum number of requests of one [namespace](super::Request::namespace) that wait for slots; 0 counts as 1. A value below `queue` keeps
    /// one caller from filling the queue. `None` sets no bound other than `queue`.
    pub queue_per_namespace: Option<usize>,
    /// The maximum total time for computing which tokens the rules of one text (a grammar or a schema) allow. After this time, the text ends with an
    /// error. Other threads do this work, so other texts continue meanwhile. `None` sets no limit.
    pub rules_time: Option<Duration>,
    /// Limits how much the prefill of one request slows the decoding of other requests. The value is a ratio: the longest mean time of a step while
    /// prompts are prefilled, divided by the time of a step that only decodes. At 2.0, decoding becomes at most about twice as slow during a prefill,
    /// and a single step takes at most about four times as long. `None` sets no limit: each step prefills a whole chunk, which gives the highest
    /// throughput.
    pub prefill_slowdown: Option<f64>,
    /// The maximum size in bytes of the events that wait for the reader of one request. At this limit the request pauses: it takes
    /// part in no step, and gives up its slots if another request waits. The request resumes when the waiting events have at most half of this
    /// limit. No request pauses after [`Engine::drain`](super::Engine::drain) was called.
    pub event_bytes: usize,
    /// The maximum host memory, in bytes, for texts that give up their slots while others wait. While namespaces compete for slots, each keeps its
    /// share: the texts that have had their slots for longest are copied to host memory, and continue later. A text whose reader is slow gives up its
    /// slot as soon as another request waits. If this memory is full, the text of the slow reader ends with
    /// [`Kind::Busy`](crate::error::Kind::Busy). With 0, every text keeps its slot until it ends.
    pub swap_bytes: u64,
    /// Limits of the prefix cache.
    pub cache: CacheOptions,
    /// The maximum number of states that all conversations of the engine hold together, for branches and undo steps. These states share the device
    /// memory of the prefix cache, and otherwise take host memory.
    pub pinned: usize,
    /// Options of the storage of named states.
    pub states: StateOptions,
    /// The maximum number of tokens per continuation, for requests that do not set `max_tokens`. A smaller `max_new_tokens` of the model's
    /// `generation_config.json` takes precedence for requests with messages.
    pub max_tokens: usize,
    /// The maximum number of tokens of any continuation. A request that asks for more gets this many. Limits how long one request can hold a slot.
    pub max_answer: usize,
    /// The chat format that converts messages to a prompt. `None` selects the model's own format.
    pub format: Option<Format>,
    /// How the engine computes vectors. A request can choose another pooling.
    pub embed: EmbedOptions,
    /// The reranker that was trained with the engine's embedding model. `None` refuses requests for scores.
    pub reranker: Option<Model>,
    /// Tuned initial states (trained states in which a text begins) by name. [`Request::initial`](super::Request::initial) selects one.
    pub initial: Vec<(String, Arc<Snapshot>)>,
    /// How texts speculate: which guesses of the next tokens one step checks together ([`Speculation`]). The text stays the same. A request can choose
    /// another [`speculate`](super::Request::speculate). If this is off and `draft` is `None`, the engine reserves no memory for guesses. A recurrent
    /// model whose tokens are sampled on the host, as on the CPU, then refuses requests for guesses.
    pub speculation: Speculation,
    /// A smaller model with the same vocabulary that guesses the next tokens. `None` means that no model guesses.
    pub draft: Option<Model>,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            slots: 8,
            queue: 256,
            queue_per_namespace: None,
            rules_time: None,
            prefill_slowdown: Some(2.0),
            event_bytes: 8 << 20,
            swap_bytes: 1 << 30,
            cache: CacheOptions::default(),
            pinned: 32,
            states: StateOptions::default(),
            max_tokens: 4096,
            max_answer: UNLIMITED,
            format: None,
            embed: EmbedOptions::default(),
            reranker: None,
            initial: Vec::new(),
            speculation: Speculation::off(),
            draft: None,
        }
    }
}

impl EngineOptions {
    /// Returns the default options.
    pub fn new() -> EngineOptions {
        EngineOptions::default()
    }

    /// Sets [`slots`](Self::slots).
    pub fn slots(self, slots: usize) -> EngineOptions {
        EngineOptions { slots, ..self }
    }

    /// Sets [`queue`](Self::queue).
    pub fn queue(self, queue: usize) -> EngineOptions {
        EngineOptions { queue, ..self }
    }

    /// Sets [`cache`](Self::cache).
    pub fn cache(self, cache: CacheOptions) -> EngineOptions {
        EngineOptions { cache, ..self }
    }

    /// Sets [`states`](Self::states).
    pub fn states(self, states: StateOptions) -> EngineOptions {
        EngineOptions { states, ..self }
    }

    /// Sets [`max_tokens`](Self::max_tokens).
    pub fn max_tokens(self, max_tokens: usize) -> EngineOptions {
        EngineOptions { max_tokens, ..self }
    }

    /// Sets [`format`](Self::format).
    pub fn format(self, format: Format) -> EngineOptions {
        EngineOptions { format: Some(format), ..self }
    }

    /// Sets [`embed`](Self::embed).
    pub fn embed(self, embed: EmbedOptions) -> EngineOptions {
        EngineOptions { embed, ..self }
    }

    /// Sets [`reranker`](Self::reranker).
    pub fn reranker(self, reranker: &Model) -> EngineOptions {
        EngineOptions { reranker: Some(reranker.clone()), ..self }
    }

    /// Sets [`speculation`](Self::speculation).
    pub fn speculation(self, speculation: Speculation) -> EngineOptions {
        EngineOptions { speculation, ..self }
    }

    /// Sets [`draft`](Self::draft).
    pub fn draft(self, draft: &Model) -> EngineOptions {
        EngineOptions { draft: Some(draft.clone()), ..self }
    }

    /// Checks the settings of speculation and the number of slots. Besides one slot per continuation, the engine needs one slot for the beginning of a
    /// request, and one slot for the prefix cache.
    ///
    /// # Errors
    /// An `Input` error that names the field `slots`; the errors of [`Speculation::check`].
    pub(super) fn check(&self) -> Result<()> {
        let (most, cache) =
            if self.cache.is_on() { (MAX_SLOTS - 2, "with a prefix cache") } else { (MAX_SLOTS - 1, "without a prefix cache") };
        if (1..=most).contains(&self.slots) {
            return self.speculation.check(self.draft.is_some());
        }
        Err(Error::input(format!("expected 1 to {most} slots in an engine {cache}, found {}", self.slots)).field("slots"))
    }
}

/// Limits of the prefix cache: states of earlier prompts and texts, for requests that begin with the same tokens. An entry is in device memory, in
/// host memory or in a file. When device memory is full, its least recently used entry moves to host memory. When host memory is full, its least
/// recently used entry moves to a file.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// The maximum device memory for entries, in bytes.
    pub device_bytes: u64,
    /// The maximum host memory for entries, in bytes.
    pub host_bytes: u64,
    /// The folder for the files of cache entries. `None` keeps no entry in a file. A later engine uses these files, too, if its weights, its number
    /// formats and its device are the same. [`Engine::drain`](super::Engine::drain) and the end of the engine write the entries in memory to the
    /// folder. The files contain the tokens of prompts, so only the user who runs the engine has permission to read them.
    pub folder: Option<PathBuf>,
    /// The maximum size of all entries' files together, in bytes.
    pub folder_bytes: u64,
    /// The distance, in tokens, between the regular entries that a prompt leaves in the cache. For a long prompt, the distance is doubled until the
    /// prompt leaves at most 8 entries. Has no effect if the model has no recurrent state: such a model can continue from any prefix of an entry.
    pub every: usize,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions { device_bytes: 256 << 20, host_bytes: 1 << 30, folder: None, folder_bytes: 4 << 30, every: 1024 }
    }
}

impl CacheOptions {
    /// Returns options that turn the cache off.
    pub fn off() -> CacheOptions {
        CacheOptions { device_bytes: 0, host_bytes: 0, folder: None, folder_bytes: 0, every: 1024 }
    }

    pub(super) fn is_on(&self) -> bool {
        self.device_bytes > 0 || self.host_bytes > 0 || self.folder.is_some()
    }
}

/// Options of the storage of named states.
#[derive(Debug, Clone)]
pub struct StateOptions {
    /// The folder for state files. `None` keeps states in host memory until the engine ends.
    pub folder: Option<PathBuf>,
    /// The maximum size of the states in host memory, in bytes. Without a folder, a state that would exceed this limit is refused, unless `forgets`
    /// is true. With a folder, the least recently used states are removed from memory; their files stay.
    pub bytes: u64,
    /// True if, without a folder, the least recently used states are removed from memory when a new state needs room. Set this if you store states
    /// elsewhere and can load them again. A state that alone exceeds `bytes` is refused even then.
    pub forgets: bool,
}

impl Default for StateOptions {
    fn default() -> StateOptions {
        StateOptions { folder: None, bytes: 1 << 30, forgets: false }
    }
}
