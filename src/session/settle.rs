//! Guesses in a step. A guess counts as read by its slot only after it has turned out to be right.

use super::work::{LogitRows, Scratch};
use super::{Model, Session};
use crate::error::Result;

impl Session {
    /// Returns whether texts may guess: the session has pages for guesses, or the model needs none.
    pub(crate) fn may_guess(&self) -> bool {
        self.may_guess
    }

    /// Lets a smaller model with the same vocabulary guess for the texts of [`continue_many`](Self::continue_many) that take its guesses
    /// ([`TextSpec::speculation`](super::TextSpec::speculation)).
    ///
    /// # Errors
    /// `Model` if the draft has another vocabulary or predicts no tokens.
    pub fn set_draft(&mut self, draft: &Model) -> Result<()> {
        draft.check_drafts_for(&self.model)?;
        self.draft = Some(draft.clone());
        Ok(())
    }

    /// Returns the largest number of guesses in a step that reads `n_rows` other tokens. Returns 0 if the session has no pages for guesses.
    pub(super) fn room_for_guesses(&self, n_rows: usize) -> usize {
        let room = self.chunk.tokens(self.max_rows(LogitRows::All));
        if self.may_guess { room.saturating_sub(n_rows) } else { 0 }
    }

    /// Returns the logits after token `t` of item `i` of the last submission, if the step returned them.
    pub(super) fn row(&self, i: usize, t: usize) -> Option<&[f32]> {
        let Scratch { parts, rows, logits, .. } = &self.scratch;
        let at = parts.iter().position(|part| part.work == i)?;
        let first = parts[at].from + parts[at].len - rows[at];
        let row = rows[..at].iter().sum::<usize>() + t.checked_sub(first)?;
        logits.chunks_exact(self.model.n_outputs()).nth(row)
    }

    /// Drops the wrong guesses of item `i` of the last submission: only its first `n_kept` tokens, with which `tokens` begins, belong to the text.
    /// Returns how many tokens the slot has read: `n_kept`, or 0 if the states after these tokens are unknown, so that the slot must read them again.
    pub(super) fn settle(&mut self, i: usize, tokens: &[u32], n_kept: usize) -> Result<usize> {
        let Some(found) = self.scratch.unsettled.iter().position(|&at| self.scratch.parts[at].work == i) else { return Ok(0) };
        let at = self.scratch.unsettled[found];
        let (part, go) = (self.scratch.parts[at], self.scratch.moves[at]);
        self.contents(part.slot)?;
        self.scratch.unsettled.swap_remove(found);
        let is_kept = n_kept == part.len || self.model.can_rewind();
        let logits = n_kept.checked_sub(1).filter(|_| is_kept).and_then(|t| self.row(i, part.from + t)).map(<[f32]>::to_vec);
        let contents = self.slots.get_mut(part.slot)?;
        if is_kept {
            self.pages.finish(&go);
            contents.advance(go.page_out, &tokens[..n_kept], self.model.context().is_some());
            contents.logits = logits.unwrap_or_default();
        } else {
            self.pages.cancel(&go);
        }
        self.blocks.truncate(&mut contents.blocks, contents.n_tokens);
        Ok(if is_kept { n_kept } else { 0 })
    }

    /// Drops the guesses of the last submission that [`settle`](Self::settle) did not decide about: after an error, or if other work follows.
    pub(super) fn drop_guesses(&mut self) {
        let Scratch { unsettled, moves, .. } = &mut self.scratch;
        for at in unsettled.drain(..) {
            self.pages.cancel(&moves[at]);
        }
    }
}
