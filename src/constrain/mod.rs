//! Output that follows rules: which tokens may come next, given those that came.
//!
//! A [`Constraint`] may be a caller's own; a [`Grammar`] makes one for a vocabulary. Knows no logits and no samplers: the session
//! masks what is not allowed before it draws.

#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
mod closing;
#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
mod deadline;
#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
mod follow;
#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
mod gbnf;
#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
mod grammar;
#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
mod lark;
#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
mod lexemes;
#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
mod parse;
#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
mod parts;
#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
mod schema;
#[cfg(all(test, feature = "grammar", not(target_arch = "wasm32")))]
mod tests;
#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
mod told;

#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
pub use follow::{Follower, Pieces};
#[cfg(all(feature = "grammar", not(target_arch = "wasm32")))]
pub use grammar::Grammar;

use crate::error::Result;

/// Says which tokens may come next.
pub trait Constraint: Send {
    /// What may follow the tokens accepted so far.
    ///
    /// # Errors
    /// Where nothing may follow and the text may not end either, or it takes too much work to tell.
    fn allowed(&mut self) -> Result<Allowed<'_>>;

    /// Takes the next token, one that was allowed. Ids that end the text are not told.
    ///
    /// # Errors
    /// Where the token was not allowed.
    fn accept(&mut self, id: u32) -> Result<()>;

    /// Tokens that make the text whole from here, as few as are known; empty where the text may end here. `None` if no way is known.
    fn closing(&mut self) -> Option<&[u32]> {
        None
    }

    /// Whether `left` tokens are enough to make the text whole after `id`, which is allowed. Where that is not known it counts as true.
    fn closes_within(&mut self, _id: u32, _left: usize) -> bool {
        true
    }
}

/// Which tokens may come next.
#[derive(Debug, Clone, Copy)]
pub struct Allowed<'a> {
    /// A bit an id: bit `id % 32` of word `id / 32`. Ids beyond are not allowed.
    pub ids: &'a [u32],
    /// The text may end here. Where no id is allowed, it does.
    pub may_end: bool,
}

impl Allowed<'_> {
    /// Nothing may follow: the text is complete.
    pub fn is_complete(&self) -> bool {
        self.may_end && self.ids.iter().all(|&word| word == 0)
    }

    /// Makes every logit minus infinity that is not allowed. `ends` are the ids that end a text: allowed where it may end, and only there.
    pub fn mask(&self, logits: &mut [f32], ends: &[u32]) {
        let words = self.ids.iter().copied().chain(std::iter::repeat(0));
        let kept: Vec<(u32, f32)> = ends.iter().filter_map(|&id| Some((id, *logits.get(id as usize)?))).collect();
        for (some, word) in logits.chunks_mut(32).zip(words) {
            if word != u32::MAX {
                some.iter_mut().enumerate().filter(|(bit, _)| word >> bit & 1 == 0).for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
            }
        }
        for (id, logit) in kept {
            logits[id as usize] = if self.may_end { logit } else { f32::NEG_INFINITY };
        }
    }
}

/// How many tokens are drawn that leave no room for the end of the text, before the end itself is taken.
const DRAWS: usize = 4;

/// What was drawn under rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawn {
    /// `None` where the text ends.
    pub token: Option<u32>,
    /// Another token was drawn first, one that left no room for the end of the text.
    pub is_closing: bool,
}

/// Draws the next token of a text under rules, with `left` tokens to go: one after which the text can still end whole, if a way to the end
/// is known that `left` tokens are enough for. `logits` are masked; `draw` draws from logits.
///
/// # Errors
/// Those of `draw`.
pub fn draw(
    constraint: &mut dyn Constraint,
    logits: &mut [f32],
    ends: &[u32],
    left: usize,
    draw: &mut dyn FnMut(&[f32]) -> Result<u32>,
) -> Result<Drawn> {
    let first = draw(logits)?;
    let free = |token| Drawn { token: Some(token), is_closing: token != first };
    let way = constraint.closing().filter(|way| way.len() <= left).map(|way| way.first().copied());
    let Some(way) = way else { return Ok(free(first)) };
    let mut token = first;
    for n in 1.. {
        if ends.contains(&token) || constraint.closes_within(token, left.saturating_sub(1)) {
            return Ok(free(token));
        }
        logits[token as usize] = f32::NEG_INFINITY;
        match draw(logits) {
            Ok(other) if n < DRAWS => token = other,
            _ => break,
        }
    }
    let Some(next) = way else { return Ok(Drawn { token: None, is_closing: true }) };
    logits.iter_mut().for_each(|logit| *logit = f32::NEG_INFINITY);
    logits[next as usize] = 0.0;
    // A setting may ban the token; then the text does not end whole.
    Ok(free(draw(logits).unwrap_or(first)))
}
