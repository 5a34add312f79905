//! Prompts of a recurrent model that grow from turn to turn. A model with attention rewinds its slot; a recurrent model continues from a
//! kept state whose tokens are the beginning of the new prompt.

use super::core::Core;
use crate::error::Result;
use crate::session::Slot;

/// A kept state of a recurrent model.
struct State {
    slot: Slot,
    /// Every token that the slot has read.
    tokens: Vec<u32>,
}

/// The slot of a conversation in messages, and kept states.
pub struct Kept {
    pub slot: Slot,
    /// States after the parts of prompts that later prompts share, the most recently used state last.
    states: Vec<State>,
}

impl Kept {
    pub fn new(core: &mut Core) -> Result<Kept> {
        Ok(Kept { slot: core.session.open()?, states: Vec::new() })
    }

    /// Prefills `prompt`, as far as neither the slot nor a kept state has read it. `stays` is the number of its first tokens that later prompts
    /// share. Returns the number of tokens that were prefilled.
    pub fn read(&mut self, core: &mut Core, prompt: &[u32], stays: usize) -> Result<usize> {
        if core.session.model().can_rewind() {
            return Ok(prompt.len() - core.session.read_to_with(self.slot, prompt, &mut *core.on_read)?);
        }
        let known = self.return_to(core, prompt)?;
        let stays = stays.min(prompt.len());
        if known < stays {
            core.session.prefill_many(&[(self.slot, &prompt[known..stays])], &mut *core.on_read)?;
            self.keep(core, &prompt[..stays]);
        }
        let rest = &prompt[known.max(stays)..];
        if !rest.is_empty() {
            core.session.prefill_many(&[(self.slot, rest)], &mut *core.on_read)?;
        }
        Ok(prompt.len() - known)
    }

    /// Makes the slot continue from the longest kept beginning of a prompt, or from the empty state. Returns the length of that beginning.
    fn return_to(&mut self, core: &mut Core, prompt: &[u32]) -> Result<usize> {
        let fork = self.find(prompt).and_then(|at| Some((at, core.session.fork(self.states[at].slot).ok()?)));
        let Some((at, slot)) = fork else {
            core.session.rewind(self.slot, 0)?;
            return Ok(0);
        };
        core.session.close(std::mem::replace(&mut self.slot, slot))?;
        let state = self.states.remove(at);
        let n = state.tokens.len();
        self.states.push(state);
        Ok(n)
    }

    /// Returns the index of the longest kept state that is the beginning of a prompt.
    fn find(&self, prompt: &[u32]) -> Option<usize> {
        let begins = |state: &State| !state.tokens.is_empty() && prompt.starts_with(&state.tokens);
        (0..self.states.len()).filter(|&at| begins(&self.states[at])).max_by_key(|&at| self.states[at].tokens.len())
    }

    /// Keeps the state of the slot, which has read `tokens`. Gives up the oldest state if no slot is free.
    fn keep(&mut self, core: &mut Core, tokens: &[u32]) {
        while core.session.n_free() < 2 && !self.states.is_empty() {
            let State { slot, .. } = self.states.remove(0);
            core.session.close(slot).expect("a kept state's slot is open");
        }
        if core.session.n_free() < 2 {
            return;
        }
        if let Ok(slot) = core.session.fork(self.slot) {
            self.states.push(State { slot, tokens: tokens.to_vec() });
        }
    }

    /// Returns the slot to save, and the tokens that it has read: the last kept state, or the slot of a model with attention.
    pub fn to_save(&self, core: &Core) -> Result<(Slot, Vec<u32>)> {
        match self.states.last() {
            Some(state) => Ok((state.slot, state.tokens.clone())),
            None => Ok((self.slot, core.session.tokens(self.slot)?.to_vec())),
        }
    }

    /// Closes all slots, so that a file can be loaded.
    pub fn close(&mut self, core: &mut Core) -> Result<()> {
        for State { slot, .. } in std::mem::take(&mut self.states) {
            core.session.close(slot)?;
        }
        core.session.close(self.slot)
    }

    /// Continues from a loaded slot. `tokens` are the tokens that it has read, or empty if they are unknown.
    pub fn load(&mut self, core: &mut Core, slot: Slot, tokens: &[u32]) {
        self.slot = slot;
        if !core.session.model().can_rewind() && !tokens.is_empty() {
            self.keep(core, tokens);
        }
    }
}
