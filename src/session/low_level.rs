//! What a model's words cost, for benches and tests. Documented, not promised to stay. Each function blocks.

use super::slots::Slot;
use super::{Session, some};
use crate::error::Result;
use crate::exec::{Executor, WordTime};
use crate::tape::Step;

/// Returns what every word of the model takes in a step of so many tokens of one slot, logits of the last token included.
///
/// # Errors
/// `Device` if the adapter has no timestamps, `Input` if all slots are in use or no token is asked for.
pub fn profile(session: &mut Session, n_tokens: usize) -> Result<Vec<WordTime>> {
    let slot = session.open()?;
    aside(session, slot, &vec![0; n_tokens], |executor, step| executor.profile(step))
}

/// Returns the dispatches of one decoded token, or `None` on the CPU.
///
/// # Errors
/// `Input` if all slots are in use.
pub fn dispatches_per_token(session: &mut Session) -> Result<Option<usize>> {
    let slot = session.open()?;
    aside(session, slot, &[0], |executor, step| executor.n_dispatches(step))
}

/// Returns which share of what the ffn's value matrices multiply is zero if that token comes next: the mean of all layers, or `None` if
/// the model has no such matrices. The slot stays where it is.
///
/// # Errors
/// `Input` if all slots are in use, or at a token that the model does not have.
pub fn ffn_sparsity(session: &mut Session, slot: Slot, token: u32) -> Result<Option<f64>> {
    let fork = session.fork(slot)?;
    aside(session, fork, &[token], |executor, step| executor.sparsity(step))
}

/// A step that leaves nothing behind, on a slot that shares its page; closes the slot.
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
