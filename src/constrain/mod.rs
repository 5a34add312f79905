//! Constrained output: determines which tokens may come next, given the tokens so far.
//!
//! A [`Grammar`] is compiled to a [`Constraint`] for a vocabulary. A caller can also implement [`Constraint`]. This module must not know
//! samplers: the session masks the logits of the tokens that a constraint does not allow, and then draws.
//!
//! ```
//! # #[cfg(all(feature = "grammar", feature = "embedded-model"))]
//! # fn main() -> wingbeat::error::Result<()> {
//! use serde_json::json;
//! use std::ops::ControlFlow;
//! use wingbeat::constrain::{Grammar, Pieces};
//! use wingbeat::low_level::sample::{Sampler, Sampling};
//! use wingbeat::low_level::session::{Limits, Model, ModelSource, Options, Session, Text};
//!
//! # let mut options = Options::default();
//! # options.device = "cpu".parse()?;
//! let model = Model::load(&ModelSource::Embedded, &options, &mut |_done, _total| ())?;
//! let pieces = Pieces::new(model.vocab().expect("the embedded vocabulary"), model.facts().n_vocab)?;
//! let schema = json!({ "type": "object", "properties": { "age": { "type": "integer" } }, "required": ["age"] });
//! let grammar = Grammar::json_schema(&schema)?; // or `Grammar::gbnf("root ::= …")`
//!
//! let mut session = Session::new(&model, 1)?;
//! let slot = session.open()?;
//! let prompt = session.encode(&"And this is the age of Methuselah:".into())?;
//! session.prefill(slot, &prompt)?;
//! let limits = Limits::new(24);
//! let mut continuations = [Text::after(slot, Sampler::new(Sampling::greedy(0)), &limits)];
//! continuations[0].spec.constraint = Some(Box::new(pieces.follow(&grammar)?));
//! session.continue_many(&mut continuations, &mut |_event| ControlFlow::Continue(()))?;
//! let value: serde_json::Value = serde_json::from_str(&continuations[0].text).expect("JSON");
//! assert!(value["age"].is_number());
//! # Ok(())
//! # }
//! # #[cfg(not(all(feature = "grammar", feature = "embedded-model")))]
//! # fn main() {}
//! ```

#[cfg(feature = "grammar")]
mod closing;
#[cfg(feature = "grammar")]
mod deadline;
#[cfg(feature = "grammar")]
mod explain;
#[cfg(feature = "grammar")]
mod follow;
#[cfg(feature = "grammar")]
mod gbnf;
#[cfg(feature = "grammar")]
mod grammar;
#[cfg(feature = "grammar")]
mod lark;
#[cfg(feature = "grammar")]
mod lexemes;
mod narrowed;
#[cfg(feature = "grammar")]
mod parse;
#[cfg(feature = "grammar")]
mod parts;
#[cfg(feature = "grammar")]
mod schema;
#[cfg(all(test, feature = "grammar"))]
mod tests;

#[cfg(feature = "grammar")]
pub use follow::{Follower, Pieces};
#[cfg(feature = "grammar")]
pub use grammar::Grammar;
#[cfg(feature = "grammar")]
pub(crate) use grammar::unwrapped;
pub(crate) use narrowed::Narrowing;

use crate::error::Result;

/// A constraint on a text: determines which tokens may come next.
pub trait Constraint: Send {
    /// Returns the tokens that may follow the tokens accepted so far.
    ///
    /// # Errors
    /// Returns an error if no token may follow and the text may not end, or if the computation exceeds a limit.
    fn allowed(&mut self) -> Result<Allowed<'_>>;

    /// Appends a token to the text. The token must be allowed. The session does not call this method for an id that ends the text.
    ///
    /// # Errors
    /// Returns an error if the token is not allowed.
    fn accept(&mut self, id: u32) -> Result<()>;

    /// Returns the shortest known sequence of tokens that completes the text. The sequence is empty if the text may end here. Returns `None` if no
    /// such sequence is known.
    fn closing(&mut self) -> Option<&[u32]> {
        None
    }

    /// Returns the bytes that must come next, whatever tokens spell these bytes. Returns no bytes if there is a choice, or if the constraint does not
    /// know. Only speculation uses the result, to guess the next tokens.
    fn forced(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Returns whether the text plus the allowed token `id` can be completed with at most `left` further tokens. Returns true if the constraint
    /// does not know.
    fn closes_within(&mut self, _id: u32, _left: usize) -> bool {
        true
    }

    /// Returns whether the constraint determines when a text is complete. If not, the constraint only excludes tokens, and
    /// [`Text::complete`](crate::low_level::session::Text::complete) is `None`.
    fn has_rules(&self) -> bool {
        true
    }
}

/// The tokens that may come next, and whether the text may end.
#[derive(Debug, Clone, Copy)]
pub struct Allowed<'a> {
    /// One bit per id: bit `id % 32` of element `id / 32`. Ids beyond the last element are not allowed.
    pub ids: &'a [u32],
    /// `true` if the text may end here. If the text may end and no id is allowed, the text is complete.
    pub may_end: bool,
}

impl Allowed<'_> {
    /// Returns whether the text is complete: the text may end here, and no token may follow.
    pub fn is_complete(&self) -> bool {
        self.may_end && self.ids.iter().all(|&word| word == 0)
    }

    /// Masks all ids that are not allowed, by setting their logits to minus infinity. `logits` has one element per id. `ends` lists the ids that end
    /// a text: they are allowed if the text may end here.
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

/// The maximum number of tokens that are drawn and tested at one position. If none of them lets the text be completed within its token limit, the
/// first token of the constraint's [`closing`](Constraint::closing) sequence is used instead.
const DRAWS: usize = 4;

/// The result of drawing a token under a constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawn {
    /// The chosen token. `None` if the text must end here: the text is complete, and no drawn token lets the text be completed again within the token
    /// limit.
    pub token: Option<u32>,
    /// `true` if the first drawn token was not used, because the text could not have been completed after it within the token limit.
    pub is_closing: bool,
}

/// Draws the next token of a text under a constraint. The text may have at most `left` more tokens, including this token.
///
/// If the constraint can complete the text with at most `left` tokens ([`Constraint::closing`]), it can still do so after the chosen token, unless a
/// ban prevents this. `logits` has one element per id and must already be masked; this function changes it. `ends` lists the ids that end a text.
/// `draw` draws a token from logits.
///
/// # Errors
/// The error of the first call of `draw`. Errors of later calls are not returned.
pub fn draw(
    constraint: &mut dyn Constraint,
    logits: &mut [f32],
    ends: &[u32],
    left: usize,
    draw: &mut dyn FnMut(&[f32]) -> Result<u32>,
) -> Result<Drawn> {
    let first = draw(logits)?;
    let free = |token| Drawn { token: Some(token), is_closing: token != first };
    let ending = constraint.closing().filter(|ending| ending.len() <= left).map(|ending| ending.first().copied());
    let Some(ending) = ending else { return Ok(free(first)) };
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
    let Some(next) = ending else { return Ok(Drawn { token: None, is_closing: true }) };
    logits.iter_mut().for_each(|logit| *logit = f32::NEG_INFINITY);
    logits[next as usize] = 0.0;
    // `draw` fails if the settings ban this token; the token that was drawn first is then used, and the text may stay incomplete
    Ok(free(draw(logits).unwrap_or(first)))
}
