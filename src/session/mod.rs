//! The scheduler: models opened on devices, slots with their own state, prompts in chunks, tokens one by one.
//!
//! Knows no shader and no file format but the state file's. Everything above (chat, serve, cli) speaks through it.

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

/// Slots that only remember, beside those that step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Idle {
    /// The number of slots.
    pub slots: usize,
    /// Tokens whose keys and values they hold together, for a model with attention. [`Session::held_tokens`] counts them; its caller closes
    /// slots in time.
    pub tokens: usize,
}

/// Slots of a session, at most.
pub const MAX_SLOTS: usize = 1024;

/// Slots of one model that step together. `Send`: one thread at a time.
pub struct Session {
    model: Model,
    executor: Box<dyn Executor>,
    pages: Pages,
    blocks: Blocks,
    slots: Slots,
    chunk: Chunk,
    stop: Arc<AtomicBool>,
    /// The device draws, not the host.
    draws_ahead: bool,
    /// Ids that count nothing in penalties, a bit each; made when first asked for.
    exempt: Option<Arc<[u32]>>,
    /// Ids that break repetitions, those last asked for.
    breakers: Breakers,
    scratch: Scratch,
    /// Of what was begun last.
    clock: Clock,
    /// Why what was begun last failed, where the host noticed before it was finished: a device says so once.
    failure: Option<Error>,
}

impl Session {
    /// Room for `n_slots` streams.
    pub fn new(model: &Model, n_slots: usize) -> Result<Session> {
        Self::with_idle(model, n_slots, Idle::default())
    }

    /// Room for `n_slots` streams that step together, and for idle slots beside them.
    ///
    /// # Errors
    /// `Input`: no slot, more than 1024 slots, or a context that the device cannot hold. `Memory`: the device has no room for all of them.
    pub fn with_idle(model: &Model, n_slots: usize, idle: Idle) -> Result<Session> {
        if n_slots == 0 || n_slots + idle.slots > MAX_SLOTS {
            return Err(Error::input(format!("expected 1 to {MAX_SLOTS} slots, found {}", n_slots + idle.slots)));
        }
        let draws_ahead = model.loaded().prefers_to_draw(n_slots)?;
        let n_listed = n_slots;
        let n_slots = n_slots + idle.slots;
        let pages = Pages::new(n_slots, draws_ahead);
        let longest = model.loaded().longest_context();
        if let Some(context) = model.context().filter(|&context| context > longest) {
            let text = format!("expected a context of at most {longest} on this software adapter, found {context}");
            return Err(Error::input(text).hint("give a smaller `context`, or `device=cpu`"));
        }
        // A slot's tokens at the most, in whole blocks.
        let per_slot = model.context().map_or(0, |n| n.div_ceil(TOKENS_PER_BLOCK));
        let listed = n_listed * per_slot;
        let n_blocks = listed + if per_slot > 0 { idle.tokens.div_ceil(TOKENS_PER_BLOCK) } else { 0 };
        let room = Room { pages: pages.len(), blocks: n_blocks, listed, context: per_slot * TOKENS_PER_BLOCK };
        let executor = model.loaded().executor(room)?;
        let chunk = Chunk::new(model.chunk(), model.loaded().is_watched(), Step::max_tokens(n_slots));
        Ok(Session {
            model: model.clone(),
            executor,
            pages,
            blocks: Blocks::new(n_blocks),
            slots: Slots::new(n_slots),
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

    /// Set it from another thread, or from a signal handler: reading and generating end after the step in flight, with the
    /// slot at a whole token. Reset it to go on.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// How many slots are not open.
    pub fn n_free(&self) -> usize {
        self.slots.n_free()
    }

    /// Tokens whose keys and values these slots hold, in whole blocks of 64. What slots share counts once. 0 for a recurrence.
    pub fn held_tokens(&self, slots: impl IntoIterator<Item = Slot>) -> Result<usize> {
        let mut blocks = std::collections::HashSet::new();
        for slot in slots {
            blocks.extend(self.contents(slot)?.blocks.iter().copied());
        }
        Ok(blocks.len() * TOKENS_PER_BLOCK)
    }

    /// An empty sequence.
    ///
    /// # Errors
    /// `Input` if all slots are in use.
    pub fn open(&mut self) -> Result<Slot> {
        let slot = self.slots.open(SlotContents { page: pages::ZERO, ..SlotContents::default() })?;
        self.pages.share(pages::ZERO);
        Ok(slot)
    }

    /// A second sequence that goes on from here. Shares its page of state until either of them steps, and full blocks of the caches
    /// for good.
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

    /// Ends a sequence and frees its memory. Its handle, and copies of it, are refused from then on.
    ///
    /// # Errors
    /// `Input` if the slot was closed before, or belongs to another session.
    pub fn close(&mut self, slot: Slot) -> Result<()> {
        let contents = self.slots.close(slot)?;
        self.pages.release(contents.page);
        self.blocks.release(&contents.blocks);
        Ok(())
    }

    /// `[vocab]`, after the slot's last token; empty before the first.
    pub fn logits(&self, slot: Slot) -> Result<&[f32]> {
        Ok(&self.contents(slot)?.logits)
    }

    /// Tokens read so far.
    pub fn n_tokens(&self, slot: Slot) -> Result<usize> {
        Ok(self.contents(slot)?.n_tokens)
    }

    /// Reads a prompt, in chunks; gives the logits after its last token. An empty prompt changes nothing.
    pub fn prefill(&mut self, slot: Slot, tokens: &[u32]) -> Result<&[f32]> {
        self.prefill_many(&[(slot, tokens)], &mut |_, _| ())?;
        self.logits(slot)
    }

    /// Reads tokens; gives what the head sees after the last of them: LN_out(x), `[C]`. For embeddings and classifiers.
    pub fn hidden(&mut self, slot: Slot, tokens: &[u32]) -> Result<Vec<f32>> {
        some(tokens)?;
        self.prefill(slot, tokens)?;
        let var = self.model.tape().hidden.ok_or_else(|| Error::model("this model has no head"))?;
        let mut row = self.executor.read_var(var, 1)?;
        row.truncate(self.model.facts().n_embd);
        Ok(row)
    }

    /// Reads a text into a fresh slot of a classifier; gives a logit a label, those of [`Facts::labels`](crate::arch::Facts).
    pub fn classify(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        if self.model.facts().labels.is_none() {
            return Err(Error::model("this model has no head for classes (score.weight): it tells the next token"));
        }
        some(tokens)?;
        let slot = self.open()?;
        let logits = self.prefill(slot, tokens).map(<[f32]>::to_vec);
        self.close(slot)?;
        logits
    }

    /// Reads prompts of different lengths into several slots at once. Progress: tokens done, tokens in all.
    pub fn prefill_many(&mut self, work: &[(Slot, &[u32])], progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        self.read(work, Cut::Chunks, None, progress)
    }

    /// One token for one slot.
    pub fn decode(&mut self, slot: Slot, token: u32) -> Result<&[f32]> {
        self.decode_many(&[(slot, token)])?;
        self.logits(slot)
    }

    /// One token for each of several slots, in one step.
    pub fn decode_many(&mut self, work: &[(Slot, u32)]) -> Result<()> {
        self.read(work, Cut::OneByOne, None, &mut |_, _| ())
    }

    /// Reads tokens and hands over the logits after each: `each(t, logits [vocab])`.
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

/// Refuses to read nothing.
fn some(tokens: &[u32]) -> Result<()> {
    if tokens.is_empty() { Err(Error::input("expected at least one token, found none")) } else { Ok(()) }
}
