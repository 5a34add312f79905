//! The scheduler: models opened on devices, slots with their own state, prompts in chunks, tokens one by one.
//!
//! Knows no shader and no file format but the state file's. Everything above (chat, serve, cli) speaks through it.

mod ahead;
mod back;
mod batcher;
mod blocks;
mod breakers;
mod chunk;
mod convert;
pub mod fit;
mod generate;
mod identity;
mod layout;
mod logprobs;
mod model;
pub mod needs;
mod opened;
mod pages;
mod place;
mod prefill_bound;
mod quality;
mod snapshot;
mod state;
mod stream;
mod work;

pub use batcher::{Batcher, Done, Job, JobId, Keeps, KeptSlot, Made};
pub use convert::convert_coded;
#[cfg(feature = "cli")]
pub(crate) use generate::nothing_to_continue;
pub use generate::{Event, Generated, Prompt, Timings};
#[cfg(not(target_arch = "wasm32"))]
pub use layout::bytes_by_device;
pub use logprobs::Logprobs;
#[cfg(feature = "embedded-model")]
pub use model::embedded;
pub use model::{DEFAULT_CONTEXT, Device, Model, ModelSource, Options};
pub use opened::{StateOrientation, is_tuned, notes};
pub use place::PartOn;
#[cfg(feature = "cli")]
pub(crate) use quality::too_short;
pub use quality::{Quality, Windows, logprob, quality};
pub use snapshot::Snapshot;
pub use state::{Beside, LoadedState, check_replaceable, is_saved, tuned_into_state};
pub use stream::{Finish, Processor, Request, Stream};

use crate::error::{Error, Result};
use crate::exec::{Executor, WordTime};
use crate::tape::{BLOCK, Room, Run, Step};
use blocks::Blocks;
use breakers::Breakers;
use chunk::Chunk;
use opened::Opened;
use pages::Pages;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use work::{Cut, Scratch, Want, Work};

/// A stream of tokens within a [`Session`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot(usize);

/// What a slot remembers beside its state on the device.
#[derive(Clone, Default)]
struct Memory {
    page: usize,
    /// After the last token; empty before the first.
    logits: Vec<f32>,
    n_tokens: usize,
    /// Of the caches; perhaps more than the tokens fill.
    blocks: Vec<u32>,
    /// What was read, where the model has caches: it can go back to any of it.
    tokens: Vec<u32>,
}

impl Memory {
    /// Stands after these tokens too, on that page; has no logits until they are set.
    fn advance(&mut self, page: usize, tokens: &[u32], keeps: bool) {
        // Where the beginning is not known (a state file without its tokens) the rest is of no use.
        if keeps && self.tokens.len() == self.n_tokens {
            self.tokens.extend_from_slice(tokens);
        }
        (self.page, self.n_tokens) = (page, self.n_tokens + tokens.len());
        // Between the chunks of a prompt a slot has no logits; old ones would be of another token.
        self.logits.clear();
    }
}

/// Slots that only remember, beside those that step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Idle {
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
    slots: Vec<Option<Memory>>,
    chunk: Chunk,
    stop: Arc<AtomicBool>,
    /// The device draws, not the host.
    draws_ahead: bool,
    /// Ids that count nothing in penalties, a bit each; made when first asked for.
    exempt: Option<Arc<[u32]>>,
    /// Ids that break repetitions, those last asked for.
    breakers: Breakers,
    scratch: Scratch,
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
        let per_slot = model.context().map_or(0, |n| n.div_ceil(BLOCK));
        let listed = n_listed * per_slot;
        let n_blocks = listed + if per_slot > 0 { idle.tokens.div_ceil(BLOCK) } else { 0 };
        let room = Room { pages: pages.len(), blocks: n_blocks, listed, context: per_slot * BLOCK };
        let executor = model.loaded().executor(room)?;
        let chunk = Chunk::new(model.chunk(), model.loaded().is_watched(), Step::max_tokens(n_slots));
        let slots = (0..n_slots).map(|_| None).collect();
        Ok(Session {
            model: model.clone(),
            executor,
            pages,
            blocks: Blocks::new(n_blocks),
            slots,
            chunk,
            stop: Arc::default(),
            draws_ahead,
            exempt: None,
            breakers: Breakers::default(),
            scratch: Scratch::default(),
        })
    }

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
        self.slots.iter().filter(|s| s.is_none()).count()
    }

    /// Tokens whose keys and values these slots hold, in whole blocks of 64. What slots share counts once. 0 for a recurrence.
    pub fn held_tokens(&self, slots: impl IntoIterator<Item = Slot>) -> Result<usize> {
        let mut blocks = std::collections::HashSet::new();
        for slot in slots {
            blocks.extend(self.memory(slot)?.blocks.iter().copied());
        }
        Ok(blocks.len() * BLOCK)
    }

    /// An empty stream.
    pub fn open(&mut self) -> Result<Slot> {
        let free = self.slots.iter().position(Option::is_none);
        let slot = free.ok_or_else(|| Error::input(format!("all {} slots are in use", self.slots.len())).hint("close one first"))?;
        self.slots[slot] = Some(Memory { page: self.pages.share(pages::ZERO), ..Memory::default() });
        Ok(Slot(slot))
    }

    /// A second stream that goes on from here. Shares its page of state until either of them steps, and full blocks of the caches
    /// for good.
    pub fn fork(&mut self, slot: Slot) -> Result<Slot> {
        let memory = self.memory(slot)?.clone();
        let new = self.open()?;
        self.pages.release(pages::ZERO);
        self.pages.share(memory.page);
        self.blocks.share(&memory.blocks);
        self.slots[new.0] = Some(memory);
        Ok(new)
    }

    /// Ends a stream and frees its memory.
    pub fn close(&mut self, slot: Slot) -> Result<()> {
        self.memory(slot)?;
        if let Some(memory) = self.slots[slot.0].take() {
            self.pages.release(memory.page);
            self.blocks.release(&memory.blocks);
        }
        Ok(())
    }

    /// `[vocab]`, after the slot's last token; empty before the first.
    pub fn logits(&self, slot: Slot) -> Result<&[f32]> {
        Ok(&self.memory(slot)?.logits)
    }

    /// Tokens read so far.
    pub fn n_tokens(&self, slot: Slot) -> Result<usize> {
        Ok(self.memory(slot)?.n_tokens)
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
        self.read(work, Want::Last, Cut::Chunks, progress)
    }

    /// One token for one slot.
    pub fn decode(&mut self, slot: Slot, token: u32) -> Result<&[f32]> {
        self.decode_many(&[(slot, token)])?;
        self.logits(slot)
    }

    /// One token for each of several slots, in one step.
    pub fn decode_many(&mut self, work: &[(Slot, u32)]) -> Result<()> {
        self.read(work, Want::Last, Cut::OneByOne, &mut |_, _| ())
    }

    /// Reads tokens and hands over the logits after each: `each(t, logits [vocab])`.
    pub fn score(
        &mut self,
        slot: Slot,
        tokens: &[u32],
        each: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        self.read([(slot, tokens)].as_slice(), Want::All(each), Cut::Chunks, progress)
    }

    /// What every word of the model takes in a step of so many tokens of one slot, logits of the last included.
    pub fn profile(&mut self, n_tokens: usize) -> Result<Vec<WordTime>> {
        let slot = self.open()?;
        self.aside(slot, &vec![0; n_tokens], |executor, step| executor.profile(step))
    }

    /// Dispatches of one decoded token; none on the CPU.
    pub fn dispatches_per_token(&mut self) -> Result<Option<usize>> {
        let slot = self.open()?;
        self.aside(slot, &[0], |executor, step| executor.n_dispatches(step))
    }

    /// Which share of what the ffn's value matrices multiply is zero if that token comes next, the mean of all layers; none where a
    /// model has no such matrices. The slot stays where it is.
    pub fn ffn_sparsity(&mut self, slot: Slot, token: u32) -> Result<Option<f64>> {
        let fork = self.fork(slot)?;
        self.aside(fork, &[token], |executor, step| executor.sparsity(step))
    }

    /// A step that leaves nothing behind, on a slot that shares its page; closes the slot.
    fn aside<T>(&mut self, slot: Slot, tokens: &[u32], play: impl FnOnce(&mut dyn Executor, &Step) -> Result<T>) -> Result<T> {
        let result = self.play_aside(slot, tokens, play);
        self.close(slot)?;
        result
    }

    fn play_aside<T>(&mut self, slot: Slot, tokens: &[u32], play: impl FnOnce(&mut dyn Executor, &Step) -> Result<T>) -> Result<T> {
        some(tokens)?;
        self.check([(slot, tokens)].as_slice())?;
        let n = tokens.len() as u32;
        let go = self.pages.begin(self.memory(slot)?.page);
        let mut step = Step { tokens: tokens.to_vec(), outputs: vec![n - 1], ..Step::default() };
        self.add_run(&mut step, slot, go.run(0, n), tokens.len());
        let result = play(self.executor.as_mut(), &step);
        self.pages.cancel(&go);
        result
    }

    fn memory(&self, slot: Slot) -> Result<&Memory> {
        self.slots.get(slot.0).and_then(Option::as_ref).ok_or_else(|| Error::input(format!("slot {} is not open", slot.0)))
    }

    fn read<W: Work + ?Sized>(&mut self, work: &W, mut want: Want<'_>, cut: Cut, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        self.check(work)?;
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = self.read_with(&mut scratch, work, &mut want, cut, progress);
        self.scratch = scratch;
        result
    }

    fn read_with<W: Work + ?Sized>(
        &mut self,
        scratch: &mut Scratch,
        work: &W,
        want: &mut Want<'_>,
        cut: Cut,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        let total: usize = (0..work.len()).map(|i| work.tokens(i).len()).sum();
        scratch.begin(work.len());
        // One token for each of many slots is one step, however small the chunk.
        let each = if cut == Cut::OneByOne { 1 } else { usize::MAX };
        let least = if cut == Cut::OneByOne || total == work.len() { work.len().min(Step::max_tokens(work.len())) } else { 1 };
        let mut read = 0;
        while read < total {
            if read > 0 && cut == Cut::Chunks && self.stop.load(Ordering::Relaxed) {
                return Err(Error::new(crate::error::Kind::Interrupted, format!("interrupted after {read} of {total} tokens")));
            }
            let room = self.chunk.tokens(self.max_rows(want)).max(least);
            read += scratch.cut(work, room, each);
            self.step(scratch, work, want)?;
            progress(read, total);
        }
        Ok(())
    }

    /// One step: as many tokens as a chunk has and at most `most`, of those first who come first, and one of each if each has only one. Gives
    /// how many were read of each; who has none left has logits.
    fn read_some(&mut self, work: &[(Slot, &[u32])], most: usize) -> Result<Vec<usize>> {
        self.check(work)?;
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.begin(work.len());
        let n = scratch.cut(work, self.chunk.tokens(usize::MAX).max(work.len()).min(most), usize::MAX);
        let result = if n > 0 { self.step(&mut scratch, work, &mut Want::Last) } else { Ok(()) };
        let done = scratch.done.clone();
        self.scratch = scratch;
        result.map(|()| done)
    }

    /// Rows whose logits fit one binding, where all are wanted.
    fn max_rows(&self, want: &Want<'_>) -> usize {
        match want {
            Want::Last => usize::MAX,
            Want::All(_) => self.max_scored(),
        }
    }

    /// The same, of those that `score` hands over.
    fn max_scored(&self) -> usize {
        ((64 << 20) / (4 * self.model.facts().n_logits())).clamp(1, 256)
    }

    fn check<W: Work + ?Sized>(&self, work: &W) -> Result<()> {
        for i in 0..work.len() {
            let slot = work.slot(i);
            self.check_reads(slot, work.tokens(i), self.memory(slot)?.n_tokens)?;
            if (0..i).any(|other| work.slot(other) == slot) {
                return Err(Error::input(format!("slot {} takes part twice in one step", slot.0)));
            }
        }
        Ok(())
    }

    /// Whether a slot that has read `from` tokens can read these.
    fn check_reads(&self, slot: Slot, tokens: &[u32], from: usize) -> Result<()> {
        let n_vocab = self.model.facts().n_vocab;
        if let Some(token) = tokens.iter().find(|&&t| t as usize >= n_vocab) {
            return Err(Error::input(format!("token {token} is out of range: the model has {n_vocab}")));
        }
        match self.model.context() {
            Some(context) if from + tokens.len() > context => {
                let text = format!("{} tokens after {from} do not fit the context of {context}, in slot {}", tokens.len(), slot.0);
                Err(Error::input(text).hint("give a larger `context`, or read less"))
            }
            _ => Ok(()),
        }
    }

    /// Adds a slot's run to a step that reads `n` of its tokens, with the slot's blocks made ready for them.
    fn add_run(&mut self, step: &mut Step, slot: Slot, mut run: Run, n: usize) {
        if self.model.context().is_some() {
            let memory = self.slots[slot.0].as_mut().expect("checked to be open");
            let end = memory.n_tokens + n;
            if let Some((from, to)) = self.blocks.own(&mut memory.blocks, memory.n_tokens, end) {
                self.executor.copy_block(from, to);
            }
            (run.position, run.blocks_at) = (memory.n_tokens as u32, step.blocks.len() as u32);
            step.blocks.extend_from_slice(&memory.blocks[..end.div_ceil(BLOCK)]);
        }
        step.runs.push(run);
    }

    /// One submission: the parts of `scratch`.
    fn step<W: Work + ?Sized>(&mut self, scratch: &mut Scratch, work: &W, want: &mut Want<'_>) -> Result<()> {
        let Scratch { step, parts, moves, logits, .. } = scratch;
        step.clear();
        moves.clear();
        for part in &*parts {
            let page = self.memory(work.slot(part.work))?.page;
            let go = self.pages.begin(page);
            let first_row = step.tokens.len() as u32;
            step.tokens.extend_from_slice(&work.tokens(part.work)[part.from..][..part.len]);
            moves.push(go);
            self.add_run(step, work.slot(part.work), go.run(first_row, part.len as u32), part.len);
            let last = first_row + part.len as u32 - 1;
            match want {
                Want::All(_) => step.outputs.extend(first_row..=last),
                Want::Last if part.is_last => step.outputs.push(last),
                Want::Last => {}
            }
        }
        let started = Instant::now();
        if let Err(e) = self.executor.run(step, logits) {
            moves.iter().for_each(|go| self.pages.cancel(go));
            // The device may have written in place before it failed: what these slots hold is not known any more.
            for part in &*parts {
                self.slots[work.slot(part.work).0].as_mut().expect("checked to be open").logits.clear();
            }
            return Err(e);
        }
        self.chunk.learn(step.tokens.len(), started.elapsed());
        // Every slot stands after its tokens before anybody is told: a caller's error must not leave one half way.
        let n_logits = self.model.facts().n_logits();
        let mut rows = logits.chunks_exact(n_logits);
        for (part, go) in parts.iter().zip(&*moves) {
            let memory = self.slots[work.slot(part.work).0].as_mut().expect("checked to be open");
            memory.advance(go.page_out, &work.tokens(part.work)[part.from..][..part.len], self.model.context().is_some());
            let n_rows = match want {
                Want::All(_) => part.len,
                Want::Last => usize::from(part.is_last),
            };
            if let Some(row) = rows.by_ref().take(n_rows).last() {
                memory.logits.extend_from_slice(row);
            }
        }
        moves.iter().for_each(|go| self.pages.finish(go));
        if let Want::All(each) = want {
            let mut rows = logits.chunks_exact(n_logits);
            for part in &*parts {
                for (t, row) in rows.by_ref().take(part.len).enumerate() {
                    each(part.from + t, row)?;
                }
            }
        }
        Ok(())
    }
}

/// Refuses to read nothing.
fn some(tokens: &[u32]) -> Result<()> {
    if tokens.is_empty() { Err(Error::input("expected at least one token, found none")) } else { Ok(()) }
}
