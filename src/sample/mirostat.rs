//! Mirostat, version 2: drops the tokens whose surprise is above a limit mu, and adjusts mu after each drawn token.
//!
//! The surprise of a token with probability p is -log2(p), in bits. The paper is Basu et al., arXiv 2007.14966.

use super::chain::Shortlist;
use super::fixed::{FULL_MASS, Scale, log2, quantised};
use super::settings::Sampling;

/// The settings of mirostat. Surprises are in units of 2^-20 bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mirostat {
    /// The mean surprise per token that mirostat aims at.
    tau: i32,
    rate: Scale,
}

impl Mirostat {
    /// Returns the settings of mirostat, or `None` if mirostat is off.
    pub fn of(s: &Sampling) -> Option<Mirostat> {
        let tau = quantised(s.mirostat);
        (tau > 0).then(|| Mirostat { tau, rate: Scale::of(f64::from(s.mirostat_rate)) })
    }

    /// Returns the limit mu before the first draw: 2 tau.
    pub fn first(self) -> i32 {
        self.tau.saturating_mul(2)
    }

    /// Keeps the tokens whose surprise is at most `mu`, and always the most likely token. Computes the masses (unnormalised probabilities) of the
    /// kept tokens and returns their sum.
    pub fn cut(self, list: &mut Shortlist, mu: i32, scale: Scale) -> u64 {
        let total = list.weigh(scale);
        // a token of mass 2^(31 - y) has the surprise log2(total) - 31 + y, so a limit on the surprise is a limit on y
        let most = i64::from(mu) - surprise(FULL_MASS, total);
        if most < 0 {
            list.top_k(1);
        } else {
            list.within(last_up_to((most as u64) << 6, scale));
        }
        list.weigh(scale)
    }

    /// Returns the limit mu after a draw: mu - rate * (surprise - tau). `mass / total` is the probability of the drawn token.
    pub fn learn(self, mu: i32, mass: u32, total: u64) -> i32 {
        let error = surprise(mass, total) - i64::from(self.tau);
        let error = error.clamp(-i64::from(i32::MAX), i64::from(i32::MAX)) as i32;
        mu.saturating_sub(self.rate.times_signed(error))
    }
}

/// Returns the surprise of a token with the probability `mass / total`: -log2(mass / total), in units of 2^-20 bits.
fn surprise(mass: u32, total: u64) -> i64 {
    i64::from(log2(total)) - i64::from(log2(mass.into()))
}

/// Returns the largest distance whose product with `scale` is at most `y`. Bisection works, because the product never falls while the distance grows.
fn last_up_to(y: u64, scale: Scale) -> u32 {
    let (mut kept, mut dropped) = (0, u32::MAX);
    while dropped - kept > 1 {
        let middle = kept + (dropped - kept) / 2;
        if u64::from(scale.times(middle)) <= y { kept = middle } else { dropped = middle }
    }
    kept
}
