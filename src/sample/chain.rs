//! The chain of filters: which tokens may still be drawn, and with what weight.
//!
//! A token stands as its distance d = (max - logit) / temperature, so that p ~ exp(-d) and the likeliest has d = 0. A filter
//! finds the last token it keeps and drops what comes after it; nothing is ever sorted whole, because a histogram says in
//! which narrow band of distances that last token lies. The list stays in the order of ids. Knows no settings.

use super::exp::exp;

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
    /// From 0; infinite for a token that cannot be drawn. `[n]`
    distances: Vec<f32>,
    /// exp(-d) once weighed; what `keep_mass` counts with. `[n]`
    weights: Vec<f32>,
    /// The sum of `weights`.
    total: f64,
    /// The weights summed by band of distance. `[N_BINS]`
    bins: Vec<f64>,
    /// The tokens of one bin: distance (high) and place in the list (low).
    edge: Vec<u64>,
}

/// Bands of distance: eight bits of exponent and four of mantissa, so they are narrow whatever the scale of the logits.
const N_BINS: usize = 1 << 12;

/// The band of a distance. The bits of a number that is not negative order as it does.
fn bin(distance: f32) -> usize {
    (distance.to_bits() >> 19) as usize & (N_BINS - 1)
}

impl Shortlist {
    /// Enters every token. `max` is the largest finite logit; one that is not finite cannot be drawn.
    pub(super) fn fill(&mut self, logits: &[f32], max: f32, temperature: f32) {
        self.ids.clear();
        self.ids.extend(0..logits.len() as u32);
        self.distances.clear();
        let distance = |&x: &f32| if x.is_finite() { (max - x) / temperature } else { f32::INFINITY };
        self.distances.extend(logits.iter().map(distance));
    }

    /// Keeps the `k` most likely tokens, the lower id of equals. 0 is off.
    pub(super) fn top_k(&mut self, k: usize) {
        if k == 0 || k >= self.ids.len() {
            return;
        }
        self.weights.clear();
        self.weights.resize(self.ids.len(), 1.0);
        self.keep_mass(k as f64, Ties::Drop);
    }

    /// Keeps the fewest tokens that have at least the share `p` of the probability; 1 is off, 0 keeps the first.
    pub(super) fn top_p(&mut self, p: f32, ties: Ties) {
        if p < 1.0 {
            self.weigh(1.0);
            self.keep_mass(f64::from(p) * self.total, ties);
        }
    }

    /// Keeps tokens at least `p` times as likely as the most likely one. 0 is off.
    pub(super) fn min_p(&mut self, p: f32) {
        if p > 0.0 {
            self.weigh(1.0);
            self.retain(|_, _, weight| weight >= p);
        }
    }

    /// Gives every token its weight, exp(-d / temperature), and sums them.
    pub(super) fn weigh(&mut self, temperature: f32) {
        self.weights.clear();
        self.weights.extend(self.distances.iter().map(|&d| exp(-d / temperature)));
        self.total = sum(&self.weights);
    }

    /// Keeps the likeliest tokens until their weights sum to `target`.
    fn keep_mass(&mut self, target: f64, ties: Ties) {
        self.bins.clear();
        self.bins.resize(N_BINS, 0.0);
        for (&distance, &weight) in self.distances.iter().zip(&self.weights) {
            self.bins[bin(distance)] += f64::from(weight);
        }
        // the bin in which the sum reaches the target, and the sum before it
        let mut before = 0.0;
        let mut edge_bin = N_BINS - 1;
        for (bin, &mass) in self.bins.iter().enumerate() {
            if mass > 0.0 && before + mass >= target {
                edge_bin = bin;
                break;
            }
            before += mass;
        }
        self.retain(|_, distance, _| bin(distance) <= edge_bin);

        // the same sum token by token within that bin; if rounding keeps it below the target, the whole bin stays
        self.edge.clear();
        for (place, &distance) in self.distances.iter().enumerate() {
            if bin(distance) == edge_bin {
                self.edge.push(u64::from(distance.to_bits()) << 32 | place as u64);
            }
        }
        self.edge.sort_unstable();
        let mut sum = before;
        let last = self.edge.iter().map(|&key| key as u32 as usize).find(|&place| {
            sum += f64::from(self.weights[place]);
            sum >= target
        });
        let Some(last) = last else { return };
        let last = (self.ids[last], self.distances[last]);
        self.retain(|id, distance, _| distance < last.1 || distance == last.1 && (ties == Ties::Keep || id <= last.0));
    }

    /// Keeps the tokens of which `keep(id, distance, weight)` is true. Needs as many weights as tokens.
    fn retain(&mut self, keep: impl Fn(u32, f32, f32) -> bool) {
        let n_all = self.ids.len();
        let (ids, distances, weights) = (&mut self.ids[..n_all], &mut self.distances[..n_all], &mut self.weights[..n_all]);
        let mut n = 0;
        for i in 0..n_all {
            let (id, distance, weight) = (ids[i], distances[i], weights[i]);
            (ids[n], distances[n], weights[n]) = (id, distance, weight);
            n += usize::from(keep(id, distance, weight)); // else the next one overwrites it: no branch to mispredict
        }
        self.ids.truncate(n);
        self.distances.truncate(n);
        self.weights.truncate(n);
    }

    /// The token at `u` in [0, 1) of the cumulated weights. `None` only where nothing has any weight. Needs `weigh`.
    pub(super) fn pick(&self, u: f64) -> Option<u32> {
        let target = u * self.total;
        let mut sum = 0.0;
        let mut last = None;
        for (&id, &weight) in self.ids.iter().zip(&self.weights).filter(|(_, w)| **w > 0.0) {
            sum += f64::from(weight);
            last = Some(id);
            if sum > target {
                break;
            }
        }
        last
    }

    /// Each token's id and probability. Needs `weigh`.
    pub(super) fn probabilities(&self) -> impl Iterator<Item = (u32, f32)> {
        self.ids.iter().zip(&self.weights).map(|(&id, &weight)| (id, (f64::from(weight) / self.total) as f32))
    }
}

/// The sum in f64, in eight lanes: always the same order of additions, and SIMD.
fn sum(weights: &[f32]) -> f64 {
    let (blocks, rest) = weights.as_chunks::<8>();
    let mut lanes = [0.0; 8];
    for block in blocks {
        for (lane, &weight) in lanes.iter_mut().zip(block) {
            *lane += f64::from(weight);
        }
    }
    lanes.into_iter().chain(rest.iter().map(|&w| f64::from(w))).sum()
}
