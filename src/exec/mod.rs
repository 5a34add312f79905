//! Executors load the weights of a tape (a model's recorded program) and play the tape.
//!
//! `gpu` plays a tape with kernels, and is the only module that uses wgpu. `cpu` plays the words' twins (reference implementations). Both take and
//! return plain data.

mod blocking;
mod chain;
mod choose;
pub mod cpu;
pub mod environment;
mod formats;
pub mod gpu;
mod load;
mod memory;
pub mod predict;
pub mod products;
pub mod selftest;
mod stored;
pub mod strategy;
pub mod tune;
pub mod wait;

use crate::error::{Error, Result};
use crate::sample::Sampler;
use crate::tape::{AllInputSums, Binding, Cache, Capacity, Dispatch, Matrix, Section, State, StateSpec, Step, Tape, Var};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

pub use blocking::choose;
pub use chain::{Chain, Link};
pub use choose::{ChosenDevice, DeviceChoice, DeviceDecision, choose_async};
pub use formats::{FloatChoice, QuantPlan, assign_formats};
pub use load::{Progress, encode_part, survey};
pub use memory::{Memory, host_memory};
pub use stored::mapped_bytes;

/// The weights of a tape, or of some of its layers, on a device. Sessions share these weights.
pub trait Loaded: Send + Sync {
    /// Returns the section: the whole tape, and the range of layers that are loaded.
    fn section(&self) -> &Section;

    /// Returns the whole tape, even if only some layers are loaded.
    fn tape(&self) -> &Arc<Tape> {
        &self.section().tape
    }

    /// Creates an executor with its own states, caches and activations. A page holds the state of one slot. Page 0 of each state has the initial
    /// values; the other pages are zeros.
    ///
    /// # Errors
    /// `Memory` if the device has no room for the pages and blocks of `capacity`.
    fn executor(self: Arc<Self>, capacity: Capacity) -> Result<Box<dyn Executor>>;

    /// Returns the number of bytes of device memory that the weights take, including the buffers for streamed layers. On the CPU, returns
    /// the number of bytes of host memory, including mapped files.
    fn device_bytes(&self) -> u64;

    /// Returns the size in bytes of the matrices that kernels read sparsely: for each token, they read only the columns whose input is not zero.
    /// Returns 0 on the CPU.
    fn sparse_bytes(&self) -> u64;

    /// Returns whether [`Executor::draw_ahead`] is the faster way to sample for `n_streams` sequences. On one GPU the result is `true` if the buffers
    /// for sampling fit a binding and no layer is streamed. The environment variable [`DRAWS`](environment::DRAWS) can forbid sampling on a GPU, or
    /// allow it on a software adapter and on the CPU.
    ///
    /// # Errors
    /// `Usage` if the environment variable has an unknown value.
    fn prefers_to_draw(&self, n_streams: usize) -> Result<bool>;

    /// Returns the longest context, in tokens, that attention supports. The limit exists because software adapters end long loops early.
    fn longest_context(&self) -> usize {
        usize::MAX
    }

    /// Returns whether products of the section round their inputs.
    fn rounds(&self) -> bool;

    /// Returns whether the driver may abort a dispatch that runs for seconds.
    fn is_watched(&self) -> bool;
}

/// The time that one word of the tape took in a step.
#[derive(Debug, Clone, Copy)]
pub struct WordTime {
    /// The name of the word.
    pub word: &'static str,
    /// The number of dispatches, or 0 on the CPU.
    pub dispatches: usize,
    pub seconds: f64,
    /// The size in bytes of the matrices that the word reads for one token: one row of an embedding table, only the experts of this token, and all
    /// other matrices as a whole.
    pub weight_bytes: u64,
}

/// Returns the size in bytes of the matrices that `dispatches` read for one token: one row of an embedding table, only the experts of this token, and
/// all other matrices as a whole.
fn weight_bytes(tape: &Tape, dispatches: &[Dispatch]) -> u64 {
    let bindings = dispatches.iter().flat_map(|d| &d.bindings);
    let read: BTreeSet<Matrix> = bindings
        .filter_map(|(_, binding)| match binding {
            Binding::Piece(m, _) | Binding::Window(m, ..) => Some(*m),
            _ => None,
        })
        .collect();
    read.into_iter().map(|m| tape.matrix_spec(m).token_bytes() as u64).sum()
}

/// The largest number of steps in one submission.
pub const MAX_AHEAD: usize = 32;

/// The id in place of a token that could not be sampled: the sampler found no candidate, or its guard
/// ([`Sampling::guard`](crate::sample::Sampling::guard)) is on and a logit is not finite.
pub const NOTHING: u32 = u32::MAX;

/// Returns whether the environment variable [`DRAWS`](environment::DRAWS) selects sampling on the device, or `default` if the variable is not set.
pub fn draws_on_device(default: bool) -> Result<bool> {
    Ok(environment::DRAWS.is("device")?.unwrap_or(default))
}

/// Returns the fraction of zeros in the columns `range` of `rows`, `[n, stride]`.
fn share_of_zeros(rows: &[f32], stride: usize, range: &Range<usize>) -> f64 {
    let n_rows = rows.len() / stride;
    let zeros: usize = rows.chunks_exact(stride).map(|row| row[range.clone()].iter().filter(|x| **x == 0.0).count()).sum();
    zeros as f64 / (n_rows * range.len()).max(1) as f64
}

fn mean(x: &[f64]) -> Option<f64> {
    (!x.is_empty()).then(|| x.iter().sum::<f64>() / x.len() as f64)
}

/// A part of an executor's memory to read back.
#[derive(Debug, Clone, Copy)]
pub enum Excerpt<'a> {
    /// One page of a state, by its index. If the state's pages have two halves, one half page: half h of page p has the index 2 p + h.
    State(State, usize),
    /// The first n keys or values in a cache, `[n, n_heads, head_size]`. The fields are the cache, the blocks that hold the slot's tokens in order,
    /// and n.
    Cache(Cache, &'a [u32], usize),
    /// The first n rows of each plane of a variable, `[planes, n, stride]`, as the last step left them. The second field is n.
    Var(Var, usize),
}

/// Plays steps on the layers of a [`Loaded`], with its own states, caches and activations. A step is one pass through these layers, for
/// tokens of one or several slots.
///
/// Each `begin` method submits work to the device and returns. Its `finish` method takes the result, and waits for it if necessary. Only
/// [`begin_draws`](Self::begin_draws) has no result, because it just sets samplers. [`poll_ready`](Self::poll_ready) and
/// [`wait`](Self::wait) report when a result is ready. If new work begins before earlier work is finished, the earlier result is dropped,
/// although the device still plays that work. All other methods may block.
pub trait Executor: Send {
    /// Begins to play a step.
    ///
    /// # Errors
    /// `Memory` if the device has no room for the step; `Device` if the device failed.
    fn begin(&mut self, step: &Step) -> Result<()>;

    /// Begins to play only `words`, a range of the tape's words, and then to read back `reads` in the same submission. Leaves out words that the
    /// section does not have. Take the result with [`finish`](Self::finish) if `reads` is empty, otherwise with [`finish_read`](Self::finish_read).
    ///
    /// # Errors
    /// The errors of `begin`. `Device` if several devices play the tape.
    fn begin_words(&mut self, _step: &Step, _words: &Range<usize>, _reads: &[Excerpt<'_>]) -> Result<()> {
        Err(whole_steps())
    }

    /// Takes the result of [`begin`](Self::begin). `logits` becomes `[outputs, vocab]`, or empty if the step has no outputs.
    ///
    /// # Errors
    /// `Device` if the device failed, if nothing was begun or, in a browser, if the work is not done yet.
    fn finish(&mut self, logits: &mut Vec<f32>) -> Result<()>;

    /// Plays a step. `logits` becomes `[outputs, vocab]`. Blocks.
    fn run(&mut self, step: &Step, logits: &mut Vec<f32>) -> Result<()> {
        self.begin(step)?;
        self.finish(logits)
    }

    /// Sets the samplers for [`begin_ahead`](Self::begin_ahead), one per run (the tokens of one slot in a step). Call [`Sampler::accept`] with the
    /// next token of each run before `begin_draws`. `exempt` has one bit per id, set for tokens that do not count in penalties. If `exempt` is empty,
    /// all tokens count.
    fn begin_draws(&mut self, samplers: &[&Sampler], exempt: &[u32]) -> Result<()>;

    /// Begins to play `n` steps, at most [`MAX_AHEAD`]. `step` is the first step, with one token and one output per run. After each step, the device
    /// samples one token per run. The next step reads these tokens. No step reads the tokens that are sampled after the last step.
    fn begin_ahead(&mut self, step: &Step, n: usize) -> Result<()>;

    /// Takes the result of [`begin_ahead`](Self::begin_ahead). `ids` becomes `[n, runs]`. An id is [`NOTHING`] if no token was
    /// sampled.
    ///
    /// # Errors
    /// The errors of [`finish`](Self::finish).
    fn finish_ahead(&mut self, ids: &mut Vec<u32>) -> Result<()>;

    /// Plays `n` steps as [`begin_ahead`](Self::begin_ahead) does, and samples `n` tokens per run: `ids` becomes `[n, runs]`. Blocks.
    fn draw_ahead(&mut self, step: &Step, n: usize, ids: &mut Vec<u32>) -> Result<()> {
        self.begin_ahead(step, n)?;
        self.finish_ahead(ids)
    }

    /// Begins to read back the excerpts. The results show the memory after all work that was begun before.
    fn begin_read(&mut self, excerpts: &[Excerpt<'_>]) -> Result<()>;

    /// Takes the result of [`begin_read`](Self::begin_read): the values of each excerpt, in the order of the excerpts.
    ///
    /// # Errors
    /// The errors of [`finish`](Self::finish).
    fn finish_read(&mut self) -> Result<Vec<Vec<f32>>>;

    /// Reads back one excerpt. Blocks.
    fn read(&mut self, excerpt: Excerpt<'_>) -> Result<Vec<f32>> {
        self.begin_read(&[excerpt])?;
        Ok(self.finish_read()?.pop().unwrap_or_default())
    }

    /// Reads back one page of a state, as described at [`Excerpt::State`]. Blocks.
    fn read_state(&mut self, state: State, page: usize) -> Result<Vec<f32>> {
        self.read(Excerpt::State(state, page))
    }

    /// Reads back the first `n` keys or values of a slot from `cache`, `[n, n_heads, head_size]`. `blocks` are the slot's cache blocks in order.
    /// Waits for the result.
    fn read_cache(&mut self, cache: Cache, blocks: &[u32], n: usize) -> Result<Vec<f32>> {
        self.read(Excerpt::Cache(cache, blocks, n))
    }

    /// Reads back the first `rows` rows of every plane of a variable: the planes one after another, each with `rows` rows of `stride` floats. Blocks.
    fn read_var(&mut self, var: Var, rows: usize) -> Result<Vec<f32>> {
        self.read(Excerpt::Var(var, rows))
    }

    /// Returns `Ready` if a `finish` method would not wait. In a browser, the task of `context` is woken once the work is done. Elsewhere
    /// no task is woken: poll again, or call [`wait`](Self::wait).
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<()>>;

    /// Blocks until a `finish` method would not wait. Calling `wait` is optional, because every `finish` method waits for its result.
    ///
    /// # Errors
    /// The errors of [`finish`](Self::finish).
    fn wait(&mut self) -> Result<()>;

    /// Drops the result of work that was begun and not finished. The device still plays the work.
    fn cancel(&mut self);

    /// Writes one page of a state. If pages of the state have two halves, `page` is the index of a half page, as in [`Excerpt::State`].
    ///
    /// # Errors
    /// `Input` if the length of `values` differs from the length of the state.
    fn write_state(&mut self, state: State, page: usize, values: &[f32]) -> Result<()>;

    /// Writes `values` to a cache: the keys or values of a slot's first n tokens, `[n, n_heads, head_size]`. `blocks` are the slot's cache blocks in
    /// order.
    fn write_cache(&mut self, cache: Cache, blocks: &[u32], values: &[f32]) -> Result<()>;

    /// Copies block `from` of every cache to block `to`.
    fn copy_block(&mut self, from: u32, to: u32);

    /// Makes room for the activations of a step. Values that are written to variables afterwards stay until the step is played.
    fn make_room(&mut self, step: &Step) -> Result<()>;

    /// Writes `values` to the first rows of every plane of a variable. `values` has the planes one after another, with rows of `stride` floats.
    fn write_var(&mut self, var: Var, values: &[f32]) -> Result<()>;

    /// Plays a step word by word and returns the time of each word. States and caches change as in [`run`](Self::run). Blocks.
    fn profile(&mut self, step: &Step) -> Result<Vec<WordTime>>;

    /// Plays only `words`, as [`begin_words`](Self::begin_words) does, and returns the time of each word. Blocks.
    fn profile_words(&mut self, _step: &Step, _words: &Range<usize>) -> Result<Vec<WordTime>> {
        Err(whole_steps())
    }

    /// Returns the place of the sums over the inputs of matrices. While the place has sums, steps add to them. Returns `None` if the executor cannot
    /// collect sums: only a CPU that runs all layers can.
    fn input_sums(&mut self) -> Option<&mut Option<AllInputSums>> {
        None
    }

    /// Plays a step without the output head, for measurements. Returns the mean fraction of zeros in the inputs that words declare as sparse, or
    /// `None` if no word has a sparse input. Blocks.
    fn sparsity(&mut self, step: &Step) -> Result<Option<f64>>;

    /// Plays only `words`, as [`begin_words`](Self::begin_words) does, and returns the mean as [`sparsity`](Self::sparsity) does. Blocks.
    fn sparsity_words(&mut self, _step: &Step, _words: &Range<usize>) -> Result<Option<f64>> {
        Err(whole_steps())
    }

    /// Returns the number of dispatches of a step, or `None` on the CPU.
    fn n_dispatches(&mut self, step: &Step) -> Result<Option<usize>>;
}

/// Waits until a `finish` method would not block. In a browser, the future awaits the device. Elsewhere, polling the future blocks the thread.
///
/// # Errors
/// The errors of [`Executor::finish`].
pub async fn ready(executor: &mut dyn Executor) -> Result<()> {
    if wait::MAY_BLOCK {
        executor.wait()?;
    }
    std::future::poll_fn(|context| executor.poll_ready(context)).await
}

/// Reads back one excerpt, as [`Executor::read`] does, and waits as [`ready`] does.
pub async fn read_async(executor: &mut dyn Executor, excerpt: Excerpt<'_>) -> Result<Vec<f32>> {
    executor.begin_read(&[excerpt])?;
    ready(executor).await?;
    Ok(executor.finish_read()?.pop().unwrap_or_default())
}

/// Returns an error if the number of `values` differs from the length of the state.
fn check_length(spec: &StateSpec, values: &[f32]) -> Result<()> {
    if values.len() == spec.len() {
        return Ok(());
    }
    Err(Error::input(format!("expected {} numbers for the state {}, found {} numbers", spec.len(), spec.name, values.len())))
}

/// Returns the error of an executor that plays only whole steps.
fn whole_steps() -> Error {
    Error::device("cannot play single words: several devices play this model")
}

/// Returns the error of a `finish` method that was called without its `begin` method.
fn nothing_begun() -> Error {
    Error::device("nothing to finish: no work was begun, or other work began on the device after it")
}
