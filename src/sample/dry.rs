//! DRY ("don't repeat yourself"): penalises tokens that would extend a repetition. The penalty grows with the length of the repetition.
//!
//! Token t extends a repetition if the last tokens of the text also occur earlier in the text, right before an occurrence of t. The method was
//! proposed by p-e-w for text-generation-webui. As in llama.cpp, a token that ends repetitions (a breaker) has no penalty itself.

use super::fixed::quantised;
use super::settings::Sampling;
use std::collections::BTreeMap;

/// The largest penalty, in nats. A larger penalty has no further effect: logits are clamped to ±2000 nats, so two logits differ by at most 4000
/// nats.
const ENOUGH: f64 = 4000.0;

/// The settings of DRY.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dry {
    multiplier: f64,
    base: f64,
    allowed_length: usize,
    /// DRY looks for repetitions in this many tokens at the end of the text.
    range: usize,
}

impl Dry {
    /// Returns the settings of DRY, or `None` if DRY is off.
    pub fn of(s: &Sampling) -> Option<Dry> {
        let dry = Dry {
            multiplier: f64::from(s.dry_multiplier),
            base: f64::from(s.dry_base),
            allowed_length: s.dry_allowed_length.max(1),
            range: s.dry_range.unwrap_or(usize::MAX),
        };
        (dry.multiplier > 0.0 && dry.range > 0).then_some(dry)
    }

    /// Returns how many tokens at the end of the text DRY searches for repetitions.
    pub fn range(&self) -> usize {
        self.range
    }

    /// Returns the ids that would extend a repetition in `text`, each with its penalty in units of 2^-20. `breakers` lists the ids that end a
    /// repetition, in ascending order.
    pub fn penalties(&self, text: &[u32], breakers: &[u32]) -> Vec<(u32, i32)> {
        let is_breaker = |id: &u32| breakers.binary_search(id).is_ok();
        // reversed: the last token is first
        let ends: Vec<u32> = text[text.len() - self.range.min(text.len())..].iter().rev().copied().collect();
        let longest = ends.iter().position(is_breaker).unwrap_or(ends.len());
        let mut lengths = BTreeMap::new();
        for (i, length) in shared_beginnings(&ends).into_iter().enumerate().skip(1) {
            let (next, length) = (ends[i - 1], length.min(longest));
            if length >= self.allowed_length && !is_breaker(&next) {
                let most = lengths.entry(next).or_insert(0);
                *most = length.max(*most);
            }
        }
        lengths.into_iter().map(|(id, length)| (id, self.penalty(length))).collect()
    }

    /// Returns multiplier * base^(length - allowed_length) in units of 2^-20, at most [`ENOUGH`] nats. Multiplies step by step, because the results
    /// of `powf` differ between C libraries.
    fn penalty(&self, length: usize) -> i32 {
        let mut penalty = self.multiplier;
        for _ in self.allowed_length..length {
            if self.base <= 1.0 || penalty >= ENOUGH {
                break;
            }
            penalty *= self.base;
        }
        quantised(penalty.min(ENOUGH) as f32)
    }
}

/// Returns, for each suffix of the list, the length of the longest common prefix of the suffix and the list. This is the Z function, computed in
/// linear time.
fn shared_beginnings(list: &[u32]) -> Vec<usize> {
    let mut shared = vec![list.len(); list.len()];
    // the suffix whose common prefix with the list ends furthest right so far: where the suffix starts, and where the prefix ends
    let (mut start, mut end) = (0, 0);
    for i in 1..list.len() {
        let mut n = if i < end { shared[i - start].min(end - i) } else { 0 };
        while i + n < list.len() && list[n] == list[i + n] {
            n += 1;
        }
        shared[i] = n;
        if i + n > end {
            (start, end) = (i, i + n);
        }
    }
    shared
}
