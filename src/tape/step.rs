//! One step: one pass through the model for tokens of one or several slots.
//!
//! The cursor is the uniform buffer that describes a step to kernels. On the host, only `Step::encode` writes the cursor.
//! `shaders/lib/cursor.wgsl` reads the cursor.

use crate::error::{Error, Result};

/// The size of the cursor in 32-bit words: 64 KiB, the largest uniform buffer that every WebGPU device supports.
pub const CURSOR_WORDS: usize = 16384;

/// Consecutive tokens of one slot in a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Run {
    /// The index of the run's first token in [`Step::tokens`]. In activations with one row per token, the run's first row has the same index.
    pub first_row: u32,
    /// The number of tokens in the run.
    pub len: u32,
    /// The page from which the step reads the slot's recurrent states. A page is the memory of one slot's states.
    pub page_in: u32,
    /// The page to which the step writes the slot's recurrent states. `page_out` differs from `page_in` if another slot shares the page
    /// `page_in`.
    pub page_out: u32,
    /// The half page that the step reads, for states whose pages have two halves. Half h (0 or 1) of page p has the index 2 p + h.
    pub shift_in: u32,
    /// The half page that the step writes, with an index like `shift_in`. `shift_out` always differs from `shift_in`.
    pub shift_out: u32,
    /// The position of the run's first token: the number of tokens that the slot has read before this step. Only models with caches use `position`.
    pub position: u32,
    /// The index of the slot's first block in [`Step::blocks`].
    pub blocks_at: u32,
}

impl Run {
    /// Returns how many tokens the slot has read after this step.
    pub fn end(&self) -> usize {
        (self.position + self.len) as usize
    }
}

/// The work of one step. The tokens are divided into runs, one run per slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Token ids, run by run.
    pub tokens: Vec<u32>,
    pub runs: Vec<Run>,
    /// The indices in `tokens` of the tokens whose logits are requested.
    pub outputs: Vec<u32>,
    /// The indices of each slot's cache blocks, slot by slot, including blocks for the new tokens. If [`Step::advance`] will follow, blocks for
    /// the later tokens are listed, too.
    pub blocks: Vec<u32>,
}

impl Step {
    /// Returns the largest number of tokens in a step of `runs` runs. It fits the cursor even if every token is an output.
    pub fn max_tokens(runs: usize) -> usize {
        (CURSOR_WORDS / 4 - 4).saturating_sub(2 * runs).saturating_mul(4) / 5
    }

    /// Removes everything from the step.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.runs.clear();
        self.outputs.clear();
        self.blocks.clear();
    }

    /// Returns the largest number of tokens that any slot of the step has read after this step.
    pub fn context(&self) -> usize {
        self.runs.iter().map(Run::end).max().unwrap_or(0)
    }

    /// Fills `words` with the cursor, in rows of four 32-bit words: two rows of header, one row per token, two rows per run, one row per four
    /// outputs.
    ///
    /// # Errors
    /// `Input` if the cursor has no room for so many tokens, runs and outputs.
    pub fn encode(&self, words: &mut Vec<u32>) -> Result<()> {
        let runs_at = 2 + self.tokens.len();
        let outputs_at = runs_at + 2 * self.runs.len();
        let n = 4 * (outputs_at + self.outputs.len().div_ceil(4));
        if n > CURSOR_WORDS {
            let (t, r, o) = (self.tokens.len(), self.runs.len(), self.outputs.len());
            return Err(Error::input(format!("a step of {t} tokens, {r} slots and {o} outputs is too large"))
                .hint("use a smaller `chunk` or fewer texts at once"));
        }
        words.clear();
        words.extend([self.tokens.len() as u32, self.runs.len() as u32, self.outputs.len() as u32, runs_at as u32]);
        words.extend([outputs_at as u32, 0, 0, 0]);
        for (i, run) in self.runs.iter().enumerate() {
            for t in 0..run.len {
                let token = self.tokens[(run.first_row + t) as usize];
                words.extend([token, i as u32, u32::from(t == 0), u32::from(t + 1 == run.len)]);
            }
        }
        for r in &self.runs {
            words.extend([r.first_row, r.len, r.page_in, r.page_out, r.shift_in, r.shift_out, r.position, r.blocks_at]);
        }
        words.extend(&self.outputs);
        words.resize(n, 0);
        Ok(())
    }

    /// Turns this step into the next step. Every run must have one token and one output, because `drawn[i]` is the only next token of run i. Each run
    /// reads the pages that it wrote in this step. On a device, `shaders/sample/draw.wgsl` does the same.
    pub fn advance(&mut self, drawn: &[u32]) {
        for (run, &token) in self.runs.iter_mut().zip(drawn) {
            self.tokens[run.first_row as usize] = token;
            run.page_in = run.page_out;
            (run.shift_in, run.shift_out) = (run.shift_out, run.shift_out ^ 1);
            run.position += 1;
        }
    }

    /// Returns an iterator over the tokens of the step. An item has the index of the token's row, the token's run, and the index of the token in this
    /// run.
    pub fn rows(&self) -> impl Iterator<Item = (usize, &Run, usize)> {
        self.runs.iter().flat_map(|r| (0..r.len as usize).map(move |i| (r.first_row as usize + i, r, i)))
    }
}
