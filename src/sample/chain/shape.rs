//! Filters that depend on the whole distribution of the logits or of the probabilities.

use super::super::fixed::{Scale, share_of};
use super::Shortlist;

/// The number of low bits that are dropped from a distance (largest logit minus logit) before the distance is squared. The rest is in units of 2^-10,
/// so that a sum of squares over any vocabulary fits in 64 bits. The kernel drops the same bits.
const COARSE: u32 = 10;

impl Shortlist {
    /// Keeps the tokens whose logit is at most `n` standard deviations below the maximum. The deviation is computed over all tokens in the list.
    pub(in super::super) fn top_n_sigma(&mut self, n: Scale) {
        let count = self.distances.len() as u64;
        let coarse = |d: &u32| u64::from(d >> COARSE);
        let mean = self.distances.iter().map(coarse).sum::<u64>() / count.max(1);
        let squares: u64 = self.distances.iter().map(|d| coarse(d).abs_diff(mean).pow(2)).sum();
        // `squares / count` is the variance in units of 2^-20; the shift converts the variance to units of 2^-40, so the root is in units of 2^-20
        let deviation = ((squares / count.max(1)) << (2 * COARSE)).isqrt() as u32;
        self.within(n.times(deviation));
    }

    /// Keeps the tokens whose surprise, -log(p), is closest to the entropy, until their masses sum to at least `p / 2^32` of the total mass. Among
    /// tokens that are equally close, the lowest ids are kept. Afterwards, distances are relative to the most likely kept token.
    pub(in super::super) fn typical(&mut self, p: u32, scale: Scale) {
        let total = self.weigh(scale);
        let sum: u128 = self.distances.iter().zip(&self.masses).map(|(&d, &m)| u128::from(d) * u128::from(m)).sum();
        // a surprise is a distance plus the same constant for all tokens, so the mean distance replaces the entropy
        let mean = ((sum + u128::from(total / 2)) / u128::from(total.max(1))) as u32;
        let mut ranks = std::mem::take(&mut self.ranks);
        ranks.clear();
        ranks.extend(self.distances.iter().map(|d| d.abs_diff(mean)));
        let last = self.last_of(&ranks, share_of(total, p));
        self.ranks = ranks;
        let Some((rank, id)) = last else { return };
        self.retain(|i, d| d.abs_diff(mean) < rank || d.abs_diff(mean) == rank && i <= id);
        let nearest = self.distances.iter().copied().min().unwrap_or(0);
        self.distances.iter_mut().for_each(|d| *d -= nearest);
    }
}
