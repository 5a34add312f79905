//! One step: the tokens of several slots, one after another, and where their memory lies.
//!
//! `encode` is the only writer of what `shaders/lib/cursor.wgsl` reads.

use crate::error::{Error, Result};

/// Floats or integers of the cursor's uniform buffer: 64 KiB, the smallest limit of WebGPU.
pub const CURSOR_WORDS: usize = 16384;

/// Consecutive tokens of one slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Run {
    pub first_row: u32,
    pub len: u32,
    /// Pages of the recurrent state, read and written; equal unless the page is shared with another slot.
    pub page_in: u32,
    pub page_out: u32,
    /// Half pages, read and written; never equal.
    pub shift_in: u32,
    pub shift_out: u32,
    /// Of the first token: how many the slot has read before. Models with caches ask for it.
    pub position: u32,
    /// Where the slot's blocks begin in [`Step::blocks`], of the cache's first one on.
    pub blocks_at: u32,
}

impl Run {
    /// Tokens that the slot has read after this step.
    pub fn end(&self) -> usize {
        (self.position + self.len) as usize
    }
}

/// What to compute: `tokens` split into `runs`, and the rows whose logits are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    pub tokens: Vec<u32>,
    pub runs: Vec<Run>,
    pub outputs: Vec<u32>,
    /// Blocks of the caches, slot by slot: those of the new tokens too, and of the tokens to come where the step will be advanced.
    pub blocks: Vec<u32>,
}

impl Step {
    /// Rows that a step can have at the most beside `runs` runs with one output each.
    pub fn max_tokens(runs: usize) -> usize {
        (CURSOR_WORDS / 4 - 4).saturating_sub(2 * runs).saturating_mul(4) / 5
    }

    /// Empties it, for the next one.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.runs.clear();
        self.outputs.clear();
        self.blocks.clear();
    }

    /// Tokens that the longest slot has read after this step.
    pub fn context(&self) -> usize {
        self.runs.iter().map(Run::end).max().unwrap_or(0)
    }

    /// Fills `words` with the cursor: header, a row a token, two a run, four outputs a row.
    pub fn encode(&self, words: &mut Vec<u32>) -> Result<()> {
        let runs_at = 2 + self.tokens.len();
        let outputs_at = runs_at + 2 * self.runs.len();
        let n = 4 * (outputs_at + self.outputs.len().div_ceil(4));
        if n > CURSOR_WORDS {
            let (t, r, o) = (self.tokens.len(), self.runs.len(), self.outputs.len());
            return Err(Error::input(format!("a step of {t} tokens, {r} slots and {o} outputs does not fit one submission"))
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

    /// The step after this one, where every run read one token and has one output: each reads what was drawn for it, from where
    /// it wrote last, and writes in place. On a device `shaders/sample/draw.wgsl` does it.
    pub fn advance(&mut self, drawn: &[u32]) {
        for (run, &token) in self.runs.iter_mut().zip(drawn) {
            self.tokens[run.first_row as usize] = token;
            run.page_in = run.page_out;
            (run.shift_in, run.shift_out) = (run.shift_out, run.shift_out ^ 1);
            run.position += 1;
        }
    }

    /// The run of every row, with its place in that run.
    pub fn rows(&self) -> impl Iterator<Item = (usize, &Run, usize)> {
        self.runs.iter().flat_map(|r| (0..r.len as usize).map(move |i| (r.first_row as usize + i, r, i)))
    }
}
