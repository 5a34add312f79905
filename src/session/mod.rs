//! Sessions: load models on devices, keep each sequence in a slot, prefill prompts in chunks and decode token by token.
//!
//! All higher layers use models through this module. The module does not depend on shaders or on the formats of weight files. It defines the format
//! of state files.

mod adapted;
mod batcher;
mod blocks;
mod breakers;
mod calibrate;
mod caught;
mod chunk;
mod convert;
mod definition;
mod draws;
pub mod fit;
pub mod footprint;
mod generate;
mod gguf;
mod identity;
mod importance;
mod layout;
mod likelihood;
mod logprobs;
pub mod measure;
mod model;
mod named_options;
mod open;
mod options;
mod pages;
mod place;
mod prefill_bound;
mod propose;
mod quality;
mod quantised;
mod read;
mod rerank;
mod rewind;
mod settle;
mod side_files;
mod slots;
mod snapshot;
mod speculation;
mod state;
mod text;
mod vectors;
mod vocabulary;
mod work;

pub use batcher::{Batcher, Done};
pub use caught::Panicked;
pub use caught::caught;
pub use caught::describe;
pub use convert::convert_coded;
pub use definition::EMBEDDED;
#[cfg(feature = "embedded-model")]
pub use definition::embedded;
pub use definition::{is_tuned, notes};
pub use generate::{Generated, Prompt, Timings};
pub use gguf::{GgufVocab, convert_gguf};
pub use layout::{bytes_by_device, sizes as session_sizes};
pub use likelihood::{Likelihood, MAX_NESTED};
pub use logprobs::Logprobs;
pub use model::Model;
pub use options::{CHUNK, DEFAULT_CONTEXT, Device, ExpertsOn, LONG_CHUNK, ModelSource, Options, Output, PartOn, StateOrientation};
pub use propose::{Proposer, Wish};
pub use quality::too_short;
pub use quality::{Quality, Windows, logprob, quality};
pub use quantised::QuantisedTensor;
pub use read::Reading;
pub use rerank::end_of_text;
pub(crate) use rerank::{Scorer, before_any_query, check_query, encode_pair};
pub use side_files::side_files;
pub use slots::Slot;
pub use snapshot::{Copying, Snapshot};
pub use speculation::{MAX_GUESSES, MOST_GUESSES, Speculate, Speculation};
pub use state::{
    LoadedState, SavedTokens, StateExtras, check_replaceable, check_state_file, is_damaged, is_saved, saved_tokens, tuned_into_state,
};
pub use text::{Finish, Keeps, KeptSlot, Limits, Processor, Text, TextId, TextSpec, TokenEvent, nothing_to_continue};
pub use vectors::{EmbedOptions, Pooling, VectorRule};
pub use vocabulary::vocabulary;

use crate::error::{Error, Result};
use crate::exec::Executor;
use crate::tape::{Capacity, Step, TOKENS_PER_BLOCK};
use blocks::Blocks;
use breakers::Breakers;
use chunk::Chunk;
use definition::Definition;
use pages::Pages;
use read::Clock;
use slots::{SlotContents, Slots};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use work::{ChunkRule, LogitRows, Scratch};

/// Extra memory of a session: extra slots for sequences that are stored but not continued at the moment, and pages for guesses. A slot is the place
/// of one sequence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Idle {
    /// The number of extra slots.
    pub slots: usize,
    /// Limit on the tokens that all extra slots together hold in the KV cache of a model with attention. The caller must close slots before the limit
    /// is exceeded. [`Session::held_tokens`] counts the tokens of slots. Has no effect for a model without attention.
    pub tokens: usize,
    /// True if texts may guess their next tokens ([`Speculation`]). A recurrent model then has a second page (the states of a slot) per slot, because
    /// a step with guesses must not change the states. [`Model::slot_bytes`] always counts this page.
    pub guesses: bool,
}

/// The largest number of slots in a session, including its extra slots ([`Idle`]).
pub const MAX_SLOTS: usize = 1024;

/// A loaded model with slots. Each slot holds one sequence of tokens. One step computes tokens of one or several slots. A session is `Send`, but not
/// `Sync`: one thread at a time may use a session.
pub struct Session {
    model: Model,
    executor: Box<dyn Executor>,
    pages: Pages,
    blocks: Blocks,
    slots: Slots,
    chunk: Chunk,
    stop: Arc<AtomicBool>,
    /// True if the device samples. Normally false on the CPU, on software adapters, for several devices and for streamed layers. Even if true, the
    /// host samples while a text needs it (`Text::needs_host`).
    draws_ahead: bool,
    /// True if texts may guess: there are pages for guesses, or the model needs none.
    may_guess: bool,
    /// The model that guesses for [`continue_many`](Self::continue_many). `None` if no model guesses.
    draft: Option<Model>,
    /// One bit per token id, set if the token does not count in penalties. `None` before the first use.
    exempt: Option<Arc<[u32]>>,
    draws: draws::Draws,
    /// Ids of the tokens that end a repetition for the DRY penalty, for the last sampler. Kept because the next sampler often has the same breaker
    /// texts, and finding the ids scans the vocabulary.
    breakers: Breakers,
    scratch: Scratch,
    /// Measures the time of the last submission.
    clock: Clock,
    /// The error that polling found for the last submission, until a `finish` function returns it. Stored because a device reports an error only
    /// once.
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

    /// Creates a session with `n_slots` slots that can step together. `idle` adds slots for sequences that are stored but not continued at the
    /// moment.
    ///
    /// # Errors
    /// `Input` if `n_slots` is 0, if all slots together exceed [`MAX_SLOTS`], or if the device does not support the model's context; `Memory`
    /// if the device has too little memory.
    pub fn with_idle(model: &Model, n_slots: usize, idle: Idle) -> Result<Session> {
        let n_all = n_slots.saturating_add(idle.slots);
        if n_slots == 0 || n_all > MAX_SLOTS {
            let found = if n_slots == 0 { 0 } else { n_all };
            return Err(Error::input(format!("expected 1 to {MAX_SLOTS} slots in a session, found {found}")));
        }
        let draws_ahead = model.loaded().prefers_to_draw(n_slots)?;
        let may_guess = draws_ahead || idle.guesses || model.can_rewind();
        let pages = Pages::new(n_all, draws_ahead || idle.guesses && !model.can_rewind());
        let longest = model.loaded().longest_context();
        if let Some(context) = model.context().filter(|&context| context > longest) {
            let text = format!("expected a context of at most {longest} tokens on this software driver, found {context} tokens");
            return Err(Error::input(text).hint("use a smaller `context`, or `device=cpu`"));
        }
        // The number of KV cache blocks of a slot whose context is full.
        let per_slot = model.context().map_or(0, |n| n.div_ceil(TOKENS_PER_BLOCK));
        let listed = n_slots * per_slot;
        let n_blocks = listed + if per_slot > 0 { idle.tokens.div_ceil(TOKENS_PER_BLOCK) } else { 0 };
        let room = Capacity { pages: pages.len(), blocks: n_blocks, listed, context: per_slot * TOKENS_PER_BLOCK };
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
            may_guess,
            draft: None,
            exempt: None,
            draws: draws::Draws::default(),
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

    /// Returns the flag that interrupts the session. If another thread or a signal handler sets the flag to true, prefill and generation end
    /// after the current step. The slots keep the tokens that they have read. To continue, set the flag to false.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Returns the number of free slots.
    pub fn n_free(&self) -> usize {
        self.slots.n_free()
    }

    /// Returns the room that `slots` take in the KV cache, in tokens. A slot takes whole blocks of 64 tokens. A block that several slots share
    /// counts once. Returns 0 for a recurrent model.
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

    /// Opens a second slot with the sequence of `slot`. The two slots share the recurrent state until either slot reads a token. They share each
    /// block of the KV cache (64 tokens) until either slot writes to it.
    ///
    /// # Errors
    /// `Input` if all slots are in use, or if `slot` was closed or belongs to another session.
    pub fn fork(&mut self, slot: Slot) -> Result<Slot> {
        let contents = self.contents(slot)?.clone();
        let (page, blocks) = (contents.page, contents.blocks.clone());
        let new = self.slots.open(contents)?;
        self.pages.share(page);
        self.blocks.share(&blocks);
        Ok(new)
    }

    /// Closes a slot and frees its memory. From then on, every method refuses the slot's handle.
    ///
    /// # Errors
    /// `Input` if the slot was closed before, or belongs to another session.
    pub fn close(&mut self, slot: Slot) -> Result<()> {
        let contents = self.slots.close(slot)?;
        self.pages.release(contents.page);
        self.blocks.release(&contents.blocks);
        Ok(())
    }

    /// Returns the logits after the slot's last token, `[vocab]`. The result is empty before the first token, after a rewind, after an interrupted
    /// prefill, and while the device computes a step of the slot.
    ///
    /// # Errors
    /// `Input` if the slot was closed, or belongs to another session.
    pub fn logits(&self, slot: Slot) -> Result<&[f32]> {
        Ok(&self.contents(slot)?.logits)
    }

    /// Returns the number of tokens that the slot has read.
    ///
    /// # Errors
    /// `Input` if the slot was closed, or belongs to another session.
    pub fn n_tokens(&self, slot: Slot) -> Result<usize> {
        Ok(self.contents(slot)?.n_tokens)
    }

    /// Prefills a prompt in chunks, several tokens per step. Returns the logits after the prompt's last token, `[vocab]`. An empty prompt changes
    /// nothing and returns the slot's current logits.
    ///
    /// # Errors
    /// The errors of [`prefill_many`](Self::prefill_many).
    pub fn prefill(&mut self, slot: Slot, tokens: &[u32]) -> Result<&[f32]> {
        self.prefill_many(&[(slot, tokens)], &mut |_, _| ())?;
        self.logits(slot)
    }

    /// Prefills tokens. Returns the hidden state after the last token, `[n_embd]`: the vector after the last norm, which is the input of the matrix
    /// that computes logits. Programs use this vector as a text embedding, or as the input of their own classifiers.
    ///
    /// # Errors
    /// The errors of [`prefill`](Self::prefill); `Input` if `tokens` is empty; `Model` if the model has no hidden state after a last norm; `Device`
    /// in a browser.
    pub fn hidden(&mut self, slot: Slot, tokens: &[u32]) -> Result<Vec<f32>> {
        some(tokens)?;
        self.prefill(slot, tokens)?;
        self.hidden_rows()
    }

    /// Classifies a text: prefills its tokens in a new slot and closes the slot. Returns one logit per label, in the order of
    /// [`Facts::labels`](crate::arch::Facts).
    ///
    /// # Errors
    /// The errors of [`prefill`](Self::prefill); `Input` if `tokens` is empty or all slots are in use; `Model` if the model is no classifier.
    pub fn classify(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.model.check_classifies()?;
        some(tokens)?;
        let slot = self.open()?;
        let logits = self.prefill(slot, tokens).map(<[f32]>::to_vec);
        self.close(slot)?;
        logits
    }

    /// Prefills prompts of different lengths in several slots at once. Calls `progress(tokens read so far, total tokens)` after each step; the two
    /// numbers are sums over all slots.
    ///
    /// # Errors
    /// `Input` if a slot was closed, belongs to another session or is listed twice, or if tokens are out of range or exceed the context;
    /// `Interrupted` by the [`stop_flag`](Self::stop_flag); `Device` if the device failed.
    pub fn prefill_many(&mut self, work: &[(Slot, &[u32])], progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        self.read(work, ChunkRule::Chunks, (LogitRows::Last, None), progress)
    }

    /// Appends one token to a slot's sequence. Returns the logits after this token, `[vocab]`.
    ///
    /// # Errors
    /// The errors of [`decode_many`](Self::decode_many).
    pub fn decode(&mut self, slot: Slot, token: u32) -> Result<&[f32]> {
        self.decode_many(&[(slot, token)])?;
        self.logits(slot)
    }

    /// Appends one token to the sequence of each listed slot, all in one step.
    ///
    /// # Errors
    /// The errors of [`prefill_many`](Self::prefill_many) except `Interrupted`.
    pub fn decode_many(&mut self, work: &[(Slot, u32)]) -> Result<()> {
        self.read(work, ChunkRule::OneByOne, (LogitRows::Last, None), &mut |_, _| ())
    }

    /// Prefills tokens and calls `each(t, logits)` for each token: `t` is the token's index in `tokens`, and `logits`, `[vocab]`, are the
    /// logits after the token. Calls `progress(tokens read so far, total tokens)` after each step.
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
        self.read([(slot, tokens)].as_slice(), ChunkRule::Chunks, (LogitRows::All, Some(&mut |_, t, row| each(t, row))), progress)
    }

    fn contents(&self, slot: Slot) -> Result<&SlotContents> {
        self.slots.get(slot)
    }
}

/// Returns an `Input` error if `tokens` is empty.
fn some(tokens: &[u32]) -> Result<()> {
    if tokens.is_empty() { Err(Error::input("expected at least 1 token, found an empty list")) } else { Ok(()) }
}
