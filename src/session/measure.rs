//! Measurements of a model's words (fused operations), for benchmarks and tests. The functions of this module may change between versions. Each
//! function blocks until the device is done.

use super::slots::Slot;
use super::{Session, some};
use crate::error::Result;
use crate::exec::{Executor, WordTime};
use crate::tape::Step;

/// Returns the time of every word (fused operation) in one step. The step reads `n_tokens` tokens in one slot and computes the logits after the
/// last token.
///
/// # Errors
/// `Device` if the adapter does not support timestamps; `Input` if all slots are in use, or if `n_tokens` is 0.
pub fn profile(session: &mut Session, n_tokens: usize) -> Result<Vec<WordTime>> {
    let slot = session.open()?;
    aside(session, slot, &vec![0; n_tokens], |executor, step| executor.profile(step))
}

/// Returns the number of dispatches (runs of GPU kernels) per decoded token, or `None` on the CPU.
///
/// # Errors
/// `Input` if all slots are in use.
pub fn dispatches_per_token(session: &mut Session) -> Result<Option<usize>> {
    let slot = session.open()?;
    aside(session, slot, &[0], |executor, step| executor.n_dispatches(step))
}

/// Decodes a token in a fork of the slot. Returns the mean fraction of zeros in the inputs of the ffn's value matrices, or `None` if the
/// model has no such matrices. The slot does not change.
///
/// # Errors
/// `Input` if all slots are in use, or if the token is out of range.
pub fn ffn_sparsity(session: &mut Session, slot: Slot, token: u32) -> Result<Option<f64>> {
    let fork = session.fork(slot)?;
    aside(session, fork, &[token], |executor, step| executor.sparsity(step))
}

/// Calls `play` with a step that reads `tokens` in `slot`, and then closes the slot. Returns the result of `play`. The slot must be new or a fork, so
/// that its page (the memory of its states) is shared. The step then writes to another page and changes no state that is still used.
fn aside<T>(session: &mut Session, slot: Slot, tokens: &[u32], play: impl FnOnce(&mut dyn Executor, &Step) -> Result<T>) -> Result<T> {
    let result = play_aside(session, slot, tokens, play);
    session.close(slot)?;
    result
}

fn play_aside<T>(session: &mut Session, slot: Slot, tokens: &[u32], play: impl FnOnce(&mut dyn Executor, &Step) -> Result<T>) -> Result<T> {
    some(tokens)?;
    session.check([(slot, tokens)].as_slice())?;
    let n = tokens.len() as u32;
    let page = session.contents(slot)?.page;
    let go = session.pages.begin(page);
    let mut step = Step { tokens: tokens.to_vec(), outputs: vec![n - 1], ..Step::default() };
    session.add_run(&mut step, slot, go.run(0, n), tokens.len())?;
    let result = play(session.executor.as_mut(), &step);
    session.pages.cancel(&go);
    result
}
