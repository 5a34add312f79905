//! The chain of filters: which tokens may still be drawn, and with what weight.
//!
//! A token stands as its distance d = max - logit in fixed point and weighs its mass, 2^31 for the likeliest. A filter keeps a
//! prefix of the order (d, id): it finds the last token it keeps and drops what comes after it. Nothing is ever sorted whole,
//! because a histogram says in which narrow band of distances that last token lies. The list stays in the order of ids.
//! Knows no settings. The kernel of `shaders/sample/` finds the same tokens in another way. What looks at the whole curve is in `shape`.

mod shape;

use super::fixed::{EXCLUDED, Scale, share_of, uniform_below};
use super::wide;

/// Whether tokens as likely as the last one kept are kept too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ties {
    Keep,
    Drop,
}

/// The tokens that may still be drawn. Keeps its buffers from one call to the next.
#[derive(Default)]
pub(super) struct Shortlist {
    /// Ascending. `[n]`
    ids: Vec<u32>,
    /// From 0. `[n]`
    distances: Vec<u32>,
    /// Masses once weighed. `[n]`
    masses: Vec<u32>,
    /// What `typical` goes by. `[n]`
    ranks: Vec<u32>,
    /// The masses summed by band of rank. `[N_BINS]`
    bins: Vec<u64>,
    /// Tokens to be sorted: rank (high) and place in the list (low).
    edge: Vec<u64>,
}

/// Bands of distance, all of the same width: the least power of two that covers every distance.
const N_BINS: usize = 1 << 12;

impl Shortlist {
    /// Enters every token that may be drawn. `max` is the largest of the keys.
    pub(super) fn fill(&mut self, keys: &[u32], max: u32) {
        self.ids.clear();
        self.ids.extend(0..keys.len() as u32);
        self.distances.clear();
        self.distances.extend(keys.iter().map(|&key| max - key));
        // that of an excluded token is the largest of all
        if keys.contains(&EXCLUDED) {
            self.retain(|_, distance| distance < max - EXCLUDED);
        }
    }

    /// Keeps the `k` most likely tokens, the lower id of equals. 0 is off.
    pub(super) fn top_k(&mut self, k: u32) {
        if k > 0 && (k as usize) < self.ids.len() {
            self.masses.clear();
            self.masses.resize(self.ids.len(), 1);
            self.keep_mass(u64::from(k), Ties::Drop);
        }
    }

    /// Keeps the fewest tokens that have at least the share `p / 2^32` of the mass; 0 keeps the first.
    pub(super) fn top_p(&mut self, p: u32, scale: Scale, ties: Ties) {
        let total = self.weigh(scale);
        self.keep_mass(share_of(total, p), ties);
    }

    /// Keeps tokens up to this distance.
    pub(super) fn within(&mut self, distance: u32) {
        if distance < u32::MAX {
            self.retain(|_, d| d <= distance);
        }
    }

    /// Gives every token its mass; the sum of them.
    pub(super) fn weigh(&mut self, scale: Scale) -> u64 {
        wide::masses(&self.distances, scale, &mut self.masses);
        self.masses.iter().map(|&m| u64::from(m)).sum()
    }

    /// Keeps the likeliest tokens until their masses sum to `target`, which all of them reach.
    fn keep_mass(&mut self, target: u64, ties: Ties) {
        let distances = std::mem::take(&mut self.distances);
        let last = self.last_of(&distances, target);
        self.distances = distances;
        if let Some((distance, id)) = last {
            self.retain(|i, d| d < distance || d == distance && (ties == Ties::Keep || i <= id));
        }
    }

    /// The token, its rank and its id, with which the masses sum to `target`, tokens of lower rank first, the lower id of equals; a rank
    /// a token of the list.
    fn last_of(&mut self, ranks: &[u32], target: u64) -> Option<(u32, u32)> {
        let highest = ranks.iter().copied().max().unwrap_or(0);
        let shift = (u32::BITS - highest.leading_zeros()).saturating_sub(N_BINS.trailing_zeros());
        let bin = |rank: u32| (rank >> shift) as usize & (N_BINS - 1);
        self.bins.clear();
        self.bins.resize(N_BINS, 0);
        for (&rank, &mass) in ranks.iter().zip(&self.masses) {
            self.bins[bin(rank)] += u64::from(mass);
        }
        // the bin in which the sum reaches the target, and the sum before it
        let mut sum = 0;
        let edge_bin = self.bins.iter().position(|&mass| {
            sum += mass;
            sum >= target
        })?;
        sum -= self.bins[edge_bin];

        // the same sum token by token within that bin
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

    /// Keeps the tokens of which `keep(id, distance)` is true. Their masses are void.
    fn retain(&mut self, keep: impl Fn(u32, u32) -> bool) {
        let n_all = self.ids.len();
        let (ids, distances) = (&mut self.ids[..n_all], &mut self.distances[..n_all]);
        let mut n = 0;
        for i in 0..n_all {
            let (id, distance) = (ids[i], distances[i]);
            (ids[n], distances[n]) = (id, distance);
            n += usize::from(keep(id, distance)); // else the next one overwrites it: no branch to mispredict
        }
        self.ids.truncate(n);
        self.distances.truncate(n);
    }

    /// The token at which the cumulated masses exceed the share that `random / 2^64` is of them, and its mass; `total` is their sum.
    pub(super) fn pick(&self, random: u64, total: u64) -> Option<(u32, u32)> {
        let target = uniform_below(random, total);
        let mut sum = 0;
        let place = self.masses.iter().position(|&mass| {
            sum += u64::from(mass);
            sum > target
        });
        place.map(|i| (self.ids[i], self.masses[i]))
    }

    /// Each token's id and probability; `total` is the sum of the masses.
    pub(super) fn probabilities(&self, total: u64) -> impl Iterator<Item = (u32, f32)> {
        self.ids.iter().zip(&self.masses).map(move |(&id, &mass)| (id, (f64::from(mass) / total as f64) as f32))
    }
}
