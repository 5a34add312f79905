//! Begins conversations: the engine that a conversation needs, and the state in which it begins.

use super::core::{Core, OnRead, TextState};
use super::lines::InLines;
use super::messages::InMessages;
use super::mode::Mode;
use super::schedule::Change;
use super::{Conversation, Timings};
use crate::chat::format::FormatKind;
use crate::chat::{Format, Settings};
use crate::engine::{CacheOptions, Engine, EngineOptions};
use crate::error::{Error, Result};
use crate::session::{Model, Snapshot};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How many states a conversation with a recurrent model can have. A conversation cannot run with fewer states, and more states are not useful.
const STATES: std::ops::RangeInclusive<u64> = 8..=32;

/// The maximum device memory for the states, in bytes, unless the fewest states of [`STATES`] need more.
const STATES_BYTES: u64 = 256 << 20;

/// The slots of an engine's session besides the slots of the cache: one for the conversation, and one for the beginning of a text.
const OTHER_SLOTS: u64 = 2;

impl Conversation {
    /// Returns the options of an engine for one conversation. With a recurrent model, the engine can hold 8 to 32 states, depending on their size,
    /// because each undo step and each branch takes states. If the model also has attention, its KV cache counts as part of a state.
    pub fn engine_options(model: &Model) -> EngineOptions {
        let each = if model.context().is_some() { model.slot_bytes() } else { model.state_bytes() };
        let n = (STATES_BYTES / each.max(1)).clamp(*STATES.start(), *STATES.end());
        // A model that can be rewound keeps one text, in the KV cache that the conversation uses anyway. So its cache needs no device memory of its
        // own. With 0 bytes, the cache would be off.
        let device_bytes = if model.can_rewind() { 1 } else { (n - OTHER_SLOTS) * model.slot_bytes().max(1) };
        let cache = CacheOptions { device_bytes, ..CacheOptions::off() };
        EngineOptions { slots: 1, prefill_slowdown: None, pinned: n as usize, cache, ..EngineOptions::default() }
    }

    /// Begins a conversation on an engine of its own ([`engine_options`](Self::engine_options)) and prefills the text with which the format begins.
    /// Calls `on_read(prefilled tokens, all tokens of the prompt)` during this prefill and during the prefill before every answer.
    ///
    /// # Errors
    /// The errors of [`Engine::start`] and [`on`](Self::on).
    pub fn new(model: &Model, format: Format, settings: Settings, on_read: OnRead) -> Result<Conversation> {
        Self::on(&Engine::start(model, Self::engine_options(model))?, format, settings, on_read)
    }

    /// Begins a conversation on an engine that may run other conversations and requests, as [`new`](Self::new) does. Conversations never use each
    /// other's states. All conversations of an engine share [`EngineOptions::pinned`].
    ///
    /// # Errors
    /// `Input` if the model has no vocabulary or the vocabulary lacks a special token; `Usage` if a setting is invalid; `Interrupted` if the stop
    /// flag is set during prefill; `Device` in a browser.
    pub fn on(engine: &Engine, format: Format, settings: Settings, on_read: OnRead) -> Result<Conversation> {
        Self::stopped_by(Arc::default(), engine, format, settings, on_read)
    }

    /// Begins a conversation whose stop flag is `stop`, so that the caller can interrupt the first prefill, too.
    ///
    /// # Errors
    /// The errors of [`on`](Self::on).
    pub fn stopped_by(stop: Arc<AtomicBool>, engine: &Engine, format: Format, settings: Settings, on_read: OnRead) -> Result<Conversation> {
        Self::begin(Core::new(engine, settings, on_read, stop)?, format)
    }

    /// Makes the kind of conversation that a format needs.
    pub(super) fn mode(core: &mut Core, format: Format) -> Result<Box<dyn Mode>> {
        Ok(match &format.kind {
            FormatKind::Lines(_) => Box::new(InLines::new(core, format)?),
            FormatKind::Messages(_) => Box::new(InMessages::new(core, format)?),
        })
    }

    pub(super) fn begin(mut core: Core, format: Format) -> Result<Conversation> {
        let mode = Self::mode(&mut core, format)?;
        Ok(Conversation { core, mode, last: None, total: Timings::default() })
    }

    /// Restarts the conversation after a loaded state ([`Snapshot::load`]), without a system message. From now on, the conversation and free texts
    /// begin in this state instead of the empty state. `tokens` are the tokens that the state has read; an empty list means unknown.
    ///
    /// # Errors
    /// `Input` if the format is a template; `Model` if the state belongs to other weights; the errors of every [method that prefills](Self). After an
    /// error, the conversation is unchanged.
    pub fn begin_after(&mut self, start: Snapshot, tokens: &[u32]) -> Result<()> {
        if self.format().lines().is_none() {
            return Err(Error::input("a conversation that uses a chat template cannot start from a saved state")
                .hint("choose a chat format without a template, such as world"));
        }
        let start = TextState { pinned: Some(self.core.engine.pin(start)?), tokens: tokens.to_vec(), change: Change::default() };
        let before = (std::mem::replace(&mut self.core.start, start), std::mem::replace(&mut self.core.is_after_state, true));
        self.set_system("").inspect_err(|_| (self.core.start, self.core.is_after_state) = before)
    }
}
