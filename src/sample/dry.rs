//! DRY: a token that would go on with a repetition is made less likely, the more so the longer the repetition.
//!
//! Where the text ends with the same tokens as it had before some token, drawing that one again prolongs the repetition. By p-e-w, in
//! text-generation-webui; as in llama.cpp the token that breaks repetitions is free itself.

use super::fixed::quantised;
use super::settings::Sampling;
use std::collections::BTreeMap;

/// No logit is further from another than this many nats.
const ENOUGH: f64 = 4000.0;

#[derive(Debug, Clone, Copy)]
pub(super) struct Dry {
    multiplier: f64,
    base: f64,
    allowed_length: usize,
    /// The last so many tokens of the text.
    range: usize,
}

impl Dry {
    pub fn of(s: &Sampling) -> Option<Dry> {
        let dry = Dry {
            multiplier: f64::from(s.dry_multiplier),
            base: f64::from(s.dry_base),
            allowed_length: s.dry_allowed_length.max(1),
            range: s.dry_range.unwrap_or(usize::MAX),
        };
        (dry.multiplier > 0.0 && dry.range > 0).then_some(dry)
    }

    /// How many tokens of the text it looks at.
    pub fn range(&self) -> usize {
        self.range
    }

    /// Ids and what is taken from their logits, in units of 2^-20; `breakers` ascend.
    pub fn penalties(&self, text: &[u32], breakers: &[u32]) -> Vec<(u32, i32)> {
        let is_breaker = |id: &u32| breakers.binary_search(id).is_ok();
        // the last token first
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

    /// multiplier * base^(length - allowed), by products: a power of some C library is not the same everywhere.
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

/// How many items each tail of a list has in common with the list's beginning (the Z function), in linear time.
fn shared_beginnings(list: &[u32]) -> Vec<usize> {
    let mut shared = vec![list.len(); list.len()];
    // the tail that reaches furthest, and where it ends to agree
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
