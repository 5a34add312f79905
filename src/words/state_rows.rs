//! The inner loops of the recurrence of RWKV-5, 6 and 7 on the CPU: one token of one head. S is the head's state, a matrix `[n, n]` with one row per
//! value channel and one column per key channel.
//!
//! The loops use the CPU's vector instructions. Every sum over the key channels has sixteen partial sums. The tests compare the results with loops
//! without vector instructions.

use crate::quant::isa::{Body, Isa, LANES, SimdVector, whole};

/// Computes `S = S diag(w) − (S κ) bᵀ + v kᵀ`, then `o = S r`. `keys` has the vectors κ, w, b, k and r in this order, each with n elements. `v` and
/// `o` have n elements, too.
pub fn delta(isa: Isa, s: &mut [f32], keys: [&[f32]; 5], v: &[f32], o: &mut [f32]) {
    isa.with(DeltaUpdate { s, keys, v, o });
}

/// Computes `o = S r`, then `S = S diag(w) + v kᵀ`. `keys` has the vectors r, w and k in this order, each with n elements. `v` and `o` have n
/// elements, too.
pub fn decay(isa: Isa, s: &mut [f32], keys: [&[f32]; 3], v: &[f32], o: &mut [f32]) {
    isa.with(Decay { s, keys, v, o });
}

struct DeltaUpdate<'a> {
    s: &'a mut [f32],
    keys: [&'a [f32]; 5],
    v: &'a [f32],
    o: &'a mut [f32],
}

struct Decay<'a> {
    s: &'a mut [f32],
    keys: [&'a [f32]; 3],
    v: &'a [f32],
    o: &'a mut [f32],
}

type LaneFloats = [f32; LANES];

impl Body for DeltaUpdate<'_> {
    #[inline(always)]
    unsafe fn call<V: SimdVector>(self) {
        let n = self.v.len();
        let [kappa, w, b, k, r] = self.keys.map(|x| x[..n].as_chunks::<LANES>());
        let ends = [kappa.1, w.1, b.1, k.1, r.1].map(whole);
        for ((row, v), o) in self.s.chunks_exact_mut(n).zip(self.v).zip(self.o) {
            let (row, end) = row.as_chunks_mut::<LANES>();
            let mut last = whole(end);
            // SAFETY: the caller guarantees the CPU's instructions.
            unsafe {
                let mut sums = V::splat(0.0);
                for (row, kappa) in row.iter().zip(kappa.0) {
                    sums = V::load(row).mul_add(V::load(kappa), sums);
                }
                if !end.is_empty() {
                    sums = V::load(&last).mul_add(V::load(&ends[0]), sums);
                }
                let (sa, v) = (V::splat(-sums.total()), V::splat(*v));
                let mut sums = V::splat(0.0);
                for ((((row, w), b), k), r) in row.iter_mut().zip(w.0).zip(b.0).zip(k.0).zip(r.0) {
                    sums = delta_lanes(row, [w, b, k, r], sa, v, sums);
                }
                if !end.is_empty() {
                    sums = delta_lanes(&mut last, [&ends[1], &ends[2], &ends[3], &ends[4]], sa, v, sums);
                    end.copy_from_slice(&last[..end.len()]);
                }
                *o = sums.total();
            }
        }
    }
}

impl Body for Decay<'_> {
    #[inline(always)]
    unsafe fn call<V: SimdVector>(self) {
        let n = self.v.len();
        let [r, w, k] = self.keys.map(|x| x[..n].as_chunks::<LANES>());
        let ends = [r.1, w.1, k.1].map(whole);
        for ((row, v), o) in self.s.chunks_exact_mut(n).zip(self.v).zip(self.o) {
            let (row, end) = row.as_chunks_mut::<LANES>();
            // SAFETY: the caller guarantees the CPU's instructions.
            unsafe {
                let (mut sums, v) = (V::splat(0.0), V::splat(*v));
                for (((row, r), w), k) in row.iter_mut().zip(r.0).zip(w.0).zip(k.0) {
                    sums = decay_lanes(row, [r, w, k], v, sums);
                }
                if !end.is_empty() {
                    let mut last = whole(end);
                    sums = decay_lanes(&mut last, [&ends[0], &ends[1], &ends[2]], v, sums);
                    end.copy_from_slice(&last[..end.len()]);
                }
                *o = sums.total();
            }
        }
    }
}

/// Updates sixteen elements of a row of S: multiplies them by w and adds `sa` b + `v` k. `sa` is the row's element of −S κ, and `v` the row's element
/// of v. Returns `sums` plus the products of the new elements and r.
///
/// # Safety
/// The CPU has the instructions of `V`.
#[inline(always)]
unsafe fn delta_lanes<V: SimdVector>(row: &mut LaneFloats, [w, b, k, r]: [&LaneFloats; 4], sa: V, v: V, sums: V) -> V {
    // SAFETY: the caller guarantees the CPU's instructions.
    unsafe {
        let s = V::load(row).mul_add(V::load(w), sa.mul_add(V::load(b), v.mul_add(V::load(k), V::splat(0.0))));
        s.store(row);
        s.mul_add(V::load(r), sums)
    }
}

/// Returns `sums` plus the products of sixteen elements of a row of S and r. Also updates these elements after the products: multiplies them by w and
/// adds `v` k, where `v` is the row's element of v.
///
/// # Safety
/// The CPU has the instructions of `V`.
#[inline(always)]
unsafe fn decay_lanes<V: SimdVector>(row: &mut LaneFloats, [r, w, k]: [&LaneFloats; 3], v: V, sums: V) -> V {
    // SAFETY: the caller guarantees the CPU's instructions.
    unsafe {
        let s = V::load(row);
        s.mul_add(V::load(w), v.mul_add(V::load(k), V::splat(0.0))).store(row);
        s.mul_add(V::load(r), sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::isa::FUSED;

    /// Returns `n` numbers between −1 and 1.
    fn numbers(n: usize, seed: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
    }

    fn near(found: &[f32], expected: &[f64], what: &str) {
        for (i, (f, e)) in found.iter().zip(expected).enumerate() {
            assert!((f64::from(*f) - e).abs() < 2e-5 * e.abs().max(1.0), "{what} {i}: {f}, expected {e}");
        }
    }

    #[test]
    fn loops_agree_with_plain_ones() {
        for n in [1, 5, 8, 16, 20, 33, 64, 128] {
            let [kappa, w, b, k, r, v] = std::array::from_fn(|i| numbers(n, i));
            for is_delta in [true, false] {
                let mut states = Vec::new();
                for isa in Isa::all() {
                    let (mut s, mut o) = (numbers(n * n, 9), vec![f32::NAN; n]);
                    match is_delta {
                        true => delta(isa, &mut s, [&kappa, &w, &b, &k, &r], &v, &mut o),
                        false => decay(isa, &mut s, [&r, &w, &k], &v, &mut o),
                    }
                    states.push([s, o]);
                }
                let exact = states.len() - usize::from(!FUSED);
                assert!(states[..exact].iter().all(|s| *s == states[0]), "fused instructions give the same bits");
                let mut s: Vec<f64> = numbers(n * n, 9).into_iter().map(f64::from).collect();
                let mut o = vec![0f64; n];
                for i in 0..n {
                    let x = |x: &[f32], j: usize| f64::from(x[j]);
                    let row = &mut s[i * n..][..n];
                    let sa: f64 = (0..n).map(|j| row[j] * x(&kappa, j)).sum();
                    for (j, s) in row.iter_mut().enumerate() {
                        if !is_delta {
                            o[i] += *s * x(&r, j);
                        }
                        *s = *s * x(&w, j) - if is_delta { sa * x(&b, j) } else { 0.0 } + x(&v, i) * x(&k, j);
                        if is_delta {
                            o[i] += *s * x(&r, j);
                        }
                    }
                }
                for state in &states {
                    near(&state[0], &s, "state");
                    near(&state[1], &o, "output");
                }
            }
        }
    }
}
