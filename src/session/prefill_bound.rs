//! How much of a prompt a step may read while other sequences decode.

use std::time::Duration;

/// Tokens of a prompt in the first step that reads one beside sequences that decode.
const FIRST: usize = 8;
/// The weight of the last step in the means.
const NEW: f64 = 0.3;
/// While prompts wait, one step in so many reads none of them, to learn what such a step takes now.
const MEASURE: usize = 32;

/// Learns what steps take, and bounds the tokens of prompts so that a step with a prompt takes at most `slowdown` times as long as one
/// without.
#[derive(Debug)]
pub(super) struct PrefillBound {
    slowdown: f64,
    /// Of a step without a prompt, in seconds.
    decode: Option<f64>,
    /// Of a token of a prompt, beyond that.
    per_token: Option<f64>,
    last: usize,
    /// Steps with a prompt since the last one without.
    n_since: usize,
}

impl PrefillBound {
    pub fn new(slowdown: f64) -> PrefillBound {
        PrefillBound { slowdown: slowdown.max(1.0), decode: None, per_token: None, last: FIRST, n_since: 0 }
    }

    /// Tokens of prompts that the next step may read: at most twice as many as the last one. Zero where the time of a step without a prompt is
    /// to be measured, which is seldom; else at least one, so that a prompt gets on.
    pub fn tokens(&mut self) -> usize {
        let Some(decode) = self.decode.filter(|_| self.n_since < MEASURE) else { return 0 };
        let Some(per_token) = self.per_token else { return self.last };
        let fit = (self.slowdown - 1.0) * decode / per_token.max(1e-9);
        self.last = (fit as usize).clamp(1, self.last.saturating_mul(2));
        self.last
    }

    /// Takes the time of a step into account that read so many tokens of prompts beside those of sequences that decode.
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

    /// Tokens per step after some steps on a device where a step takes `decode` and each token of a prompt `per_token` milliseconds.
    fn settled(slowdown: f64, decode: f64, per_token: f64) -> usize {
        let mut bound = PrefillBound::new(slowdown);
        assert_eq!(bound.tokens(), 0, "first it is measured what a step takes without a prompt");
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
        assert_eq!(settled(2.0, 10.0, 100.0), 1, "a prompt always gets on");
        assert_eq!(settled(1.0, 10.0, 1.0), 1);
        assert!(settled(2.0, 10.0, 0.0) > 1_000_000, "tokens that cost nothing are not bounded");
    }
}
