//! Kept states: where the model stands after some tokens, and what is changed of its logits there.
//!
//! A state is a slot of the session. Those that are kept never change: whoever goes on from one forks it, so that coming back is exact
//! to the bit, and a branch or a step of `undo` shares them for nothing.

use super::core::Core;
use crate::error::{Error, Result};
use crate::session::Slot;
use std::sync::Arc;

/// A logit that is as good as banned.
pub const BANNED: f32 = -999_999_999.0;

/// What the original adds to the logits behind the tokens it reads.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Adjust {
    /// Added to a newline's.
    pub newline: f32,
    /// The end of the text is not drawn.
    pub bans_end: bool,
}

/// A state that may go on.
#[derive(Debug)]
pub struct Saved {
    pub slot: Slot,
    /// Every token that led here.
    pub tokens: Vec<u32>,
    pub adjust: Adjust,
}

/// A state that is kept.
pub type Kept = Arc<Saved>;

/// The ids that the original treats in its own way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ids {
    pub end_of_text: Vec<u32>,
    /// Where the vocabulary has a newline alone.
    pub end_of_line: Option<u32>,
    /// Those that do not come twice in a row.
    pub avoided: Vec<u32>,
}

impl Ids {
    /// What they are of this model.
    pub fn of(core: &Core) -> Ids {
        let single = |text: &str| match core.vocab.encode(text.as_bytes()).as_deref() {
            Ok([id]) => Some(*id),
            _ => None,
        };
        let mut buffer = [0; 4];
        let avoided = core.settings.avoid_repeat.chars().filter_map(|c| single(c.encode_utf8(&mut buffer))).collect();
        Ids { end_of_text: core.session.model().facts().stop_ids.clone(), end_of_line: single("\n"), avoided }
    }

    /// Changes the logits behind these tokens.
    pub fn adjust(&self, adjust: Adjust, tokens: &[u32], logits: &mut [f32]) {
        let mut set = |id: u32, to: &dyn Fn(f32) -> f32| {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = to(*logit);
            }
        };
        if let Some(id) = self.end_of_line {
            set(id, &|logit| logit + adjust.newline);
        }
        if let Some(last) = tokens.last().filter(|last| self.avoided.contains(last)) {
            set(*last, &|_| BANNED);
        }
        if adjust.bans_end {
            self.end_of_text.iter().for_each(|id| set(*id, &|_| BANNED));
        }
    }
}

impl Core {
    /// Where a text begins.
    pub fn fresh(&mut self) -> Result<Saved> {
        let (slot, tokens) = match self.start.clone() {
            Some((start, tokens)) => (self.session.fork(start)?, tokens),
            None => (self.session.open()?, Vec::new()),
        };
        Ok(Saved { slot, tokens, adjust: Adjust::default() })
    }

    /// A second one that goes on from here.
    pub fn copy(&mut self, of: &Saved) -> Result<Saved> {
        Ok(Saved { slot: self.session.fork(of.slot)?, tokens: of.tokens.clone(), adjust: of.adjust })
    }

    pub fn drop(&mut self, saved: Saved) {
        self.session.close(saved.slot).expect("a kept slot is open");
    }

    /// Gives up one user's share of a state.
    pub fn release(&mut self, kept: Kept) {
        if let Some(saved) = Arc::into_inner(kept) {
            self.drop(saved);
        }
    }

    /// Reads tokens in chunks.
    ///
    /// # Errors
    /// `Interrupted` when somebody said stop; else as [`Session::prefill`](crate::session::Session::prefill).
    pub fn read(&mut self, saved: &mut Saved, tokens: &[u32], adjust: Adjust, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        let chunk_len = self.settings.chunk_len;
        for (i, chunk) in tokens.chunks(chunk_len).enumerate() {
            if i > 0 {
                self.check_stop()?;
            }
            let on_read = &mut self.on_read;
            let mut tell = |done: usize, _| {
                let done = i * chunk_len + done;
                on_read(done, tokens.len());
                progress(done, tokens.len());
            };
            self.session.prefill_many(&[(saved.slot, chunk)], &mut tell)?;
        }
        saved.tokens.extend_from_slice(tokens);
        saved.adjust = adjust;
        Ok(())
    }

    /// Reads a token that was drawn.
    pub fn feed(&mut self, saved: &mut Saved, token: u32, adjust: Adjust) -> Result<()> {
        self.session.decode(saved.slot, token)?;
        saved.tokens.push(token);
        saved.adjust = adjust;
        Ok(())
    }

    /// Goes on with a copy; it is gone if that fails.
    pub fn behind<T>(&mut self, start: &Saved, go: impl FnOnce(&mut Core, &mut Saved) -> Result<T>) -> Result<(Saved, T)> {
        let copy = self.copy(start)?;
        self.with(copy, go)
    }

    /// The same from before the first token.
    pub fn anew<T>(&mut self, go: impl FnOnce(&mut Core, &mut Saved) -> Result<T>) -> Result<(Saved, T)> {
        let fresh = self.fresh()?;
        self.with(fresh, go)
    }

    /// Goes on with a state; it is gone if that fails.
    pub fn with<T>(&mut self, mut saved: Saved, go: impl FnOnce(&mut Core, &mut Saved) -> Result<T>) -> Result<(Saved, T)> {
        match go(self, &mut saved) {
            Ok(made) => Ok((saved, made)),
            Err(e) => {
                self.drop(saved);
                Err(e)
            }
        }
    }
}

/// There is no room for another state.
pub fn no_room() -> Error {
    Error::memory("expected room for another state, found every slot of the session in use").hint("remove a branch")
}
