//! Bounds the prompt tokens of a step while other sequences decode.

use std::time::Duration;

/// A step that may read prompt tokens may read at least this many, unless it would take too long (see [`PEAK`]). On some devices the first prompt
/// token makes a step much longer, because other kernels run. Larger steps pay this cost less often.
const LEAST: usize = 64;
/// Limit on the prompt tokens of a step as long as the time per prompt token is unknown.
const FIRST: usize = 16;
/// To read up to [`LEAST`] prompt tokens, a step may exceed the mean time that `slowdown` allows, by at most about this factor.
const PEAK: f64 = 2.0;
/// Weight of the last step in the running means.
const NEW: f64 = 0.3;
/// After this many steps with prompt tokens, one step reads none, to measure decoding alone again.
const MEASURE: usize = 32;
/// Limit on the number of successive steps in which prompts wait because earlier steps took too long. This limit ensures that a prompt always
/// progresses.
const MOST_WAITS: usize = 16;

/// Limits the prompt tokens per step, from measured times of steps. While prompts are prefilled, the mean time of a step is at most about `slowdown`
/// times the time of a step without prompt tokens. After a step that took longer, steps without prompt tokens follow until the mean is right again.
#[derive(Debug)]
pub(super) struct PrefillBound {
    slowdown: f64,
    /// Mean time of a step without prompt tokens, in seconds. `None` before the first such step.
    decode: Option<f64>,
    /// The number of decoding sequences in the last step without prompt tokens.
    n_decoding: usize,
    /// Mean additional time per prompt token, in seconds. `None` before the first measurement.
    per_token: Option<f64>,
    /// The last result of [`tokens`](Self::tokens) above 0, at first [`FIRST`].
    last: usize,
    /// The number of steps with prompt tokens since the last step without prompt tokens.
    n_since: usize,
    /// The time that steps took beyond `slowdown` times the time of decoding alone, summed over steps, in seconds. A step that takes less reduces the
    /// sum. While the sum is above 0, prompts wait, for at most [`MOST_WAITS`] steps.
    excess: f64,
    /// The number of steps in which prompts have waited because of `excess`, since the last step with prompt tokens.
    n_waits: usize,
}

impl PrefillBound {
    /// Creates a bound; a `slowdown` below 1 counts as 1.
    pub fn new(slowdown: f64) -> PrefillBound {
        let slowdown = slowdown.max(1.0);
        PrefillBound { slowdown, decode: None, n_decoding: 0, per_token: None, last: FIRST, n_since: 0, excess: 0.0, n_waits: 0 }
    }

    /// Returns the number of prompt tokens that the next step may read, besides one token for each of `n_decoding` sequences. Returns 0 if the next
    /// step measures decoding alone, or if earlier steps took too long. Otherwise the result is at least 1, and at most the larger of [`LEAST`]
    /// and twice the last result above 0.
    pub fn tokens(&mut self, n_decoding: usize) -> usize {
        let is_known = self.n_since < MEASURE && self.is_like(n_decoding);
        let Some(decode) = self.decode.filter(|_| is_known) else { return 0 };
        if self.excess > 0.0 && self.n_waits < MOST_WAITS {
            self.n_waits += 1;
            return 0;
        }
        (self.excess, self.n_waits) = (self.excess.min(0.0), 0);
        let Some(per_token) = self.per_token else { return self.last };
        let fit = |slowdown: f64| ((slowdown - 1.0) * decode / per_token.max(1e-9)) as usize;
        let least = fit(PEAK * self.slowdown).clamp(1, LEAST);
        self.last = fit(self.slowdown).clamp(least, self.last.saturating_mul(2).max(least));
        self.last
    }

    /// Returns whether decoding `n_decoding` sequences should take about as long as the last step without prompt tokens. The two numbers of
    /// decoding sequences may differ by a factor of 1.5.
    fn is_like(&self, n_decoding: usize) -> bool {
        n_decoding * 2 <= self.n_decoding * 3 && n_decoding * 3 >= self.n_decoding * 2
    }

    /// Records the time of a step that decoded one token for each of `n_decoding` sequences, and also read `n_prompt` prompt tokens.
    pub fn learn(&mut self, n_prompt: usize, n_decoding: usize, took: Duration) {
        let took = took.as_secs_f64();
        let mean = |old: Option<f64>, new: f64| Some(old.map_or(new, |old| old + NEW * (new - old)));
        match (n_prompt, self.decode) {
            (0, decode) => {
                self.decode = mean(decode.filter(|_| self.is_like(n_decoding)), took);
                (self.n_decoding, self.n_since) = (n_decoding, 0);
                self.excess -= (self.slowdown - 1.0) * took;
            }
            (n, Some(decode)) => {
                self.per_token = mean(self.per_token, (took - decode).max(0.0) / n as f64);
                self.n_since += 1;
                self.excess += took - self.slowdown * decode;
            }
            (_, None) => {}
        }
        // The saved time of at most one step is kept. It absorbs a step that takes a little too long by chance, so that no prompt has to wait.
        self.excess = self.excess.max(-(self.slowdown - 1.0) * self.decode.unwrap_or(0.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of steps in milliseconds.
    struct Device {
        /// The time of a step without prompt tokens, for a number of decoding sequences.
        decode: fn(usize) -> f64,
        /// The additional time of a step with prompt tokens.
        mixed: f64,
        /// The additional time per prompt token.
        per_token: f64,
    }

    /// The results of some steps.
    #[derive(Debug, Default)]
    struct Steps {
        n_prompt: usize,
        /// The time of all steps, as a multiple of the time of as many steps without prompt tokens.
        slowdown: f64,
        /// The time of the longest step, as a multiple of the time of a step without prompt tokens.
        peak: f64,
        /// The largest number of successive steps without prompt tokens.
        longest_wait: usize,
    }

    fn steps(bound: &mut PrefillBound, n: usize, n_decoding: usize, device: &Device) -> Steps {
        let (mut found, mut time, mut waits) = (Steps::default(), 0.0, 0);
        let decode = (device.decode)(n_decoding);
        for i in 0..n {
            let n_prompt = bound.tokens(n_decoding);
            let took = decode + if n_prompt > 0 { device.mixed + device.per_token * n_prompt as f64 } else { 0.0 };
            // Measured times vary.
            let took = took * [0.96, 1.02, 1.04, 0.98][i % 4];
            bound.learn(n_prompt, n_decoding, Duration::from_secs_f64(took / 1e3));
            waits = if n_prompt == 0 { waits + 1 } else { 0 };
            time += took;
            found.n_prompt += n_prompt;
            found.peak = found.peak.max(took / decode);
            found.longest_wait = found.longest_wait.max(waits);
        }
        Steps { slowdown: time / (decode * n as f64), ..found }
    }

    /// Returns 200 steps after the bound has learned the times of a device, and the prompt tokens of a step.
    fn settled(slowdown: f64, mixed: f64, per_token: f64) -> (Steps, usize) {
        let mut bound = PrefillBound::new(slowdown);
        assert_eq!(bound.tokens(4), 0, "the first step measures decoding alone");
        let device = Device { decode: |_| 10.0, mixed, per_token };
        steps(&mut bound, 200, 4, &device);
        (steps(&mut bound, 200, 4, &device), bound.last)
    }

    #[test]
    fn a_step_with_a_prompt_takes_no_longer_than_allowed() {
        for (slowdown, want) in [(2.0, 200), (1.5, 100)] {
            let (found, last) = settled(slowdown, 0.0, 0.05);
            assert!(last.abs_diff(want) < want / 8 && found.peak <= 1.1 * slowdown, "{last} {found:?}");
            assert!((0.95 * slowdown..1.01 * slowdown).contains(&found.slowdown), "{found:?}");
        }
        assert!(settled(2.0, 0.0, 0.0).1 > 1_000_000, "tokens that cost nothing are not bounded");
    }

    #[test]
    fn a_few_tokens_are_read_together_and_steps_of_decoding_follow() {
        // With one prompt token per step, 200 steps would read 200 tokens, because the first prompt token of a step takes as long as decoding.
        let (found, last) = settled(2.0, 9.5, 0.5);
        assert!((35..=45).contains(&last) && found.n_prompt > 2500 && found.slowdown <= 2.05 && found.peak <= 4.3, "{found:?}");
        // A step never takes much longer than allowed, and a prompt always progresses.
        let (found, _) = settled(2.0, 0.0, 5.0);
        assert!(found.slowdown <= 2.05 && found.peak <= 4.3 && found.longest_wait <= 3, "{found:?}");
        let (found, last) = settled(2.0, 0.0, 100.0);
        assert!(last == 1 && found.slowdown <= 2.05 && found.n_prompt >= 15, "{found:?}");
        let (found, _) = settled(1.0, 0.0, 1.0);
        assert!(found.longest_wait == MOST_WAITS && found.slowdown < 1.1 && found.n_prompt >= 100, "{found:?}");
    }

    #[test]
    fn the_time_of_additional_sequences_is_not_counted_as_time_of_prompt_tokens() {
        let device = Device { decode: |n| 4.0 + 1.5 * n as f64, mixed: 0.0, per_token: 1.5 };
        let mut bound = PrefillBound::new(2.0);
        steps(&mut bound, 50, 1, &device);
        // Suddenly, 16 sequences decode, in 28 ms. At twice this time, a step has 18 prompt tokens.
        let found = steps(&mut bound, 20, 16, &device);
        assert!(found.n_prompt >= 20 * 14 && found.slowdown <= 2.1, "{found:?}");
    }
}
