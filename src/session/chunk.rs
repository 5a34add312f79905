//! Chooses the number of tokens per step: as many as requested, or fewer if the driver may abort long dispatches (runs of a kernel).

use std::time::Duration;

/// Time limit of a step. Drivers limit single dispatches, and a step has tens or hundreds of them, so this limit leaves a wide margin.
const LONGEST_STEP: Duration = Duration::from_millis(2000);
/// Limit on the tokens of the first step, on a device whose driver may abort long dispatches.
const FIRST: usize = 32;

/// The current number of prompt tokens per step (the chunk size), and the requested number.
pub struct Chunk {
    asked: usize,
    now: usize,
    watched: bool,
}

impl Chunk {
    /// Creates a chunk size for `asked` tokens per step, but at most `max`. `watched` is true if the driver may abort long dispatches. If `watched`
    /// is true, the first chunk size is at most 32 tokens.
    pub fn new(asked: usize, watched: bool, max: usize) -> Chunk {
        let asked = asked.clamp(1, max.max(1));
        Chunk { asked, now: if watched { asked.min(FIRST) } else { asked }, watched }
    }

    /// Returns the number of tokens of the next step: at least 1, at most `limit`.
    pub fn tokens(&self, limit: usize) -> usize {
        self.now.min(limit).max(1)
    }

    /// Adapts the chunk size after a step of `tokens` tokens that took the time `took`. Halves the size if the step took too long. Doubles the
    /// size, at most to the requested size, if the step took less than a third of the limit. Does nothing on a driver that never aborts long
    /// dispatches, or if the step was smaller than the current chunk size.
    pub fn learn(&mut self, tokens: usize, took: Duration) {
        if !self.watched || tokens < self.now {
            return;
        }
        if took > LONGEST_STEP {
            self.now = (self.now / 2).max(1);
        } else if took * 3 < LONGEST_STEP {
            self.now = (self.now * 2).min(self.asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watched_chunk_grows_and_shrinks() {
        let mut chunk = Chunk::new(256, true, 1000);
        for _ in 0..10 {
            let n = chunk.tokens(usize::MAX);
            chunk.learn(n, Duration::from_millis(n as u64));
        }
        assert_eq!(chunk.tokens(usize::MAX), 256);
        for _ in 0..20 {
            let n = chunk.tokens(usize::MAX);
            chunk.learn(n, Duration::from_millis(100 * n as u64));
        }
        assert!(chunk.tokens(usize::MAX) <= 16);
        assert_eq!(Chunk::new(256, false, 1000).tokens(usize::MAX), 256);
        assert_eq!(Chunk::new(5000, false, 1000).tokens(usize::MAX), 1000);
        assert_eq!(Chunk::new(256, false, 1000).tokens(3), 3);
    }
}
