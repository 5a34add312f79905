//! Bounds the prompt tokens of a step while other sequences decode.

use std::time::Duration;

/// The most prompt tokens in the first step that mixes prefill and decode.
const FIRST: usize = 8;
/// Weight of the last step in the running means.
const NEW: f64 = 0.3;
/// After this many steps with prompt tokens, one step reads no prompt tokens, to measure the time of decoding alone again.
const MEASURE: usize = 32;

/// Limits the prompt tokens per step, from measured times of steps. A step with prompt tokens should take at most `slowdown` times as long as a
/// step without prompt tokens.
#[derive(Debug)]
pub(super) struct PrefillBound {
    slowdown: f64,
    /// Mean time of a step without prompt tokens, in seconds. `None` before the first such step.
    decode: Option<f64>,
    /// Mean additional time per prompt token, in seconds. `None` before the first measurement.
    per_token: Option<f64>,
    /// The last result of [`tokens`](Self::tokens) above 0.
    last: usize,
    /// The number of steps with prompt tokens since the last step without prompt tokens.
    n_since: usize,
}

impl PrefillBound {
    /// Creates a bound; a `slowdown` below 1 counts as 1.
    pub fn new(slowdown: f64) -> PrefillBound {
        PrefillBound { slowdown: slowdown.max(1.0), decode: None, per_token: None, last: FIRST, n_since: 0 }
    }

    /// Returns the number of prompt tokens that the next step may read. Returns 0 if the next step measures decoding alone. Otherwise the
    /// result is at least 1, so that prompts progress, and at most twice the last result above 0.
    pub fn tokens(&mut self) -> usize {
        let Some(decode) = self.decode.filter(|_| self.n_since < MEASURE) else { return 0 };
        let Some(per_token) = self.per_token else { return self.last };
        let fit = (self.slowdown - 1.0) * decode / per_token.max(1e-9);
        self.last = (fit as usize).clamp(1, self.last.saturating_mul(2));
        self.last
    }

    /// Records the time of a step that decoded tokens and also read `n_prompt` prompt tokens.
    pub fn learn(&mut self, n_prompt: usize, took: Duration) {
        let took = took.as_secs_f64();
        let mean = |old: Option<f64>, new: f64| Some(old.map_or(new, |old| old + NEW * (new - old)));
        self.n_since = if n_prompt == 0 { 0 } else { self.n_since + 1 };
        match (n_prompt, self.decode) {
            (0, decode) => self.decode = mean(decode, took),
            (n, Some(decode)) => self.per_token = mean(self.per_token, (took - decode).max(0.0) / n as f64),
            (_, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the prompt tokens per step after 200 steps, if a step takes `decode` ms and each prompt token `per_token` ms more.
    fn settled(slowdown: f64, decode: f64, per_token: f64) -> usize {
        let mut bound = PrefillBound::new(slowdown);
        assert_eq!(bound.tokens(), 0, "the first step measures decoding alone");
        let time = |n: usize| Duration::from_secs_f64((decode + per_token * n as f64) / 1e3);
        bound.learn(0, time(0));
        let mut n_without = 0;
        for _ in 0..200 {
            let n = bound.tokens();
            n_without += usize::from(n == 0);
            bound.learn(n, time(n));
        }
        assert!((5..10).contains(&n_without), "{n_without}");
        bound.last
    }

    #[test]
    fn a_step_with_a_prompt_takes_no_longer_than_allowed() {
        assert_eq!(settled(2.0, 10.0, 0.125), 80);
        assert_eq!(settled(1.5, 10.0, 0.125), 40);
        assert_eq!(settled(2.0, 10.0, 100.0), 1, "a prompt always progresses");
        assert_eq!(settled(1.0, 10.0, 1.0), 1);
        assert!(settled(2.0, 10.0, 0.0) > 1_000_000, "tokens that cost nothing are not bounded");
    }
}
