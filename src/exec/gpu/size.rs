//! How large a step is, as far as plans and activations care.

use crate::tape::{Rows, Step, TOKENS_PER_BLOCK, Tape};

/// Upper bounds of a step, rounded up to powers of two: what a plan is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    pub tokens: usize,
    pub runs: usize,
    pub outputs: usize,
    /// Tokens of the longest slot; 0 where the tape has no caches.
    pub context: usize,
}

impl Size {
    /// Of this many steps, each after the one before.
    pub fn of(step: &Step, n_steps: usize, tape: &Tape) -> Size {
        let context = if tape.caches.is_empty() { 0 } else { step.context() + n_steps - 1 };
        Size { tokens: step.tokens.len(), runs: step.runs.len(), outputs: step.outputs.len(), context }.rounded()
    }

    /// Room for so many rows, whatever they are.
    pub fn room(n: usize) -> Size {
        Size { tokens: n, runs: n, outputs: n, context: 0 }.rounded()
    }

    fn rounded(self) -> Size {
        let round = |n: usize| n.max(1).next_power_of_two();
        let context = if self.context == 0 { 0 } else { round(self.context).max(TOKENS_PER_BLOCK) };
        Size { tokens: round(self.tokens), runs: round(self.runs), outputs: round(self.outputs), context }
    }

    pub fn rows(&self, rows: Rows) -> usize {
        rows.count(self.tokens, self.outputs)
    }
}
