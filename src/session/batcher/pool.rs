//! Pools the hidden states of a job's prompt to one vector.

use crate::session::embed::Pooling;

/// Collects the hidden states of a prompt. `sum` is the sum of the `n` collected hidden states.
pub struct Pool {
    pub pooling: Pooling,
    sum: Vec<f64>,
    n: u32,
}

impl Pool {
    pub fn new(pooling: Pooling) -> Pool {
        Pool { pooling, sum: Vec::new(), n: 0 }
    }

    /// Returns whether the vector needs the hidden states after all tokens of the prompt.
    pub fn needs_all(&self) -> bool {
        self.pooling == Pooling::Mean
    }

    /// Adds `row`, the hidden state after a token, to the sum. Does nothing if the pooling is [`Pooling::Last`] and `is_last` is false. `is_last` is
    /// true for the last token of the prompt.
    pub fn add(&mut self, row: &[f32], is_last: bool) {
        if self.needs_all() || is_last {
            self.sum.resize(row.len(), 0.0);
            self.sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
            self.n += 1;
        }
    }

    /// Returns the mean of the added hidden states.
    pub fn vector(self) -> Vec<f32> {
        self.sum.into_iter().map(|x| (x / f64::from(self.n)) as f32).collect()
    }
}
