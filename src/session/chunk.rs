//! How many tokens a step reads: as many as asked for, fewer where a dispatch would run so long that a driver kills it.

use std::time::Duration;

/// A step's longest dispatch is a small part of it (a model has tens of them), so a step of this long is safe.
const LONGEST_STEP: Duration = Duration::from_millis(2000);
/// Where nothing is known yet, on a device that is watched.
const FIRST: usize = 32;

pub struct Chunk {
    asked: usize,
    now: usize,
    watched: bool,
}

impl Chunk {
    pub fn new(asked: usize, watched: bool, max: usize) -> Chunk {
        let asked = asked.clamp(1, max.max(1));
        Chunk { asked, now: if watched { asked.min(FIRST) } else { asked }, watched }
    }

    pub fn tokens(&self, limit: usize) -> usize {
        self.now.min(limit).max(1)
    }

    /// Takes the time of a step of `tokens` into account: halves at once, doubles when there is room for twice that.
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
