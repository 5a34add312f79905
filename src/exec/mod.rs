//! Executors: they load a tape's weights and play the tape.
//!
//! `gpu` is the only place that names wgpu; `cpu` plays the twins. Both take plain data and give plain data back.

#[cfg(not(target_arch = "wasm32"))]
mod blocking;
mod chain;
mod choose;
pub mod cpu;
pub mod environment;
mod formats;
pub mod gpu;
mod load;
mod memory;
#[cfg(not(target_arch = "wasm32"))]
pub mod products;
#[cfg(not(target_arch = "wasm32"))]
pub mod selftest;
mod stored;
pub mod strategy;
pub mod tune;
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod wait;

use crate::error::{Error, Result};
use crate::sample::Sampler;
use crate::tape::{Binding, Cache, Dispatch, Matrix, Room, Section, State, Step, Tape, Var};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

#[cfg(not(target_arch = "wasm32"))]
pub use blocking::choose;
pub use chain::{Chain, Link};
pub use choose::{Choice, Chosen, DeviceChoice, choose_async};
pub use formats::{FloatChoice, QuantPlan, assign_formats};
pub use load::{Progress, encode_part, survey};
pub use memory::{Memory, host_memory};
pub use stored::mapped_bytes;

/// A tape, or some layers of it, with the weights on a device. Shared by sessions.
pub trait Loaded: Send + Sync {
    /// Which layers.
    fn section(&self) -> &Section;

    /// The whole tape.
    fn tape(&self) -> &Arc<Tape> {
        &self.section().tape
    }

    /// Fresh memory for so much, all zero.
    fn executor(self: Arc<Self>, room: Room) -> Result<Box<dyn Executor>>;

    /// Bytes of weights that are on the device at a time: those that stay there, and buffers through which others pass. Host memory,
    /// for the CPU.
    fn device_bytes(&self) -> u64;

    /// Bytes of the matrices of which a token reads only what its input is not zero for.
    fn sparse_bytes(&self) -> u64;

    /// Whether [`Executor::draw_ahead`] is the better way to draw for so many streams: on GPUs, if their memory fits a binding. [`DRAWS`](environment::DRAWS)
    /// decides otherwise.
    fn prefers_to_draw(&self, n_streams: usize) -> Result<bool>;

    /// The longest context that attention gets through: software adapters cut long loops short.
    fn longest_context(&self) -> usize {
        usize::MAX
    }

    /// Whether one dispatch can run so long that a driver kills it.
    fn is_watched(&self) -> bool;
}

/// What one word of the tape took in a step.
#[derive(Debug, Clone, Copy)]
pub struct WordTime {
    pub word: &'static str,
    /// 0 on the CPU, which dispatches nothing.
    pub dispatches: usize,
    pub seconds: f64,
    /// Bytes of the matrices that it multiplies; of a table, one row.
    pub weight_bytes: u64,
}

/// Bytes of the matrices that these dispatches read.
fn weight_bytes(tape: &Tape, dispatches: &[Dispatch]) -> u64 {
    let bindings = dispatches.iter().flat_map(|d| &d.bindings);
    let read: BTreeSet<Matrix> = bindings
        .filter_map(|(_, binding)| match binding {
            Binding::Piece(m, _) | Binding::Window(m, ..) => Some(*m),
            _ => None,
        })
        .collect();
    let bytes = |m: Matrix| {
        let spec = tape.matrix_spec(m);
        if spec.is_table() { spec.row_bytes() } else { spec.size_bytes() }
    };
    read.into_iter().map(|m| bytes(m) as u64).sum()
}

/// Steps of one submission at the most.
pub const MAX_AHEAD: usize = 32;

/// What stands for a token where none can be drawn.
pub const NOTHING: u32 = u32::MAX;

/// Where tokens are drawn, if the environment says so.
pub(crate) fn draws_on_device(default: bool) -> Result<bool> {
    Ok(environment::value(environment::DRAWS)?.map_or(default, |place| place == "device"))
}

/// The share of zeros in columns `range` of rows of `stride` floats.
fn share_of_zeros(rows: &[f32], stride: usize, range: &Range<usize>) -> f64 {
    let n_rows = rows.len() / stride;
    let zeros: usize = rows.chunks_exact(stride).map(|row| row[range.clone()].iter().filter(|x| **x == 0.0).count()).sum();
    zeros as f64 / (n_rows * range.len()).max(1) as f64
}

fn mean(x: &[f64]) -> Option<f64> {
    (!x.is_empty()).then(|| x.iter().sum::<f64>() / x.len() as f64)
}

/// A piece of an executor's memory, to be read back.
#[derive(Debug, Clone, Copy)]
pub enum Excerpt<'a> {
    /// One page of a state, or one half page where the state has halves.
    State(State, usize),
    /// The first `n` tokens of a cache whose blocks these are, `[n, n_heads, head_size]`.
    Cache(Cache, &'a [u32], usize),
    /// So many rows of activations of the last step, `[planes, rows, stride]`.
    Var(Var, usize),
}

/// Plays steps on its own pages of state.
///
/// A device works while the host does other things: each `begin` method submits work and returns, and the `finish` method of the same name
/// takes what came back. [`poll_ready`](Self::poll_ready) and [`wait`](Self::wait) tell when that is. What was begun and not finished when
/// the next `begin` comes is played all the same, and what it would have brought is dropped. The methods that are named without `begin` and `finish` block.
pub trait Executor: Send {
    /// Begins to play the tape.
    fn begin(&mut self, step: &Step) -> Result<()>;

    /// Ends what [`begin`](Self::begin) began: `logits` becomes `[outputs, vocab]`, empty where the step has no outputs.
    ///
    /// # Errors
    /// `Device` if the device failed, or if nothing was begun. In a browser also if the work is not done.
    fn finish(&mut self, logits: &mut Vec<f32>) -> Result<()>;

    /// Plays the tape.
    fn run(&mut self, step: &Step, logits: &mut Vec<f32>) -> Result<()> {
        self.begin(step)?;
        self.finish(logits)
    }

    /// Says for whom to draw from now on: a sampler for each run, as it is after the token that the run reads next. `exempt` has a
    /// bit an id, whose tokens count nothing in penalties; where it is empty all of them count.
    fn begin_draws(&mut self, samplers: &[&Sampler], exempt: &[u32]) -> Result<()>;

    /// Begins to play a step of one token and one output a run, to draw a token for each, to play that, `n` times in all, at most
    /// [`MAX_AHEAD`]. What is drawn last is not read.
    fn begin_ahead(&mut self, step: &Step, n: usize) -> Result<()>;

    /// Ends what [`begin_ahead`](Self::begin_ahead) began: `ids` becomes `[n, runs]`, [`NOTHING`] where no token can be drawn. Errors as
    /// [`finish`](Self::finish).
    fn finish_ahead(&mut self, ids: &mut Vec<u32>) -> Result<()>;

    /// Draws `n` tokens a run.
    fn draw_ahead(&mut self, step: &Step, n: usize, ids: &mut Vec<u32>) -> Result<()> {
        self.begin_ahead(step, n)?;
        self.finish_ahead(ids)
    }

    /// Begins to read back pieces of memory, as they are after what was begun before.
    fn begin_read(&mut self, excerpts: &[Excerpt<'_>]) -> Result<()>;

    /// Ends what [`begin_read`](Self::begin_read) began: the numbers of each piece, in order. Errors as [`finish`](Self::finish).
    fn finish_read(&mut self) -> Result<Vec<Vec<f32>>>;

    /// Reads back one piece of memory.
    fn read(&mut self, excerpt: Excerpt<'_>) -> Result<Vec<f32>> {
        self.begin_read(&[excerpt])?;
        Ok(self.finish_read()?.pop().unwrap_or_default())
    }

    /// As [`Excerpt::State`].
    fn read_state(&mut self, state: State, page: usize) -> Result<Vec<f32>> {
        self.read(Excerpt::State(state, page))
    }

    /// As [`Excerpt::Cache`].
    fn read_cache(&mut self, cache: Cache, blocks: &[u32], n: usize) -> Result<Vec<f32>> {
        self.read(Excerpt::Cache(cache, blocks, n))
    }

    /// As [`Excerpt::Var`]; for tests, and for who plays the layers that follow.
    fn read_var(&mut self, var: Var, rows: usize) -> Result<Vec<f32>> {
        self.read(Excerpt::Var(var, rows))
    }

    /// Returns `Ready` when a `finish` method has nothing to wait for. A browser wakes `context` then. Elsewhere nobody does: poll again, or
    /// [`wait`](Self::wait).
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<()>>;

    /// Blocks until a `finish` method has nothing to wait for. Each `finish` method does so itself.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    fn wait(&mut self) -> Result<()>;

    /// Drops what was begun and not finished: it is played, and nothing comes back.
    fn cancel(&mut self);

    fn write_state(&mut self, state: State, page: usize, values: &[f32]) -> Result<()>;
    fn write_cache(&mut self, cache: Cache, blocks: &[u32], values: &[f32]) -> Result<()>;

    /// Copies a block of every cache.
    fn copy_block(&mut self, from: u32, to: u32);

    /// Makes room for such a step. What is written to activations then is there when it is played.
    fn make_room(&mut self, step: &Step) -> Result<()>;
    fn write_var(&mut self, var: Var, values: &[f32]) -> Result<()>;

    /// Plays a step word by word and says what each took. The step's results are as of `run`.
    fn profile(&mut self, step: &Step) -> Result<Vec<WordTime>>;

    /// Plays a step, but for the head, and says which share of the inputs that words expect to be mostly zero is zero, the mean of
    /// these words; none where there are no such words.
    fn sparsity(&mut self, step: &Step) -> Result<Option<f64>>;

    /// Dispatches of such a step; none where nothing is dispatched.
    fn n_dispatches(&mut self, step: &Step) -> Result<Option<usize>>;
}

/// The error of a `finish` method without its `begin`.
fn nothing_begun() -> Error {
    Error::device("nothing was begun that could be finished: other work began on the device in between")
}

/// The error of a method that would have to block where nothing can.
#[cfg(target_arch = "wasm32")]
fn cannot_block() -> Error {
    Error::device("a browser cannot wait for its GPU").hint("await `ready` between begin and finish")
}
