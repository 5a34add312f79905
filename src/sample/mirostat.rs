//! Mirostat, version 2: tokens that would surprise more than mu are not drawn, and mu learns from what was drawn.
//!
//! Surprise is -log2(p) in bits. Basu et al., arXiv 2007.14966.

use super::chain::Shortlist;
use super::fixed::{FULL_MASS, Scale, log2, quantised};
use super::settings::Sampling;

/// Surprises are in units of 2^-20 bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mirostat {
    tau: i32,
    rate: Scale,
}

impl Mirostat {
    pub fn of(s: &Sampling) -> Option<Mirostat> {
        let tau = quantised(s.mirostat);
        (tau > 0).then(|| Mirostat { tau, rate: Scale::of(f64::from(s.mirostat_rate)) })
    }

    /// The largest surprise before anything was learnt.
    pub fn first(self) -> i32 {
        self.tau.saturating_mul(2)
    }

    /// Keeps the tokens that surprise by at most `mu`, the likeliest at least. Weighs what is left; the sum of it.
    pub fn cut(self, list: &mut Shortlist, mu: i32, scale: Scale) -> u64 {
        let total = list.weigh(scale);
        // a token of mass 2^(31 - y) surprises by log2(total) - 31 + y
        let most = i64::from(mu) - surprise(FULL_MASS, total);
        if most < 0 {
            list.top_k(1);
        } else {
            list.within(last_up_to((most as u64) << 6, scale));
        }
        list.weigh(scale)
    }

    /// What mu is after a token of this mass, of this sum.
    pub fn learn(self, mu: i32, mass: u32, total: u64) -> i32 {
        let error = surprise(mass, total) - i64::from(self.tau);
        let error = error.clamp(-i64::from(i32::MAX), i64::from(i32::MAX)) as i32;
        mu.saturating_sub(self.rate.times_signed(error))
    }
}

fn surprise(mass: u32, total: u64) -> i64 {
    i64::from(log2(total)) - i64::from(log2(mass.into()))
}

/// The largest distance whose product with the scale is at most `y`, found by halving; the product never falls.
fn last_up_to(y: u64, scale: Scale) -> u32 {
    let (mut kept, mut dropped) = (0, u32::MAX);
    while dropped - kept > 1 {
        let middle = kept + (dropped - kept) / 2;
        if u64::from(scale.times(middle)) <= y { kept = middle } else { dropped = middle }
    }
    kept
}
