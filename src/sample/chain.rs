//! The chain of filters: determines which tokens may be drawn, and with which mass.
//!
//! A token has a distance d = max - logit, in fixed point, and a mass: its unnormalised probability, 2^31 for the most likely token. A filter orders
//! tokens by (d, id), finds the last token to keep and drops the rest. (`typical` orders by another key.) Only a narrow range of keys is sorted: a
//! histogram finds the range that holds the last token to keep. The list itself stays in the order of ids.
//!
//! The kernels in `shaders/sample/` find the same tokens by other algorithms. This module knows no settings: `row.rs` and `host.rs` convert them to
//! the integers that the filters take. The module `shape` has the filters that depend on the whole distribution.

mod shape;

use super::fixed::{EXCLUDED, Scale, share_of, uniform_below};
use super::wide;

/// Determines whether a filter also keeps all tokens with exactly the probability of the last token that it keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ties {
    Keep,
    Drop,
}

/// The tokens that the filters have kept so far. The buffers are reused between calls.
#[derive(Default)]
pub(super) struct Shortlist {
    /// The tokens' ids, ascending. `[n]`
    ids: Vec<u32>,
    /// The distance of each token's logit from the largest logit. `[n]`
    distances: Vec<u32>,
    /// The mass (unnormalised probability) of each token. Valid after `weigh`. `[n]`
    masses: Vec<u32>,
    /// The sort key of each token in the filter `typical`: the distance of the token's surprise from the entropy. `[n]`
    ranks: Vec<u32>,
    /// The sum of the masses in each range of sort keys. `[N_BINS]`
    bins: Vec<u64>,
    /// The tokens in the only range that is sorted: the sort key (high 32 bits) and the place in the list (low 32 bits).
    edge: Vec<u64>,
}

/// The number of ranges into which sort keys are divided. The ranges have the same width: the smallest power of two with which they cover every key.
const N_BINS: usize = 1 << 12;

impl Shortlist {
    /// Fills the list with every token whose key is not `EXCLUDED`. A key is a logit as an unsigned integer. `keys` has one key per id of the
    /// vocabulary, and `max` is the largest key.
    pub(super) fn fill(&mut self, keys: &[u32], max: u32) {
        self.ids.clear();
        self.ids.extend(0..keys.len() as u32);
        self.distances.clear();
        self.distances.extend(keys.iter().map(|&key| max - key));
        // the distance of an excluded token from `max` is `max - EXCLUDED`, and no other token is that far
        if keys.contains(&EXCLUDED) {
            self.retain(|_, distance| distance < max - EXCLUDED);
        }
    }

    /// Keeps the `k` most likely tokens. Among equally likely tokens, the lowest ids are kept. With `k` = 0, keeps all tokens.
    pub(super) fn top_k(&mut self, k: u32) {
        if k > 0 && (k as usize) < self.ids.len() {
            self.masses.clear();
            self.masses.resize(self.ids.len(), 1);
            self.keep_mass(u64::from(k), Ties::Drop);
        }
    }

    /// Keeps the most likely tokens until their masses sum to at least `p / 2^32` of the total, but at least one token. `ties` determines whether
    /// tokens that are exactly as likely as the last kept token are kept, too.
    pub(super) fn top_p(&mut self, p: u32, scale: Scale, ties: Ties) {
        let total = self.weigh(scale);
        self.keep_mass(share_of(total, p), ties);
    }

    /// Keeps the tokens whose logit is at most `distance` below the largest logit.
    pub(super) fn within(&mut self, distance: u32) {
        if distance < u32::MAX {
            self.retain(|_, d| d <= distance);
        }
    }

    /// Computes the mass (unnormalised probability) of every token. Returns the sum of the masses.
    pub(super) fn weigh(&mut self, scale: Scale) -> u64 {
        wide::masses(&self.distances, scale, &mut self.masses);
        self.masses.iter().map(|&m| u64::from(m)).sum()
    }

    /// Keeps the most likely tokens until their masses sum to at least `target`, which must be at most the sum of all masses. `ties` determines
    /// whether tokens that are exactly as likely as the last kept token are kept, too.
    fn keep_mass(&mut self, target: u64, ties: Ties) {
        let distances = std::mem::take(&mut self.distances);
        let last = self.last_of(&distances, target);
        self.distances = distances;
        if let Some((distance, id)) = last {
            self.retain(|i, d| d < distance || d == distance && (ties == Ties::Keep || i <= id));
        }
    }

    /// Finds the token at which the sum of masses reaches `target`. Returns the rank and the id of this token, or `None` if the sum of all masses is
    /// below `target`. `ranks` has one sort key per token of the list. Masses are added by ascending rank; among equal ranks, by ascending id.
    fn last_of(&mut self, ranks: &[u32], target: u64) -> Option<(u32, u32)> {
        let highest = ranks.iter().copied().max().unwrap_or(0);
        let shift = (u32::BITS - highest.leading_zeros()).saturating_sub(N_BINS.trailing_zeros());
        let bin = |rank: u32| (rank >> shift) as usize & (N_BINS - 1);
        self.bins.clear();
        self.bins.resize(N_BINS, 0);
        for (&rank, &mass) in ranks.iter().zip(&self.masses) {
            self.bins[bin(rank)] += u64::from(mass);
        }
        // find the bin in which the sum reaches the target; afterwards `sum` is the sum before this bin
        let mut sum = 0;
        let edge_bin = self.bins.iter().position(|&mass| {
            sum += mass;
            sum >= target
        })?;
        sum -= self.bins[edge_bin];

        // then sum token by token within the bin
        self.edge.clear();
        for (place, &rank) in ranks.iter().enumerate() {
            if bin(rank) == edge_bin {
                self.edge.push(u64::from(rank) << 32 | place as u64);
            }
        }
        self.edge.sort_unstable();
        let last = self.edge.iter().find(|&&key| {
            sum += u64::from(self.masses[key as u32 as usize]);
            sum >= target
        });
        last.map(|&key| ((key >> 32) as u32, self.ids[key as u32 as usize]))
    }

    /// Keeps the tokens for which `keep(id, distance)` is true. `distance` is the largest logit minus the token's logit. Afterwards the masses
    /// are invalid.
    fn retain(&mut self, keep: impl Fn(u32, u32) -> bool) {
        let n_all = self.ids.len();
        let (ids, distances) = (&mut self.ids[..n_all], &mut self.distances[..n_all]);
        let mut n = 0;
        for i in 0..n_all {
            let (id, distance) = (ids[i], distances[i]);
            (ids[n], distances[n]) = (id, distance);
            n += usize::from(keep(id, distance)); // the next token overwrites a dropped token, so there is no branch to mispredict
        }
        self.ids.truncate(n);
        self.distances.truncate(n);
    }

    /// Draws a token: adds masses in the order of ids until the sum exceeds `total * random / 2^64`. Returns the id and the mass of the token that
    /// was added last, or `None` if the list is empty. `total` must be the sum of all masses.
    pub(super) fn pick(&self, random: u64, total: u64) -> Option<(u32, u32)> {
        let target = uniform_below(random, total);
        let mut sum = 0;
        let place = self.masses.iter().position(|&mass| {
            sum += u64::from(mass);
            sum > target
        });
        place.map(|i| (self.ids[i], self.masses[i]))
    }

    /// Returns id and probability of each token. `total` is the sum of the masses.
    #[cfg(test)]
    pub(super) fn probabilities(&self, total: u64) -> impl Iterator<Item = (u32, f32)> {
        self.ids.iter().zip(&self.masses).map(move |(&id, &mass)| (id, (f64::from(mass) / total as f64) as f32))
    }
}
