//! One step: the tokens of several slots, one after another, and the memory of each slot.
//!
//! `Step::encode` is the only writer of the data that `shaders/lib/cursor.wgsl` reads.

use crate::error::{Error, Result};

/// 32-bit numbers in the cursor's uniform buffer: 64 KiB, the size that every WebGPU device supports.
pub const CURSOR_WORDS: usize = 16384;

/// Consecutive tokens of one slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Run {
    /// First row of the run in the step's activations.
    pub first_row: u32,
    /// Tokens.
    pub len: u32,
    /// Pages of the recurrent state: read, written. They differ if another slot shares the page that is read.
    pub page_in: u32,
    pub page_out: u32,
    /// Half pages: read, written. They always differ.
    pub shift_in: u32,
    pub shift_out: u32,
    /// Position of the first token: the tokens that the slot has read before. Only models with caches use it.
    pub position: u32,
    /// Index in [`Step::blocks`] of the slot's first block.
    pub blocks_at: u32,
}

impl Run {
    /// Returns the tokens that the slot has read after this step.
    pub fn end(&self) -> usize {
        (self.position + self.len) as usize
    }
}

/// The work of one step: `tokens`, divided into `runs`, and the rows whose logits are requested.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Token ids, run after run.
    pub tokens: Vec<u32>,
    pub runs: Vec<Run>,
    /// Rows whose logits are requested.
    pub outputs: Vec<u32>,
    /// Blocks of the caches, slot by slot, new tokens included. A step that will be advanced also lists the blocks of later tokens.
    pub blocks: Vec<u32>,
}

impl Step {
    /// Returns the largest number of tokens in a step of `runs` runs with one output each.
    pub fn max_tokens(runs: usize) -> usize {
        (CURSOR_WORDS / 4 - 4).saturating_sub(2 * runs).saturating_mul(4) / 5
    }

    /// Empties the step.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.runs.clear();
        self.outputs.clear();
        self.blocks.clear();
    }

    /// Returns the tokens that the longest slot has read after this step.
    pub fn context(&self) -> usize {
        self.runs.iter().map(Run::end).max().unwrap_or(0)
    }

    /// Fills `words` with the cursor, in rows of four: two rows of header, one row per token, two rows per run, one row per four outputs.
    ///
    /// # Errors
    /// `Input` if the step has too many tokens, runs and outputs for the cursor.
    pub fn encode(&self, words: &mut Vec<u32>) -> Result<()> {
        let runs_at = 2 + self.tokens.len();
        let outputs_at = runs_at + 2 * self.runs.len();
        let n = 4 * (outputs_at + self.outputs.len().div_ceil(4));
        if n > CURSOR_WORDS {
            let (t, r, o) = (self.tokens.len(), self.runs.len(), self.outputs.len());
            return Err(Error::input(format!("a step of {t} tokens, {r} slots and {o} outputs is too large for one submission"))
                .hint("use a smaller `chunk` or fewer slots"));
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

    /// Advances a step in which every run has one token and one output. Each run reads its token of `drawn` and the pages that it wrote last.
    /// On a device `shaders/sample/draw.wgsl` does the same.
    pub fn advance(&mut self, drawn: &[u32]) {
        for (run, &token) in self.runs.iter_mut().zip(drawn) {
            self.tokens[run.first_row as usize] = token;
            run.page_in = run.page_out;
            (run.shift_in, run.shift_out) = (run.shift_out, run.shift_out ^ 1);
            run.position += 1;
        }
    }

    /// Returns (row, run, index of the row in its run) for every row.
    pub fn rows(&self) -> impl Iterator<Item = (usize, &Run, usize)> {
        self.runs.iter().flat_map(|r| (0..r.len as usize).map(move |i| (r.first_row as usize + i, r, i)))
    }
}
