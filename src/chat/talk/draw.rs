//! One token after the other: the logits as the original changes them, and the sampler.

use super::command::Overrides;
use super::core::{Core, SharedProcessor};
use super::saved::{Ids, Saved};
use crate::constrain::{self, Constraint};
use crate::error::Result;
use crate::sample::Sampler;
use crate::session::{Finish, Processor};

/// What draws the tokens of one answer.
pub struct Drawer {
    pub ids: Ids,
    /// What was drawn and read.
    pub tokens: Vec<u32>,
    sampler: Sampler,
    processor: Option<Processor>,
    rules: Option<Box<dyn Constraint>>,
    /// The text is closed because its tokens run out.
    is_closing: bool,
    logits: Vec<f32>,
}

impl Drawer {
    /// Behind a state.
    pub fn new(core: &mut Core, overrides: Overrides, rules: Option<Box<dyn Constraint>>, from: &Saved) -> Result<Drawer> {
        let (sampler, processor) = (core.sampler(overrides, &from.tokens)?, core.processor.as_ref().map(SharedProcessor::lend));
        Ok(Drawer { ids: Ids::of(core), tokens: Vec::new(), sampler, processor, rules, is_closing: false, logits: Vec::new() })
    }

    /// Whether rules say where the text ends.
    pub fn follows_rules(&self) -> bool {
        self.rules.is_some()
    }

    /// Whether the text, which ends here, follows its rules to the end; `None` without rules. A text that is whole where its length
    /// ends is no cut one.
    pub fn end(&mut self, finish: &mut Finish) -> Option<bool> {
        let allowed = self.rules.as_mut()?.allowed();
        let (may_end, is_whole) = allowed.map_or((false, false), |allowed| (allowed.may_end, allowed.is_complete()));
        let is_complete = may_end || *finish == Finish::Eos;
        match finish {
            Finish::Length if is_whole && !self.is_closing => *finish = Finish::Eos,
            Finish::Eos if self.is_closing => *finish = Finish::Length,
            _ => {}
        }
        Some(is_complete)
    }

    /// The next token behind a state, where the text may have `left` more; none where the rules of the text end it. It is not read yet, and
    /// counts in no penalty.
    pub fn draw(&mut self, core: &mut Core, from: &Saved, left: usize) -> Result<Option<u32>> {
        core.session.logits(from.slot)?.clone_into(&mut self.logits);
        self.ids.adjust(from.adjust, &from.tokens, &mut self.logits);
        if let Some(change) = &mut self.processor {
            change(&self.tokens, &mut self.logits);
        }
        let token = match &mut self.rules {
            None => self.sampler.sample(&self.logits)?,
            Some(rules) => {
                let allowed = rules.allowed()?;
                if allowed.is_complete() {
                    return Ok(None);
                }
                allowed.mask(&mut self.logits, &self.ids.end_of_text);
                let (ends, sampler) = (&self.ids.end_of_text, &mut self.sampler);
                let drawn = constrain::draw(rules.as_mut(), &mut self.logits, ends, left, &mut |logits| sampler.draw(logits))
                    .map_err(|e| e.hint("the grammar allows none of the tokens that are left"))?;
                self.is_closing |= drawn.is_closing;
                match drawn.token {
                    Some(token) if !ends.contains(&token) => token,
                    _ => return Ok(None),
                }
            }
        };
        core.draws = self.sampler.draws();
        Ok(Some(token))
    }

    /// Counts a token that belongs to the answer: all counts decay, then its own grows by one. ChatRWKV lets no digit or blank off.
    pub fn accept(&mut self, token: u32) -> Result<()> {
        self.sampler.accept(token, 1.0);
        self.tokens.push(token);
        self.rules.as_mut().map_or(Ok(()), |rules| rules.accept(token))
    }
}
