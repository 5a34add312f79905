//! Going back: what a transformer has read of a text need not be read again.

use super::{Session, Slot, pages};
use crate::error::{Error, Result};

impl Session {
    /// How many tokens a slot can still read; none where there is no end.
    pub fn n_left(&self, slot: Slot) -> Result<Option<usize>> {
        let read = self.contents(slot)?.n_tokens;
        Ok(self.model.context().map(|context| context - read))
    }

    /// What a slot of a model with attention has read, as far as it is known; nothing of a recurrence.
    pub fn tokens(&self, slot: Slot) -> Result<&[u32]> {
        Ok(&self.contents(slot)?.tokens)
    }

    /// Goes back to a slot's first `n` tokens; it then has no logits. A recurrence can only go back to nothing.
    pub fn rewind(&mut self, slot: Slot, n: usize) -> Result<()> {
        let has = self.n_tokens(slot)?;
        if n > has {
            return Err(Error::input(format!("the slot has read {has} tokens, not {n}")));
        }
        if n > 0 && n < has && self.model.context().is_none() {
            return Err(Error::input("a recurrent state cannot go back").hint("fork the slot where you may want to go back to"));
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

    /// Makes a slot stand after exactly these tokens, its logits ready. What it has read of them is kept, if the model can go back to
    /// it; the rest is read. Gives how many were kept.
    pub fn read_to(&mut self, slot: Slot, tokens: &[u32]) -> Result<usize> {
        self.read_to_with(slot, tokens, &mut |_, _| ())
    }

    /// [`Session::read_to`] with progress: tokens read, and tokens to read in all.
    pub fn read_to_with(&mut self, slot: Slot, tokens: &[u32], progress: &mut dyn FnMut(usize, usize)) -> Result<usize> {
        let contents = self.contents(slot)?;
        let known = contents.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        if known == tokens.len() && known == contents.n_tokens && !contents.logits.is_empty() {
            return Ok(known);
        }
        // The last one is read again, for its logits.
        let kept = known.min(tokens.len().saturating_sub(1));
        self.check_reads(slot, &tokens[kept..], kept)?;
        if kept < self.n_tokens(slot)? {
            self.rewind(slot, kept)?;
        }
        self.prefill_many(&[(slot, &tokens[kept..])], progress)?;
        Ok(kept)
    }
}
