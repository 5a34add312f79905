//! The loop for registers of four numbers.

use super::{LANES, STRIP};

// SAFETY of all functions: the CPU has the registers. Callers of `multiply` have checked the lengths of the slices.

/// A register of four floats.
pub trait Four: Copy {
    /// The largest number of tokens whose sums stay in registers, at most 3.
    const MOST: usize;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn splat(x: f32) -> Self;
    unsafe fn add(self, b: Self) -> Self;
    /// Returns `self * b + c`. Rounds once if the CPU can.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// Returns the sum of the four numbers of each register. Adds the numbers at distance 2 first, then at distance 1.
    unsafe fn totals(all: [Self; STRIP]) -> Self;
}

/// Computes eight of the sixteen lanes of each sum, for each row of a strip and each of `T` tokens. Returns lane l plus lane l + 8, for the four
/// lanes l from `first` on.
#[inline(always)]
unsafe fn halves<F: Four, const T: usize>(first: usize, w: *const f32, depth: usize, x: *const f32, x_stride: usize) -> [[F; STRIP]; T] {
    // SAFETY: the caller guarantees `depth` floats per row.
    unsafe {
        let mut sums = [[[F::splat(0.0); STRIP]; T]; 2];
        for j in (first..depth).step_by(LANES) {
            for (half, sums) in sums.iter_mut().enumerate() {
                let j = j + half * LANES / 2;
                let rows: [F; STRIP] = std::array::from_fn(|i| F::load(w.add(i * depth + j)));
                for (t, sums) in sums.iter_mut().enumerate() {
                    let x = F::load(x.add(t * x_stride + j));
                    for (sum, row) in sums.iter_mut().zip(rows) {
                        *sum = row.mul_add(x, *sum);
                    }
                }
            }
        }
        std::array::from_fn(|t| std::array::from_fn(|i| sums[0][t][i].add(sums[1][t][i])))
    }
}

/// Multiplies a strip by `T` tokens. All lanes of the sums would need 16 `T` registers, so each of two passes adds up half of the lanes.
#[inline(never)]
unsafe fn tile<F: Four, const T: usize>(w: *const f32, depth: usize, x: *const f32, x_stride: usize, out: *mut f32, out_stride: usize) {
    // SAFETY: the caller guarantees `depth` floats per row, and room for four floats per token.
    unsafe {
        let low: [[F; STRIP]; T] = halves(0, w, depth, x, x_stride);
        let high: [[F; STRIP]; T] = halves(4, w, depth, x, x_stride);
        for t in 0..T {
            let out = out.add(t * out_stride);
            let sums = F::totals(std::array::from_fn(|i| low[t][i].add(high[t][i])));
            F::load(out).add(sums).store(out);
        }
    }
}

/// Multiplies a strip by `n` tokens. Takes the arguments of [`super::multiply`].
pub unsafe fn multiply<F: Four>(w: &[f32], depth: usize, x: &[f32], x_stride: usize, out: &mut [f32], out_stride: usize, n: usize) {
    let tiles = n.div_ceil(F::MOST);
    for i in 0..tiles {
        let (first, end) = (i * n / tiles, (i + 1) * n / tiles);
        // SAFETY: the caller has checked the lengths.
        unsafe {
            let (w, x, out) = (w.as_ptr(), x.as_ptr().add(first * x_stride), out.as_mut_ptr().add(first * out_stride));
            match end - first {
                3 if F::MOST >= 3 => tile::<F, 3>(w, depth, x, x_stride, out, out_stride),
                2 if F::MOST >= 2 => tile::<F, 2>(w, depth, x, x_stride, out, out_stride),
                _ => tile::<F, 1>(w, depth, x, x_stride, out, out_stride),
            }
        }
    }
}

#[cfg(has_neon)]
mod arm {
    use super::{Four, STRIP};
    use std::arch::aarch64::*;

    impl Four for float32x4_t {
        const MOST: usize = 3;
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { vld1q_f32(from) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe { vst1q_f32(to, self) }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            unsafe { vdupq_n_f32(x) }
        }
        #[inline(always)]
        unsafe fn add(self, b: Self) -> Self {
            unsafe { vaddq_f32(self, b) }
        }
        #[inline(always)]
        unsafe fn mul_add(self, b: Self, c: Self) -> Self {
            unsafe { vfmaq_f32(c, self, b) }
        }
        #[inline(always)]
        unsafe fn totals(all: [Self; STRIP]) -> Self {
            let two = |a, b| unsafe {
                let (low, high) = (vcombine_f32(vget_low_f32(a), vget_low_f32(b)), vcombine_f32(vget_high_f32(a), vget_high_f32(b)));
                vaddq_f32(low, high)
            };
            unsafe { vpaddq_f32(two(all[0], all[1]), two(all[2], all[3])) }
        }
    }
}

#[cfg(has_simd128)]
mod wasm {
    use super::{Four, STRIP};
    use std::arch::wasm32::*;

    impl Four for v128 {
        /// On x86-64, browsers have sixteen registers for WebAssembly.
        const MOST: usize = 1;
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { v128_load(from.cast()) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe { v128_store(to.cast(), self) }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            f32x4_splat(x)
        }
        #[inline(always)]
        unsafe fn add(self, b: Self) -> Self {
            f32x4_add(self, b)
        }
        #[inline(always)]
        unsafe fn mul_add(self, b: Self, c: Self) -> Self {
            f32x4_add(f32x4_mul(self, b), c)
        }
        #[inline(always)]
        unsafe fn totals(all: [Self; STRIP]) -> Self {
            let two = |a, b| f32x4_add(i32x4_shuffle::<0, 1, 4, 5>(a, b), i32x4_shuffle::<2, 3, 6, 7>(a, b));
            let (a, b) = (two(all[0], all[1]), two(all[2], all[3]));
            f32x4_add(i32x4_shuffle::<0, 2, 4, 6>(a, b), i32x4_shuffle::<1, 3, 5, 7>(a, b))
        }
    }
}
