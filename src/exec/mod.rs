//! Executors: they load a tape's weights and play the tape.
//!
//! `gpu` is the only place that names wgpu; `cpu` plays the twins. Both take plain data and give plain data back.

mod choose;
pub mod cpu;
pub mod gpu;
mod load;
pub mod selftest;

use crate::error::Result;
use crate::tape::{State, Step, Tape, Var};
use std::sync::Arc;

pub use choose::{Choice, Chosen, choose};
pub use load::{Progress, assign_formats};

/// A tape with its weights on a device. Shared by sessions.
pub trait Loaded: Send + Sync {
    fn tape(&self) -> &Arc<Tape>;

    /// Fresh memory for `pages` pages of state, all zero.
    fn executor(self: Arc<Self>, pages: usize) -> Result<Box<dyn Executor>>;

    /// Whether one dispatch can run so long that a driver kills it.
    fn is_watched(&self) -> bool;
}

/// Plays steps on its own pages of state.
pub trait Executor: Send {
    /// Plays the tape; `logits` becomes `[outputs, vocab]`, empty where the step has no outputs.
    fn run(&mut self, step: &Step, logits: &mut Vec<f32>) -> Result<()>;

    /// One page of a state, or one half page where the state has halves.
    fn read_state(&mut self, state: State, page: usize) -> Result<Vec<f32>>;
    fn write_state(&mut self, state: State, page: usize, values: &[f32]) -> Result<()>;

    /// Activations of the last step, `[planes, rows, stride]`; for tests.
    fn read_var(&mut self, var: Var, rows: usize) -> Result<Vec<f32>>;
    fn write_var(&mut self, var: Var, values: &[f32]) -> Result<()>;
}
