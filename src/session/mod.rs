//! Sessions: load models on devices, keep sequences in slots, prefill prompts in chunks and decode token by token.
//!
//! This module names no shader, and no file format except the format of state files. All higher layers use models through this module.

mod ahead;
mod batcher;
mod blocks;
mod breakers;
mod caught;
mod chunk;
mod convert;
mod definition;
pub mod fit;
pub mod footprint;
mod generate;
mod identity;
mod layout;
mod logprobs;
pub mod low_level;
mod model;
mod options;
mod pages;
mod place;
mod prefill_bound;
mod quality;
mod read;
mod rewind;
mod slots;
mod snapshot;
mod state;
mod stream;
mod work;

pub use batcher::{Batcher, Done, Job, JobId, JobOutput, Keeps, KeptSlot};
pub(crate) use caught::caught;
#[cfg(feature = "cli")]
pub(crate) use caught::describe;
pub use convert::convert_coded;
#[cfg(feature = "embedded-model")]
pub use definition::embedded;
pub use definition::{is_tuned, notes};
pub(crate) use generate::nothing_to_continue;
pub use generate::{Event, Generated, Prompt, Timings};
#[cfg(not(target_arch = "wasm32"))]
pub use layout::bytes_by_device;
pub use logprobs::Logprobs;
pub use model::Model;
pub use options::{DEFAULT_CONTEXT, Device, ModelSource, Options, PartOn, StateOrientation};
#[cfg(feature = "cli")]
pub(crate) use quality::too_short;
pub use quality::{Quality, Windows, logprob, quality};
pub use read::Reading;
pub use slots::Slot;
pub use snapshot::{Copying, Snapshot};
pub use state::{LoadedState, SavedTokens, StateExtras, check_replaceable, is_saved, saved_tokens, tuned_into_state};
pub use stream::{Finish, Limits, Processor, Stream};

use crate::error::{Error, Result};
use crate::exec::Executor;
use crate::tape::{Room, Step, TOKENS_PER_BLOCK};
use blocks::Blocks;
use breakers::Breakers;
use chunk::Chunk;
use definition::Definition;
use pages::Pages;
use read::Clock;
use slots::{SlotContents, Slots};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use work::{Cut, Scratch};

/// Extra slots that hold sequences which do not step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Idle {
    /// The number of extra slots.
    pub slots: usize,
    /// Tokens that the extra slots may hold together in the KV cache of a model with attention. The caller must close slots before they
    /// exceed this; [`Session::held_tokens`] counts their tokens.
    pub tokens: usize,
}

/// The most slots of a session, idle slots included.
pub const MAX_SLOTS: usize = 1024;

/// Slots of one model that step together. `Send`, but not `Sync`: one thread at a time may use it.
pub struct Session {
    model: Model,
    executor: Box<dyn Executor>,
    pages: Pages,
    blocks: Blocks,
    slots: Slots,
    chunk: Chunk,
    stop: Arc<AtomicBool>,
    /// True if the device samples instead of the host.
    draws_ahead: bool,
    /// One bit per id, set if the token does not count in penalties. `None` until it is first needed.
    exempt: Option<Arc<[u32]>>,
    /// Ids that break repetitions. Kept for further samplers with the same texts.
    breakers: Breakers,
    scratch: Scratch,
    /// Measures the time of the last submission.
    clock: Clock,
    /// Error of the last submission, if polling found it before `finish`. A device reports an error only once.
    failure: Option<Error>,
}

impl Session {
    /// Creates a session with `n_slots` slots.
    ///
    /// # Errors
    /// The errors of [`with_idle`](Self::with_idle).
    pub fn new(model: &Model, n_slots: usize) -> Result<Session> {
        Self::with_idle(model, n_slots, Idle::default())
    }

    /// Creates a session with `n_slots` slots that step together, and extra idle slots.
    ///
    /// # Errors
    /// `Input` if there are no slots, more than 1024 slots, or a context that the device does not support; `Memory` if the device has no room.
    pub fn with_idle(model: &Model, n_slots: usize, idle: Idle) -> Result<Session> {
        let n_all = n_slots.saturating_add(idle.slots);
        if n_slots == 0 || n_all > MAX_SLOTS {
            let found = if n_slots == 0 { 0 } else { n_all };
            return Err(Error::input(format!("expected 1 to {MAX_SLOTS} slots, found {found}")));
        }
        let draws_ahead = model.loaded().prefers_to_draw(n_slots)?;
        let pages = Pages::new(n_all, draws_ahead);
        let longest = model.loaded().longest_context();
        if let Some(context) = model.context().filter(|&context| context > longest) {
            let text = format!("expected a context of at most {longest} on this software adapter, found {context}");
            return Err(Error::input(text).hint("use a smaller `context`, or `device=cpu`"));
        }
        // Blocks of a slot with a full context.
        let per_slot = model.context().map_or(0, |n| n.div_ceil(TOKENS_PER_BLOCK));
        let listed = n_slots * per_slot;
        let n_blocks = listed + if per_slot > 0 { idle.tokens.div_ceil(TOKENS_PER_BLOCK) } else { 0 };
        let room = Room { pages: pages.len(), blocks: n_blocks, listed, context: per_slot * TOKENS_PER_BLOCK };
        let executor = model.loaded().executor(room)?;
        let chunk = Chunk::new(model.chunk(), model.loaded().is_watched(), Step::max_tokens(n_all));
        Ok(Session {
            model: model.clone(),
            executor,
            pages,
            blocks: Blocks::new(n_blocks),
            slots: Slots::new(n_all),
            chunk,
            stop: Arc::default(),
            draws_ahead,
            exempt: None,
            breakers: Breakers::default(),
            scratch: Scratch::default(),
            clock: Clock::start(),
            failure: None,
        })
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns a flag that interrupts. If another thread or a signal handler sets it, prefill and generation end after the current step, with
    /// the slot after a whole token. Reset the flag to continue.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Returns the number of free slots.
    pub fn n_free(&self) -> usize {
        self.slots.n_free()
    }

    /// Returns how many tokens these slots hold in the KV cache, in whole blocks of 64. Blocks that slots share count once. Returns 0 for a
    /// recurrent model.
    ///
    /// # Errors
    /// `Input` if a slot was closed, or belongs to another session.
    pub fn held_tokens(&self, slots: impl IntoIterator<Item = Slot>) -> Result<usize> {
        let mut blocks = std::collections::HashSet::new();
        for slot in slots {
            blocks.extend(self.contents(slot)?.blocks.iter().copied());
        }
        Ok(blocks.len() * TOKENS_PER_BLOCK)
    }

    /// Opens a slot with an empty sequence.
    ///
    /// # Errors
    /// `Input` if all slots are in use.
    pub fn open(&mut self) -> Result<Slot> {
        let slot = self.slots.open(SlotContents { page: pages::ZERO, ..SlotContents::default() })?;
        self.pages.share(pages::ZERO);
        Ok(slot)
    }

    /// Opens a slot with a copy of a sequence. Both share the state until one of them steps. They share full blocks of the KV cache until they
    /// are closed.
    ///
    /// # Errors
    /// `Input` if all slots are in use, if the slot was closed, or if it belongs to another session.
    pub fn fork(&mut self, slot: Slot) -> Result<Slot> {
        let contents = self.contents(slot)?.clone();
        let (page, blocks) = (contents.page, contents.blocks.clone());
        let new = self.slots.open(contents)?;
        self.pages.share(page);
        self.blocks.share(&blocks);
        Ok(new)
    }

    /// Closes a slot and frees its memory. From then on its handle is refused.
    ///
    /// # Errors
    /// `Input` if the slot was closed before, or belongs to another session.
    pub fn close(&mut self, slot: Slot) -> Result<()> {
        let contents = self.slots.close(slot)?;
        self.pages.release(contents.page);
        self.blocks.release(&contents.blocks);
        Ok(())
    }

    /// Returns the logits after the slot's last token, `[vocab]`. They are empty before the first token, and after a rewind.
    pub fn logits(&self, slot: Slot) -> Result<&[f32]> {
        Ok(&self.contents(slot)?.logits)
    }

    /// Returns the number of tokens that the slot has read.
    pub fn n_tokens(&self, slot: Slot) -> Result<usize> {
        Ok(self.contents(slot)?.n_tokens)
    }

    /// Prefills a prompt in chunks. Returns the logits after its last token, `[vocab]`. An empty prompt changes nothing.
    ///
    /// # Errors
    /// The errors of [`prefill_many`](Self::prefill_many).
    pub fn prefill(&mut self, slot: Slot, tokens: &[u32]) -> Result<&[f32]> {
        self.prefill_many(&[(slot, tokens)], &mut |_, _| ())?;
        self.logits(slot)
    }

    /// Prefills tokens. Returns the input of the head after the last token, LN_out(x) `[C]`, for embeddings and classifiers.
    ///
    /// # Errors
    /// The errors of [`prefill`](Self::prefill); `Input` if `tokens` is empty; `Model` if the model has no head.
    pub fn hidden(&mut self, slot: Slot, tokens: &[u32]) -> Result<Vec<f32>> {
        some(tokens)?;
        self.prefill(slot, tokens)?;
        let var = self.model.tape().hidden.ok_or_else(|| Error::model("this model has no head"))?;
        let mut row = self.executor.read_var(var, 1)?;
        row.truncate(self.model.facts().n_embd);
        Ok(row)
    }

    /// Prefills a text into a new slot of a classifier and closes the slot. Returns one logit per label of
    /// [`Facts::labels`](crate::arch::Facts).
    ///
    /// # Errors
    /// The errors of [`prefill`](Self::prefill); `Input` if `tokens` is empty or all slots are in use; `Model` if the model is no classifier.
    pub fn classify(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        if self.model.facts().labels.is_none() {
            return Err(Error::model("this model is not a classifier: it has no head for labels (`score.weight`)"));
        }
        some(tokens)?;
        let slot = self.open()?;
        let logits = self.prefill(slot, tokens).map(<[f32]>::to_vec);
        self.close(slot)?;
        logits
    }

    /// Prefills prompts of different lengths into several slots at once. `progress` takes the tokens done and the total tokens.
    ///
    /// # Errors
    /// `Input` if a slot is unknown or listed twice, or if tokens are out of range or exceed the context; `Interrupted` by the
    /// [`stop_flag`](Self::stop_flag); `Device` if the device failed.
    pub fn prefill_many(&mut self, work: &[(Slot, &[u32])], progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        self.read(work, Cut::Chunks, None, progress)
    }

    /// Decodes one token in a slot. Returns the logits after it, `[vocab]`.
    ///
    /// # Errors
    /// The errors of [`decode_many`](Self::decode_many).
    pub fn decode(&mut self, slot: Slot, token: u32) -> Result<&[f32]> {
        self.decode_many(&[(slot, token)])?;
        self.logits(slot)
    }

    /// Decodes one token in each of several slots, in one step.
    ///
    /// # Errors
    /// The errors of [`prefill_many`](Self::prefill_many), without interruption.
    pub fn decode_many(&mut self, work: &[(Slot, u32)]) -> Result<()> {
        self.read(work, Cut::OneByOne, None, &mut |_, _| ())
    }

    /// Prefills tokens and calls `each(t, logits [vocab])` with the logits after each token. `progress` takes the tokens done and the total
    /// tokens.
    ///
    /// # Errors
    /// The errors of [`prefill_many`](Self::prefill_many); the errors of `each`.
    pub fn score(
        &mut self,
        slot: Slot,
        tokens: &[u32],
        each: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        self.read([(slot, tokens)].as_slice(), Cut::Chunks, Some(each), progress)
    }

    fn contents(&self, slot: Slot) -> Result<&SlotContents> {
        self.slots.get(slot)
    }
}

/// Returns an error if there are no tokens.
fn some(tokens: &[u32]) -> Result<()> {
    if tokens.is_empty() { Err(Error::input("expected at least one token, found none")) } else { Ok(()) }
}
