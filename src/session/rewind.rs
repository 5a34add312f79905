//! Rewinds slots to an earlier token. A transformer can thus prefill the common beginning of two texts only once.

use super::{Session, Slot, pages};
use crate::error::{Error, Result};

impl Session {
    /// Returns how many more tokens a slot can read. `None` for a recurrent model without attention, which has no limit.
    ///
    /// # Errors
    /// `Input` if the slot was closed, or belongs to another session.
    pub fn n_left(&self, slot: Slot) -> Result<Option<usize>> {
        let read = self.contents(slot)?.n_tokens;
        Ok(self.model.context().map(|context| context - read))
    }

    /// Returns the tokens that a slot has read. The result is empty for a model without attention, or if the slot's first tokens are unknown.
    ///
    /// # Errors
    /// The errors of [`n_left`](Self::n_left).
    pub fn tokens(&self, slot: Slot) -> Result<&[u32]> {
        Ok(&self.contents(slot)?.tokens)
    }

    /// Removes all tokens after the first `n` from a slot's sequence. The slot has no logits then. With a recurrent model, `n` must be 0 or the
    /// current number of tokens.
    ///
    /// # Errors
    /// `Input` if the slot has read fewer than `n` tokens, or if the model is recurrent and does not allow this `n`.
    pub fn rewind(&mut self, slot: Slot, n: usize) -> Result<()> {
        let has = self.n_tokens(slot)?;
        if n > has {
            return Err(Error::input(format!("cannot rewind to {n} tokens: the slot has read only {has} tokens")));
        }
        if n > 0 && n < has && !self.model.can_rewind() {
            return Err(Error::input("cannot rewind: the state of a recurrent model holds no earlier states")
                .hint("fork the slot before you continue, and return to the fork"));
        }
        let contents = self.slots.get_mut(slot)?;
        self.blocks.truncate(&mut contents.blocks, n);
        contents.tokens.truncate(n);
        (contents.n_tokens, contents.logits) = (n, Vec::new());
        if n == 0 {
            self.pages.release(contents.page);
            contents.page = self.pages.share(pages::ZERO);
        }
        Ok(())
    }

    /// Makes a slot contain exactly `tokens`, with the logits after the last token. Keeps the beginning that the slot's sequence shares with
    /// `tokens`, and prefills the rest, at least the last token. Begins with an empty sequence if the slot cannot be rewound that far or its tokens
    /// are unknown. Does nothing if the slot already has exactly `tokens` and logits. Returns how many of `tokens` were not read again.
    ///
    /// # Errors
    /// The errors of [`prefill`](Self::prefill) and [`rewind`](Self::rewind).
    pub fn read_to(&mut self, slot: Slot, tokens: &[u32]) -> Result<usize> {
        self.read_to_with(slot, tokens, &mut |_, _| ())
    }

    /// Does what [`read_to`](Self::read_to) does, and calls `progress(tokens read so far, total tokens to read)` after each step. Returns the same
    /// errors.
    pub fn read_to_with(&mut self, slot: Slot, tokens: &[u32], progress: &mut dyn FnMut(usize, usize)) -> Result<usize> {
        let contents = self.contents(slot)?;
        let known = contents.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        if known == tokens.len() && known == contents.n_tokens && !contents.logits.is_empty() {
            return Ok(known);
        }
        // At least the last token must be read, because the logits after this token are needed.
        let mut kept = known.min(tokens.len().saturating_sub(1));
        if kept < contents.n_tokens && !self.model.can_rewind() {
            kept = 0;
        }
        self.check_reads(slot, &tokens[kept..], kept)?;
        if kept < self.n_tokens(slot)? {
            self.rewind(slot, kept)?;
        }
        self.prefill_many(&[(slot, &tokens[kept..])], progress)?;
        Ok(kept)
    }
}
