//! One token after the other: the logits as the original changes them, and the sampler.

use super::command::Overrides;
use super::core::{Core, SharedProcessor};
use super::saved::{Ids, Saved};
use crate::error::Result;
use crate::sample::Sampler;

/// What draws the tokens of one answer.
pub struct Drawer {
    pub ids: Ids,
    /// What was drawn and read.
    pub tokens: Vec<u32>,
    sampler: Sampler,
    processor: Option<SharedProcessor>,
    logits: Vec<f32>,
}

impl Drawer {
    /// Behind a state.
    pub fn new(core: &mut Core, overrides: Overrides, from: &Saved) -> Result<Drawer> {
        let (sampler, processor) = (core.sampler(overrides, &from.tokens)?, core.processor.clone());
        Ok(Drawer { ids: Ids::of(core), tokens: Vec::new(), sampler, processor, logits: Vec::new() })
    }

    /// The next token behind a state. It is not read yet, and counts in no penalty.
    pub fn draw(&mut self, core: &mut Core, from: &Saved) -> Result<u32> {
        core.session.logits(from.slot)?.clone_into(&mut self.logits);
        self.ids.adjust(from.adjust, &from.tokens, &mut self.logits);
        if let Some(processor) = &self.processor {
            let mut change = processor.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            change(&self.tokens, &mut self.logits);
        }
        let token = self.sampler.sample(&self.logits)?;
        core.draws = self.sampler.draws();
        Ok(token)
    }

    /// Counts a token that belongs to the answer: all counts decay, then its own grows by one. ChatRWKV lets no digit or blank off.
    pub fn accept(&mut self, token: u32) {
        self.sampler.accept(token, 1.0);
        self.tokens.push(token);
    }
}
