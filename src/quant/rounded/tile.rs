//! The inner loop of products of whole numbers: a strip of rows times rounded activations.

use super::super::block_scales::{DEPTH, MOST};
#[cfg(any(target_arch = "x86_64", has_neon))]
use super::LANES_PER_BLOCK;
use super::strip::{ROWS, Strip};
use super::{BLOCK, Dots, HALF, PER_LANE, RoundedRows};

/// The sums of a strip's rows for one token.
type RowSums = [f32; ROWS];

/// Adds the products of a strip and rows of activations to the [`ROWS`] numbers of each token in `out`. Token t has the numbers from
/// `t * out_stride` on.
pub fn multiply(strip: &Strip, x: &RoundedRows, out: &mut [f32], out_stride: usize) {
    check(strip, x);
    assert!(out_stride >= ROWS && (x.n == 0 || out.len() >= (x.n - 1) * out_stride + ROWS));
    match strip.dots {
        // SAFETY: the CPU has the instructions, and the slices hold all numbers, as checked here.
        #[cfg(all(target_arch = "x86_64", has_avx512))]
        Dots::Avx512Vnni => unsafe { x86::multiply512(strip, x, out, out_stride) },
        // SAFETY: as above.
        #[cfg(all(target_arch = "x86_64", has_avx512))]
        Dots::AvxVnni => unsafe { x86::multiply256_vnni(strip, x, out, out_stride) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Dots::Avx2 => unsafe { x86::multiply256(strip, x, out, out_stride) },
        // SAFETY: as above.
        #[cfg(has_neon)]
        Dots::Neon => unsafe { arm::multiply(strip, x, out, out_stride) },
        Dots::Plain => plain(strip, x, out, out_stride),
    }
}

/// Panics if an inner loop would read beyond the activations or the strip.
pub(super) fn check(strip: &Strip, x: &RoundedRows) {
    assert!(strip.blocks <= DEPTH / BLOCK && strip.first_block + strip.blocks <= x.blocks);
    assert!(strip.sub.is_multiple_of(HALF) && strip.blocks * BLOCK <= MOST * strip.sub);
    let n = x.n * x.blocks;
    assert!(x.codes.len() == n * BLOCK && x.split.len() == n * BLOCK && x.scales.len() == n);
    assert!(x.whole.unsigned.len() == n && x.whole.scaled.len() == n);
    assert!(x.halves.unsigned.len() == 2 * n && x.halves.scaled.len() == 2 * n);
}

/// The loop in plain arithmetic, the reference implementation for the other loops.
fn plain(strip: &Strip, x: &RoundedRows, out: &mut [f32], out_stride: usize) {
    let (part, weights) = (strip.sub.min(BLOCK), strip.codes());
    let (factors, minima): (&[f32], &[f32]) = (bytemuck::cast_slice(&strip.factors), bytemuck::cast_slice(&strip.minima));
    for (t, out) in (0..x.n).zip(out.chunks_mut(out_stride)) {
        let out: &mut RowSums = out.first_chunk_mut().expect("room for the rows of a strip");
        for b in 0..strip.blocks {
            let at = t * x.blocks + strip.first_block + b;
            for p in 0..BLOCK / part {
                let codes = &x.in_order(strip.is_split)[at * BLOCK + p * part..][..part];
                let column = b * BLOCK + p * part;
                let sums = if part == BLOCK { x.whole.scaled[at] } else { x.halves.scaled[2 * at + p] };
                for (i, out) in out.iter_mut().enumerate() {
                    let weight = |c: usize| weights[((column + c) / PER_LANE * ROWS + i) * PER_LANE + c % PER_LANE] as i8;
                    let sum: i32 = codes.iter().enumerate().map(|(c, q)| i32::from(weight(c)) * i32::from(*q)).sum();
                    let at_sub = column / strip.sub * ROWS + i;
                    *out = (factors[at_sub] * x.scales[at]).mul_add(sum as f32, *out);
                    if strip.has_minima {
                        *out = (-minima[at_sub]).mul_add(sums, *out);
                    }
                }
            }
        }
    }
}

/// Calls `$tile` with the constants of the strip and some tokens at a time. `$t` are the possible numbers of tokens, from 1 on.
#[cfg(any(target_arch = "x86_64", has_neon))]
macro_rules! tiles {
    ($tile:ident, [$($t:literal)*], $strip:expr, $x:expr, $out:expr, $out_stride:expr) => {{
        let most = [$($t),*].len();
        let (n, mut first) = ($x.n, 0);
        let tiles = n.div_ceil(most);
        for i in 0..tiles {
            let end = (i + 1) * n / tiles;
            let out = $out.as_mut_ptr().add(first * $out_stride);
            match (end - first, $strip.sub == HALF, $strip.has_minima) {
                $(
                    ($t, false, false) => $tile::<$t, false, false>($strip, $x, first, out, $out_stride),
                    ($t, false, true) => $tile::<$t, false, true>($strip, $x, first, out, $out_stride),
                    ($t, true, false) => $tile::<$t, true, false>($strip, $x, first, out, $out_stride),
                    ($t, true, true) => $tile::<$t, true, true>($strip, $x, first, out, $out_stride),
                )*
                (n, ..) => unreachable!("{n} tokens"),
            }
            first = end;
        }
    }};
}

#[cfg(target_arch = "x86_64")]
#[allow(clippy::incompatible_msrv, reason = "AVX-512 and VNNI are compiled only if the standard library has them")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    // SAFETY of all functions: the caller has checked the CPU's features and the lengths of the slices.

    /// Multiplies a strip by `T` tokens. `HALVES` is true if each half of a block has a factor.
    #[cfg(has_avx512)]
    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
    unsafe fn tile512<const T: usize, const HALVES: bool, const MINIMA: bool>(
        strip: &Strip,
        x: &RoundedRows,
        token: usize,
        out: *mut f32,
        out_stride: usize,
    ) {
        unsafe {
            let mut sums = [_mm512_setzero_ps(); T];
            for (t, sum) in sums.iter_mut().enumerate() {
                *sum = _mm512_loadu_ps(out.add(t * out_stride));
            }
            let parts = if HALVES { 2 } else { 1 };
            let lanes = LANES_PER_BLOCK / parts;
            let q = x.in_order(strip.is_split).as_ptr();
            let of_parts = if HALVES { &x.halves } else { &x.whole };
            for b in 0..strip.blocks {
                let mut w = [_mm512_setzero_si512(); LANES_PER_BLOCK];
                for (j, w) in w.iter_mut().enumerate() {
                    *w = _mm512_loadu_si512(strip.codes().as_ptr().add((b * LANES_PER_BLOCK + j) * ROWS * PER_LANE).cast());
                }
                for p in 0..parts {
                    let sub = (b * BLOCK + p * HALF) / strip.sub * ROWS;
                    let factor = _mm512_loadu_ps(strip.factors.as_ptr().cast::<f32>().add(sub));
                    let minimum = if MINIMA { _mm512_loadu_ps(strip.minima.as_ptr().cast::<f32>().add(sub)) } else { _mm512_setzero_ps() };
                    for (t, sum) in sums.iter_mut().enumerate() {
                        let at = (token + t) * x.blocks + strip.first_block + b;
                        let q = q.add(at * BLOCK).cast::<i32>().add(p * lanes);
                        let mut even = _mm512_set1_epi32(*of_parts.unsigned.get_unchecked(parts * at + p));
                        let mut odd = _mm512_setzero_si512();
                        for j in (0..lanes).step_by(2) {
                            even = _mm512_dpbusd_epi32(even, w[p * lanes + j], _mm512_set1_epi32(q.add(j).read_unaligned()));
                            odd = _mm512_dpbusd_epi32(odd, w[p * lanes + j + 1], _mm512_set1_epi32(q.add(j + 1).read_unaligned()));
                        }
                        let whole = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));
                        let scale = _mm512_mul_ps(factor, _mm512_set1_ps(*x.scales.get_unchecked(at)));
                        *sum = _mm512_fmadd_ps(scale, whole, *sum);
                        if MINIMA {
                            *sum = _mm512_fnmadd_ps(minimum, _mm512_set1_ps(*of_parts.scaled.get_unchecked(parts * at + p)), *sum);
                        }
                    }
                }
            }
            for (t, sum) in sums.into_iter().enumerate() {
                _mm512_storeu_ps(out.add(t * out_stride), sum);
            }
        }
    }

    #[cfg(has_avx512)]
    pub unsafe fn multiply512(strip: &Strip, x: &RoundedRows, out: &mut [f32], out_stride: usize) {
        unsafe { tiles!(tile512, [1 2 3 4 5 6 7 8 9 10 11 12], strip, x, out, out_stride) }
    }

    /// Adds the products of four columns to each of eight lanes. With `VNNI`, `w` has numbers from 0 to 255, otherwise numbers in two's complement.
    #[inline(always)]
    unsafe fn dot<const VNNI: bool>(sum: __m256i, w: __m256i, q: __m256i) -> __m256i {
        unsafe {
            #[cfg(has_avx512)]
            if VNNI {
                return _mm256_dpbusd_avx_epi32(sum, w, q);
            }
            // The magnitudes of the weights times the activations with the signs of the weights. Two products, each at most 128 · 127, fit 16 bits.
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
    }

    /// Multiplies each half of a strip's rows by `T` tokens.
    #[inline(always)]
    unsafe fn tile<const VNNI: bool, const T: usize, const HALVES: bool, const MINIMA: bool>(
        strip: &Strip,
        x: &RoundedRows,
        token: usize,
        out: *mut f32,
        out_stride: usize,
    ) {
        const LANES: usize = 8;
        unsafe {
            let parts = if HALVES { 2 } else { 1 };
            let lanes = LANES_PER_BLOCK / parts;
            let q = x.in_order(strip.is_split).as_ptr();
            let of_parts = if HALVES { &x.halves } else { &x.whole };
            for row in (0..ROWS).step_by(LANES) {
                let mut sums = [_mm256_setzero_ps(); T];
                for (t, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm256_loadu_ps(out.add(t * out_stride + row));
                }
                for b in 0..strip.blocks {
                    for p in 0..parts {
                        let mut whole = [_mm256_setzero_si256(); T];
                        for j in 0..lanes {
                            let lane = b * LANES_PER_BLOCK + p * lanes + j;
                            let w = _mm256_loadu_si256(strip.codes().as_ptr().add((lane * ROWS + row) * PER_LANE).cast());
                            for (t, whole) in whole.iter_mut().enumerate() {
                                let at = (token + t) * x.blocks + strip.first_block + b;
                                let q = q.add(at * BLOCK).cast::<i32>().add(p * lanes + j).read_unaligned();
                                *whole = dot::<VNNI>(*whole, w, _mm256_set1_epi32(q));
                            }
                        }
                        let sub = (b * BLOCK + p * HALF) / strip.sub * ROWS + row;
                        let factor = _mm256_loadu_ps(strip.factors.as_ptr().cast::<f32>().add(sub));
                        for (t, sum) in sums.iter_mut().enumerate() {
                            let at = (token + t) * x.blocks + strip.first_block + b;
                            let mut whole = whole[t];
                            if VNNI {
                                whole = _mm256_add_epi32(whole, _mm256_set1_epi32(*of_parts.unsigned.get_unchecked(parts * at + p)));
                            }
                            let scale = _mm256_mul_ps(factor, _mm256_set1_ps(*x.scales.get_unchecked(at)));
                            *sum = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(whole), *sum);
                            if MINIMA {
                                let minimum = _mm256_loadu_ps(strip.minima.as_ptr().cast::<f32>().add(sub));
                                let scaled = _mm256_set1_ps(*of_parts.scaled.get_unchecked(parts * at + p));
                                *sum = _mm256_fnmadd_ps(minimum, scaled, *sum);
                            }
                        }
                    }
                }
                for (t, sum) in sums.into_iter().enumerate() {
                    _mm256_storeu_ps(out.add(t * out_stride + row), sum);
                }
            }
        }
    }

    #[inline(never)]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn tile256<const T: usize, const HALVES: bool, const MINIMA: bool>(
        strip: &Strip,
        x: &RoundedRows,
        token: usize,
        out: *mut f32,
        out_stride: usize,
    ) {
        unsafe { tile::<false, T, HALVES, MINIMA>(strip, x, token, out, out_stride) }
    }

    #[cfg(has_avx512)]
    #[inline(never)]
    #[target_feature(enable = "avx2,fma,avxvnni")]
    unsafe fn tile256_vnni<const T: usize, const HALVES: bool, const MINIMA: bool>(
        strip: &Strip,
        x: &RoundedRows,
        token: usize,
        out: *mut f32,
        out_stride: usize,
    ) {
        unsafe { tile::<true, T, HALVES, MINIMA>(strip, x, token, out, out_stride) }
    }

    pub unsafe fn multiply256(strip: &Strip, x: &RoundedRows, out: &mut [f32], out_stride: usize) {
        unsafe { tiles!(tile256, [1 2 3 4], strip, x, out, out_stride) }
    }

    #[cfg(has_avx512)]
    pub unsafe fn multiply256_vnni(strip: &Strip, x: &RoundedRows, out: &mut [f32], out_stride: usize) {
        unsafe { tiles!(tile256_vnni, [1 2 3 4], strip, x, out, out_stride) }
    }
}

#[cfg(has_neon)]
mod arm {
    use super::*;
    use std::arch::aarch64::*;

    // SAFETY of all functions: the caller has checked the CPU's features and the lengths of the slices.

    /// Adds the products of four columns to each of four lanes: lane i of `w` times lane `LANE` of `q`.
    #[inline(always)]
    unsafe fn dot<const LANE: i32>(mut sum: int32x4_t, w: int8x16_t, q: int8x16_t) -> int32x4_t {
        // The standard library's function is not stable in all supported versions.
        unsafe {
            std::arch::asm!(".arch_extension dotprod", "sdot {sum:v}.4s, {w:v}.16b, {q:v}.4b[{lane}]", sum = inout(vreg) sum, w = in(vreg) w, q = in(vreg) q,
                lane = const LANE, options(pure, nomem, nostack, preserves_flags));
        }
        sum
    }

    /// Multiplies a strip by `T` tokens.
    #[inline(never)]
    unsafe fn tile<const T: usize, const HALVES: bool, const MINIMA: bool>(
        strip: &Strip,
        x: &RoundedRows,
        token: usize,
        out: *mut f32,
        out_stride: usize,
    ) {
        const LANES: usize = 4;
        unsafe {
            let q = x.in_order(strip.is_split).as_ptr();
            let of_parts = if HALVES { &x.halves } else { &x.whole };
            for row in (0..ROWS).step_by(LANES) {
                let mut sums: [float32x4_t; T] = std::array::from_fn(|t| vld1q_f32(out.add(t * out_stride + row)));
                for b in 0..strip.blocks {
                    let w: [int8x16_t; LANES_PER_BLOCK] = std::array::from_fn(|j| {
                        vld1q_s8(strip.codes().as_ptr().add(((b * LANES_PER_BLOCK + j) * ROWS + row) * PER_LANE).cast())
                    });
                    for (t, sum) in sums.iter_mut().enumerate() {
                        let at = (token + t) * x.blocks + strip.first_block + b;
                        let q = q.add(at * BLOCK);
                        let mut halves = [vdupq_n_s32(0); 2];
                        for (h, half) in halves.iter_mut().enumerate() {
                            let q = vld1q_s8(q.add(h * HALF));
                            *half = dot::<0>(*half, w[4 * h], q);
                            *half = dot::<1>(*half, w[4 * h + 1], q);
                            *half = dot::<2>(*half, w[4 * h + 2], q);
                            *half = dot::<3>(*half, w[4 * h + 3], q);
                        }
                        let parts = if HALVES { 2 } else { 1 };
                        for p in 0..parts {
                            let whole = if HALVES { halves[p] } else { vaddq_s32(halves[0], halves[1]) };
                            let sub = (b * BLOCK + p * HALF) / strip.sub * ROWS + row;
                            let scale = vmulq_n_f32(vld1q_f32(strip.factors.as_ptr().cast::<f32>().add(sub)), *x.scales.get_unchecked(at));
                            *sum = vfmaq_f32(*sum, scale, vcvtq_f32_s32(whole));
                            if MINIMA {
                                let minimum = vld1q_f32(strip.minima.as_ptr().cast::<f32>().add(sub));
                                *sum = vfmsq_f32(*sum, minimum, vdupq_n_f32(*of_parts.scaled.get_unchecked(parts * at + p)));
                            }
                        }
                    }
                }
                for (t, sum) in sums.into_iter().enumerate() {
                    vst1q_f32(out.add(t * out_stride + row), sum);
                }
            }
        }
    }

    pub unsafe fn multiply(strip: &Strip, x: &RoundedRows, out: &mut [f32], out_stride: usize) {
        unsafe { tiles!(tile, [1 2 3 4 5 6], strip, x, out, out_stride) }
    }
}
