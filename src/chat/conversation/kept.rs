//! Reads the prompts of a conversation without prefilling their common beginning again. A model with attention rewinds its slot. A recurrent
//! model cannot rewind, so this module keeps states of earlier prompts and continues from a kept state.

use super::core::Core;
use crate::error::Result;
use crate::session::Slot;

/// A kept state of a recurrent model.
struct State {
    slot: Slot,
    /// Every token that the slot has read.
    tokens: Vec<u32>,
}

/// The slot of a conversation, and the kept states of a recurrent model.
pub struct Kept {
    pub slot: Slot,
    /// Kept states. The tokens of a kept state are the first tokens of several prompts. The most recently used state comes last.
    states: Vec<State>,
}

impl Kept {
    pub fn new(core: &mut Core) -> Result<Kept> {
        Ok(Kept { slot: core.session.open()?, states: Vec::new() })
    }

    /// Changes the slot to the state after `prompt`. Prefills only the tokens after the beginning that the slot (model with attention) or a kept
    /// state (recurrent model) has already read. Later prompts also begin with the first `stays` tokens of `prompt`. So if the model is recurrent,
    /// the state after these tokens is kept. Returns the number of tokens that were prefilled.
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

    /// Replaces the slot by a fork of the kept state that has read the most tokens of `prompt` ([`find`](Self::find)). Sets the slot to the empty
    /// state instead if no kept state matches, or if no slot is free for a fork. Returns how many tokens of `prompt` the slot has now read.
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

    /// Returns the index of the kept state that has read the most tokens, among the states whose tokens are the first tokens of `prompt`. Returns
    /// `None` if no state matches.
    fn find(&self, prompt: &[u32]) -> Option<usize> {
        let begins = |state: &State| !state.tokens.is_empty() && prompt.starts_with(&state.tokens);
        (0..self.states.len()).filter(|&at| begins(&self.states[at])).max_by_key(|&at| self.states[at].tokens.len())
    }

    /// Keeps a copy of the slot's state. `tokens` are the tokens that the slot has read. If fewer than two slots are free, first drops the least
    /// recently used states. If still fewer than two slots are free, keeps nothing.
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

    /// Returns the slot to save to a file, and the tokens that this slot has read. This is the slot of the most recently used kept state or, without
    /// kept states, the slot of the conversation.
    pub fn to_save(&self, core: &Core) -> Result<(Slot, Vec<u32>)> {
        match self.states.last() {
            Some(state) => Ok((state.slot, state.tokens.clone())),
            None => Ok((self.slot, core.session.tokens(self.slot)?.to_vec())),
        }
    }

    /// Closes all slots. Afterwards, [`load`](Self::load) must set a new slot.
    pub fn close(&mut self, core: &mut Core) -> Result<()> {
        for State { slot, .. } in std::mem::take(&mut self.states) {
            core.session.close(slot)?;
        }
        core.session.close(self.slot)
    }

    /// Makes `slot` the slot of the conversation. `tokens` are the tokens that `slot` has read. An empty list means that the tokens are unknown.
    pub fn load(&mut self, core: &mut Core, slot: Slot, tokens: &[u32]) {
        self.slot = slot;
        if !core.session.model().can_rewind() && !tokens.is_empty() {
            self.keep(core, tokens);
        }
    }
}
