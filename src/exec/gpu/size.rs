//! The size of a step, which determines the plan and the room for activations.

use crate::tape::{Rows, Step, TOKENS_PER_BLOCK, Tape};

/// Upper bounds on the size of a step, rounded up to powers of two. A plan, the list of prepared dispatches of a step, is made for one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StepSize {
    pub tokens: usize,
    pub runs: usize,
    pub outputs: usize,
    /// The number of tokens of the longest slot, or 0 if the tape has no caches.
    pub context: usize,
}

impl StepSize {
    /// Returns a size that suits each of `n_steps` steps, of which `step` is the first. The context grows by one token per step.
    pub fn of(step: &Step, n_steps: usize, tape: &Tape) -> StepSize {
        let context = if tape.caches.is_empty() { 0 } else { step.context() + n_steps - 1 };
        StepSize { tokens: step.tokens.len(), runs: step.runs.len(), outputs: step.outputs.len(), context }.rounded()
    }

    /// Returns a size with room for `n` tokens, `n` runs and `n` outputs.
    pub fn room(n: usize) -> StepSize {
        StepSize { tokens: n, runs: n, outputs: n, context: 0 }.rounded()
    }

    fn rounded(self) -> StepSize {
        let round = |n: usize| n.max(1).next_power_of_two();
        let context = if self.context == 0 { 0 } else { round(self.context).max(TOKENS_PER_BLOCK) };
        StepSize { tokens: round(self.tokens), runs: round(self.runs), outputs: round(self.outputs), context }
    }

    /// Returns the number of rows that an activation has in a step of this size. `rows` is the meaning of one row.
    pub fn rows(&self, rows: Rows) -> usize {
        rows.count(self.tokens, self.outputs)
    }
}
