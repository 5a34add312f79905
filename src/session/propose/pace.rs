//! Chooses how many guesses a step checks, from the measured times of steps and from the share of right guesses.

use std::time::Duration;

/// The largest number of tokens in a step whose time is recorded.
const MOST_ROWS: usize = 128;
/// The weight of a new time in the running mean.
const NEW: f64 = 0.2;
/// A new time counts as at most this multiple of the mean. So one interruption by another program changes little.
const OUTLIER: f64 = 3.0;
/// After this many steps without a new time, a recorded time is dropped. So a number of guesses that was once slow is tried again.
const STALE: u64 = 2000;
/// The assumed cost of each further token, as a share of a step's time, while only one number of tokens was measured. Most devices need more time.
/// The low value makes the first guesses likely, so that their time is measured.
const HOPED: f64 = 0.03;
/// An estimate between two measured times is reduced to this share, so that numbers of tokens without a measurement are tried.
const TRIED: f64 = 0.95;
/// A guess that is less likely than this to be right is never checked, because errors of measurement are as large as its gain.
const LEAST: f64 = 0.05;
/// Guesses are checked only if they should make a text at least this much faster. The margin covers errors of measurement.
const GAIN: f64 = 1.02;

/// An offer of a proposer: guesses for one text.
#[derive(Debug, Clone, Copy)]
pub struct Offer {
    /// The probability that a guess is right if all guesses before it are right.
    pub right: f64,
    /// The time of a guess in seconds.
    pub seconds: f64,
    /// The largest number of guesses.
    pub most: usize,
    /// The number of tokens that the step reads for this text without guesses. After a wrong guess, the next step reads them again if
    /// [`Base::replays`] is true.
    pub n_unread: usize,
}

/// The step to which guesses are added.
#[derive(Debug, Clone, Copy)]
pub struct Base {
    /// The number of texts that decode in the step.
    pub n_texts: usize,
    /// The number of tokens that the step reads without guesses.
    pub n_rows: usize,
    /// The largest number of guesses in the step.
    pub room: usize,
    /// True if a wrong guess makes the next step read the accepted tokens again. False if the model can forget its last tokens.
    pub replays: bool,
}

/// Measured times of steps.
#[derive(Debug, Default)]
pub struct Pace {
    /// At index `i`, the mean time in seconds of a step with `i` tokens, and the number of the step that was last measured.
    times: Vec<Option<(f64, u64)>>,
    n_steps: u64,
}

impl Pace {
    /// Records the time of a step that read `n` tokens of decoding texts and nothing else.
    pub fn learn(&mut self, n: usize, took: Duration) {
        if n > MOST_ROWS {
            return;
        }
        self.n_steps += 1;
        let (took, now) = (took.as_secs_f64(), self.n_steps);
        self.times.iter_mut().for_each(|time| *time = time.filter(|(_, at)| now - at < STALE));
        if self.times.len() <= n {
            self.times.resize(n + 1, None);
        }
        let mean = match self.times[n] {
            Some((mean, _)) => mean + NEW * (took.min(OUTLIER * mean) - mean),
            // The first step of a size may compile kernels or allocate memory, so its time is limited by the estimate.
            None => self.time(n).map_or(took, |hoped| took.min(OUTLIER * hoped)),
        };
        self.times[n] = Some((mean, now));
    }

    /// Returns the mean or estimated time of a step with `n` tokens in seconds, but at most the time of any larger step. The first steps of a text
    /// are often slow, and are not measured again while every step has guesses. `None` before the first measurement.
    fn time(&self, n: usize) -> Option<f64> {
        let larger = self.times.iter().skip(n + 1).flatten().map(|(time, _)| *time);
        larger.fold(self.estimate(n), |least, time| least.map(|least| least.min(time)))
    }

    /// Returns the mean time of a step with `n` tokens in seconds. If this number of tokens was not measured, estimates the time from the nearest
    /// measured numbers.
    fn estimate(&self, n: usize) -> Option<f64> {
        let known = |i: usize| self.times.get(i).copied().flatten().map(|(time, _)| (i as f64, time));
        let mut below = (0..=n).rev().filter_map(known);
        let above = (n + 1..self.times.len()).find_map(known);
        let line = |(x0, t0): (f64, f64), (x1, t1): (f64, f64)| t0 + (t1 - t0).max(0.0) * (n as f64 - x0) / (x1 - x0);
        match (below.next(), above) {
            (Some((x, time)), _) if x == n as f64 => Some(time),
            (Some(low), Some(high)) => Some((TRIED * line(low, high)).max(low.1)),
            (Some((x, time)), None) => Some(match below.next_back() {
                Some(first) => line(first, (x, time)),
                None => time * (1.0 + HOPED * (n as f64 - x)),
            }),
            (None, above) => above.map(|(_, time)| time),
        }
    }

    /// Returns the net gain of an offer's first guess, in tokens: the probability that it is right, minus its time in steps of `n_rows` tokens.
    pub fn gain(&self, offer: &Offer, n_rows: usize) -> f64 {
        offer.right - self.time(n_rows).map_or(0.0, |alone| offer.seconds / alone)
    }

    /// Chooses the number of guesses for each offer: the numbers with which the most tokens per second are expected.
    pub fn choose(&self, offers: &[Offer], base: Base) -> Vec<usize> {
        let Base { n_texts, n_rows, room, replays } = base;
        let mut counts = vec![0; offers.len()];
        let mut best = counts.clone();
        // Without a measured time of a step without guesses, the step has no guesses and is measured. This also happens after the time became stale.
        let Some(alone) = self.times.get(n_rows).copied().flatten().and_then(|_| self.time(n_rows)) else { return best };
        let n_texts = n_texts as f64;
        let mut most = GAIN * n_texts / alone;
        // The probability that the next guess of each offer is right together with all guesses before it.
        let mut next: Vec<f64> = offers.iter().map(|offer| offer.right).collect();
        let mut gain = 0.0;
        for n_guesses in 1..=room {
            let left = (0..offers.len()).filter(|&i| counts[i] < offers[i].most);
            let Some(i) = left.max_by(|&a, &b| next[a].total_cmp(&next[b])).filter(|&i| next[i] >= LEAST) else { break };
            counts[i] += 1;
            gain += next[i];
            next[i] *= offers[i].right;
            let together = self.time(n_rows + n_guesses).unwrap_or(alone);
            let per_row = (together - alone).max(0.0) / n_guesses as f64;
            let again = |(offer, &n): (&Offer, &usize)| {
                let all_right = offer.right.powi(n as i32);
                if n == 0 || !replays { 0.0 } else { (1.0 - all_right) * (offer.n_unread as f64 + right_of(offer.right, n)) * per_row }
            };
            let replayed: f64 = offers.iter().zip(&counts).map(again).sum();
            let guessing: f64 = offers.iter().zip(&counts).map(|(offer, &n)| offer.seconds * n as f64).sum();
            let rate = (n_texts + gain) / (together + replayed + guessing);
            if rate > most {
                most = rate;
                best.clone_from(&counts);
            }
        }
        best
    }
}

/// Returns the mean number of right guesses among `n` successive guesses. `right` is the probability that a guess is right if all guesses before it
/// are right.
fn right_of(right: f64, n: usize) -> f64 {
    (1..=n as i32).map(|i| right.powi(i)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(times: &[(usize, u64)]) -> Pace {
        let mut pace = Pace::default();
        times.iter().for_each(|&(n, ms)| (0..40).for_each(|_| pace.learn(n, Duration::from_millis(ms))));
        pace
    }

    fn offer(right: f64) -> Offer {
        Offer { right, seconds: 0.0, most: 8, n_unread: 1 }
    }

    fn base(n: usize) -> Base {
        Base { n_texts: n, n_rows: n, room: 64, replays: true }
    }

    #[test]
    fn the_number_of_guesses_follows_the_times_and_the_share_of_right_guesses() {
        // A step of 4 tokens is hardly slower than one of 1; a fifth token costs a lot.
        let stairs = measured(&[(1, 10), (2, 11), (3, 12), (4, 13), (5, 30), (6, 31), (7, 32), (8, 33), (9, 34)]);
        let chosen = |pace: &Pace, right: f64| pace.choose(&[offer(right)], base(1))[0];
        assert_eq!([0.0, 0.05, 0.8].map(|right| chosen(&stairs, right)), [0, 0, 3]);
        // Every token costs as much as a step of its own, so guesses gain nothing.
        let linear = measured(&[1, 2, 3, 4, 5, 6, 7, 8, 9].map(|n| (n, 10 * n as u64)));
        assert_eq!([0.5, 0.9, 1.0].map(|right| chosen(&linear, right)), [0, 0, 0]);
        let flat = measured(&[(1, 100), (9, 104)]);
        assert_eq!(chosen(&flat, 1.0), 8);
        assert_eq!(flat.choose(&[offer(1.0)], Base { room: 5, ..base(1) }), [5]);
    }

    #[test]
    fn wrong_guesses_end_even_if_steps_alone_seem_slow() {
        // The first steps of a text are often slow, and are not measured again while every step has guesses.
        let mut pace = measured(&[(1, 30)]);
        (0..3).for_each(|_| pace.learn(2, Duration::from_millis(11)));
        assert_eq!(pace.choose(&[offer(0.04)], base(1)), [0]);
        assert!(pace.time(1).unwrap() <= pace.time(2).unwrap());
    }

    #[test]
    fn a_full_step_takes_no_guesses() {
        let full = measured(&[(16, 100), (17, 106), (24, 150), (32, 200)]);
        assert_eq!(full.choose(&[offer(0.6); 16], base(16)), [0; 16]);
    }

    #[test]
    fn the_likeliest_guesses_come_first() {
        let stairs = measured(&[(2, 10), (3, 11), (4, 12), (5, 50), (9, 90)]);
        assert_eq!(stairs.choose(&[offer(0.3), offer(0.95)], Base { replays: false, ..base(2) }), [0, 2]);
    }

    #[test]
    fn slow_guesses_must_pay() {
        let flat = measured(&[(1, 10), (9, 11)]);
        let slow = |seconds| flat.choose(&[Offer { seconds, ..offer(0.9) }], base(1))[0];
        assert!(slow(0.0005) > 2);
        assert_eq!(slow(0.02), 0);
    }

    #[test]
    fn nothing_is_guessed_before_a_step_was_measured_and_old_times_are_dropped() {
        let mut pace = Pace::default();
        assert_eq!(pace.choose(&[offer(1.0)], base(1)), [0]);
        pace.learn(1, Duration::from_millis(10));
        assert_eq!(pace.choose(&[offer(1.0)], base(1)), [8]);
        pace.learn(9, Duration::from_secs(3));
        assert!(pace.time(9).unwrap() < 0.05, "the first step of a size may compile kernels");
        (0..40).for_each(|_| pace.learn(9, Duration::from_millis(200)));
        assert_eq!(pace.choose(&[offer(1.0)], base(1)), [0]);
        (0..STALE).for_each(|_| pace.learn(1, Duration::from_millis(10)));
        assert_eq!(pace.choose(&[offer(1.0)], base(1)), [8]);
        // After many steps that all had guesses, a step without guesses is measured again.
        (0..STALE).for_each(|_| pace.learn(9, Duration::from_millis(15)));
        assert_eq!(pace.choose(&[offer(1.0)], base(1)), [0]);
    }
}
