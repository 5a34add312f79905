//! The inner loop of matrix products: decoded rows of a matrix times rows of activations, all in f32.
//!
//! Every sum has [`LANES`] partial sums, and lane l adds the products of the columns l, l + 16, l + 32, … in this order. The lanes are added
//! up in a fixed order. So a sum does not depend on the number of rows or tokens that are multiplied together. AVX-512, AVX2 and
//! NEON give the same bits.

use super::isa::Isa;

#[cfg(any(has_neon, has_simd128))]
mod four;

/// The number of partial sums per sum. The length of a row is a multiple of this number.
pub const LANES: usize = 16;
/// The number of rows that are multiplied together.
pub const STRIP: usize = 4;

/// Adds `Σ over j of w[i][j] x[t][j]` to `out[t * out_stride + i]`, for the rows i of a strip and all tokens t. `w` is `[STRIP, depth]`, and `depth`
/// is a multiple of [`LANES`]. The activations of token t are at least `depth` floats of `x`, from index `t * x_stride` on. The number of tokens is
/// `out.len() / out_stride`, rounded up.
pub fn multiply(isa: Isa, w: &[f32], x: &[f32], x_stride: usize, out: &mut [f32], out_stride: usize) {
    let depth = w.len() / STRIP;
    let n = out.len().div_ceil(out_stride);
    assert!(depth.is_multiple_of(LANES) && w.len() == STRIP * depth);
    assert!(n > 0 && x.len() >= (n - 1) * x_stride + depth && out.len() >= (n - 1) * out_stride + STRIP);
    match isa {
        // SAFETY: the CPU has the instructions; the slices hold all rows, as checked above.
        #[cfg(all(target_arch = "x86_64", has_avx512))]
        Isa::Avx512 => unsafe { x86::multiply512(w, depth, x, x_stride, out, out_stride, n) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { x86::multiply256(w, depth, x, x_stride, out, out_stride, n) },
        // SAFETY: every CPU of the target has NEON; the slices hold all rows, as checked above.
        #[cfg(has_neon)]
        Isa::Neon => unsafe { four::multiply::<std::arch::aarch64::float32x4_t>(w, depth, x, x_stride, out, out_stride, n) },
        // SAFETY: the module is compiled for these registers; the slices hold all rows, as checked above.
        #[cfg(has_simd128)]
        Isa::Simd128 => unsafe { four::multiply::<std::arch::wasm32::v128>(w, depth, x, x_stride, out, out_stride, n) },
        #[cfg(not(has_simd128))]
        Isa::Plain => plain(w, depth, x, x_stride, out, out_stride),
    }
}

/// The loop in plain arithmetic, the reference implementation for the other loops.
#[cfg(not(has_simd128))]
fn plain(w: &[f32], depth: usize, x: &[f32], x_stride: usize, out: &mut [f32], out_stride: usize) {
    for (out, x) in out.chunks_mut(out_stride).zip(x.chunks(x_stride)) {
        for (out, w) in out.iter_mut().zip(w.chunks_exact(depth)) {
            let mut sums = [0f32; LANES];
            for (w, x) in w.chunks_exact(LANES).zip(x.chunks_exact(LANES)) {
                for ((sum, w), x) in sums.iter_mut().zip(w).zip(x) {
                    *sum = super::isa::mul_add(*w, *x, *sum);
                }
            }
            let mut half = LANES;
            while half > 1 {
                half /= 2;
                for i in 0..half {
                    sums[i] += sums[i + half];
                }
            }
            *out += sums[0];
        }
    }
}

/// Multiplies a strip by `n` tokens, at most `$most` tokens at a time.
#[cfg(target_arch = "x86_64")]
macro_rules! tiles {
    ($tile:ident, $most:expr, $w:expr, $depth:expr, $x:expr, $x_stride:expr, $out:expr, $out_stride:expr, $n:expr) => {{
        let tiles = $n.div_ceil($most);
        for i in 0..tiles {
            let (first, end) = (i * $n / tiles, (i + 1) * $n / tiles);
            let (x, out) = ($x.add(first * $x_stride), $out.add(first * $out_stride));
            match end - first {
                1 => $tile::<1>($w, $depth, x, $x_stride, out, $out_stride),
                2 => $tile::<2>($w, $depth, x, $x_stride, out, $out_stride),
                3 => $tile::<3>($w, $depth, x, $x_stride, out, $out_stride),
                4 => $tile::<4>($w, $depth, x, $x_stride, out, $out_stride),
                5 => $tile::<5>($w, $depth, x, $x_stride, out, $out_stride),
                _ => $tile::<6>($w, $depth, x, $x_stride, out, $out_stride),
            }
        }
    }};
}

#[cfg(target_arch = "x86_64")]
#[allow(clippy::incompatible_msrv, reason = "AVX-512 is compiled only if the standard library has it")]
mod x86 {
    use super::{LANES, STRIP};
    use std::arch::x86_64::*;

    // Callers of the functions in this module must have checked the CPU's features and the lengths of the slices.

    /// Defines the function `$name`, which multiplies a strip by `T` tokens.
    macro_rules! tile {
        ($name:ident, $features:literal, $zero:expr, $load:expr, $fma:expr, $rows:expr, $sums:expr) => {
            // Not inlined into its callers: several tiles in one function would compete for registers.
            #[inline(never)]
            #[target_feature(enable = $features)]
            unsafe fn $name<const T: usize>(w: *const f32, depth: usize, x: *const f32, x_stride: usize, out: *mut f32, out_stride: usize) {
                // SAFETY: the caller guarantees the CPU's features and `depth` floats per row.
                unsafe {
                    let mut sums = [[$zero; $rows]; T];
                    for j in (0..depth).step_by(LANES) {
                        let mut rows = [$zero; $rows];
                        for (i, row) in rows.iter_mut().enumerate() {
                            *row = $load(w.add(i * depth + j));
                        }
                        for (t, sums) in sums.iter_mut().enumerate() {
                            let x = $load(x.add(t * x_stride + j));
                            for (sum, row) in sums.iter_mut().zip(rows) {
                                *sum = $fma(row, x, *sum);
                            }
                        }
                    }
                    for (t, sums) in sums.into_iter().enumerate() {
                        $sums(sums, out.add(t * out_stride));
                    }
                }
            }
        };
    }

    /// Adds up the 8 lanes of each register: lanes at distance 4 first, then the sums at distance 2 and 1. Adds the totals of the four registers to
    /// the four floats at `out`.
    #[inline(always)]
    unsafe fn add(a: [__m256; STRIP], out: *mut f32) {
        // SAFETY: the caller guarantees the CPU's features and room for four floats.
        unsafe {
            let mut q = [_mm_setzero_ps(); STRIP];
            for (q, a) in q.iter_mut().zip(a) {
                *q = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            }
            let low = _mm_add_ps(_mm_movelh_ps(q[0], q[1]), _mm_movehl_ps(q[1], q[0]));
            let high = _mm_add_ps(_mm_movelh_ps(q[2], q[3]), _mm_movehl_ps(q[3], q[2]));
            let sums = _mm_add_ps(_mm_shuffle_ps::<0x88>(low, high), _mm_shuffle_ps::<0xdd>(low, high));
            _mm_storeu_ps(out, _mm_add_ps(_mm_loadu_ps(out), sums));
        }
    }

    #[inline(always)]
    unsafe fn load256(p: *const f32) -> [__m256; 2] {
        // SAFETY: the caller guarantees 16 floats.
        unsafe { [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))] }
    }

    #[inline(always)]
    unsafe fn fma256(a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: the caller guarantees the CPU's features.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }

    #[inline(always)]
    unsafe fn sums256(a: [[__m256; 2]; STRIP], out: *mut f32) {
        // SAFETY: the caller guarantees the CPU's features and room for four floats.
        unsafe {
            let mut halves = [_mm256_setzero_ps(); STRIP];
            for (half, a) in halves.iter_mut().zip(a) {
                *half = _mm256_add_ps(a[0], a[1]);
            }
            add(halves, out);
        }
    }

    tile!(tile256, "avx2,fma", [_mm256_setzero_ps(); 2], load256, fma256, STRIP, sums256);

    #[target_feature(enable = "avx2,fma")]
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn multiply256(w: &[f32], depth: usize, x: &[f32], x_stride: usize, out: &mut [f32], out_stride: usize, n: usize) {
        // SAFETY: the caller has checked the CPU's features and the lengths.
        unsafe { tiles!(tile256, 1, w.as_ptr(), depth, x.as_ptr(), x_stride, out.as_mut_ptr(), out_stride, n) }
    }

    #[cfg(has_avx512)]
    #[inline(always)]
    unsafe fn sums512(a: [__m512; STRIP], out: *mut f32) {
        // SAFETY: the caller guarantees the CPU's features and room for four floats.
        unsafe {
            let mut halves = [_mm256_setzero_ps(); STRIP];
            for (half, a) in halves.iter_mut().zip(a) {
                let high = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(a)));
                *half = _mm256_add_ps(_mm512_castps512_ps256(a), high);
            }
            add(halves, out);
        }
    }

    #[cfg(has_avx512)]
    tile!(tile512, "avx512f,avx512vl,fma", _mm512_setzero_ps(), _mm512_loadu_ps, _mm512_fmadd_ps, STRIP, sums512);

    #[cfg(has_avx512)]
    #[target_feature(enable = "avx512f,avx512vl,fma")]
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn multiply512(w: &[f32], depth: usize, x: &[f32], x_stride: usize, out: &mut [f32], out_stride: usize, n: usize) {
        // SAFETY: the caller has checked the CPU's features and the lengths.
        unsafe { tiles!(tile512, 6, w.as_ptr(), depth, x.as_ptr(), x_stride, out.as_mut_ptr(), out_stride, n) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::isa::FUSED;

    /// Multiplies many numbers of tokens with each instruction set. All loops with fused instructions give the same bits. The plain loop may round each
    /// product before adding it, and then its sums differ slightly.
    #[test]
    fn tiles_agree_with_the_plain_loop() {
        for (depth, x_stride, out_stride) in [(16, 16, 4), (48, 64, 5), (1024, 1040, 32)] {
            for n in (1..20).chain([64]) {
                let w: Vec<f32> = (0..STRIP * depth).map(|i| ((i * 37 % 101) as f32 - 50.0) / 64.0).collect();
                let x: Vec<f32> = (0..n * x_stride).map(|i| ((i * 13 % 29) as f32) / 16.0 - 0.9).collect();
                let before: Vec<f32> = (0..(n - 1) * out_stride + STRIP).map(|i| i as f32).collect();
                let all = Isa::all();
                let found: Vec<Vec<f32>> = all
                    .iter()
                    .map(|&isa| {
                        let mut out = before.clone();
                        multiply(isa, &w, &x, x_stride, &mut out, out_stride);
                        out
                    })
                    .collect();
                let plain = &found[all.len() - 1];
                for (isa, found) in all.iter().zip(&found) {
                    for (i, (f, p)) in found.iter().zip(plain).enumerate() {
                        let is_sum = i % out_stride < STRIP;
                        assert!(
                            if is_sum { (f - p).abs() < 1e-4 * depth as f32 / 16.0 } else { f == p },
                            "{isa:?} {depth} {n} {i}: {f} {p}"
                        );
                    }
                }
                let exact = all.len() - usize::from(!FUSED);
                assert!(found[..exact].iter().all(|f| *f == found[0]), "{depth} {n}");
            }
        }
    }
}
