//! Multiplies striped codes by the rounded activations of a few tokens. Weights go from memory straight to the registers that multiply them: no strip
//! is arranged in memory first.

use super::RoundedRows;
use super::strip::{Rows, Strip};

/// The largest number of tokens.
#[cfg(all(target_arch = "x86_64", has_avx512))]
const MOST_TOKENS: usize = 4;

/// A function `(rows, first, columns, strip, x, out, out_stride)` that does what an [`Interleave`](super::Interleave) function and
/// [`multiply`](super::multiply) do, with the same bits. Returns false, and does nothing, if the rows are not striped, for more than four tokens,
/// and for instructions without such a loop.
pub type MultiplyFew = fn(&Rows<'_>, usize, usize, &mut Strip, &RoundedRows, &mut [f32], usize) -> bool;

#[cfg(not(all(target_arch = "x86_64", has_avx512)))]
pub fn few_of<C, S>() -> Option<MultiplyFew> {
    None
}

#[cfg(all(target_arch = "x86_64", has_avx512))]
pub use x86::few_of;

#[cfg(all(target_arch = "x86_64", has_avx512))]
#[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
mod x86 {
    use super::super::{BLOCK, Dots, HALF, LANES_PER_BLOCK, ROWS, stored, strip, tile};
    use super::{MOST_TOKENS, MultiplyFew, RoundedRows, Strip};
    use crate::quant::block_scales::BlockScales;
    use crate::quant::units::Codes;
    use crate::quant::{PAD, isa};
    use std::arch::x86_64::*;

    /// Returns the function for the format whose units `C` describes, or `None` if the format has no striped codes.
    pub fn few_of<C: Codes, S: BlockScales>() -> Option<MultiplyFew> {
        if !C::IS_WHOLE {
            return None;
        }
        Some(|rows, first, columns, strip, x, out, out_stride| {
            if !rows.is_striped || !(1..=MOST_TOKENS).contains(&x.n) || strip.dots() != Dots::Avx512Vnni {
                return false;
            }
            strip::fill::<C, S>(rows, first, columns, strip, false);
            tile::check(strip, x);
            assert!(out_stride >= ROWS && out.len() >= (x.n - 1) * out_stride + ROWS);
            let codes = &rows.codes[stored::bytes_of(first / PAD, C::BYTES)..];
            assert!(codes.len() >= stored::bytes_of(strip.blocks * (BLOCK / PAD), C::BYTES));
            // SAFETY: the CPU has the instructions, and the slices hold all numbers, as checked here.
            unsafe { multiply::<C>(strip, codes, x, out, out_stride) };
            true
        })
    }

    // SAFETY of all functions: the caller has checked the CPU's features and the lengths of the slices.

    /// The number of bytes in a register.
    const REGISTER: usize = 64;
    /// Codes are prefetched this many bytes ahead.
    const AHEAD: usize = 4 << 10;

    unsafe fn multiply<C: Codes>(strip: &Strip, codes: &[u8], x: &RoundedRows, out: &mut [f32], out_stride: usize) {
        let (codes, out) = (codes.as_ptr(), out.as_mut_ptr());
        unsafe {
            match x.n {
                1 => tile::<C, 1>(strip, codes, x, out, out_stride),
                2 => tile::<C, 2>(strip, codes, x, out, out_stride),
                3 => tile::<C, 3>(strip, codes, x, out, out_stride),
                _ => tile::<C, 4>(strip, codes, x, out, out_stride),
            }
        }
    }

    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,fma")]
    unsafe fn tile<C: Codes, const T: usize>(strip: &Strip, codes: *const u8, x: &RoundedRows, out: *mut f32, out_stride: usize) {
        unsafe {
            let mut sums = [_mm512_setzero_ps(); T];
            for (t, sum) in sums.iter_mut().enumerate() {
                *sum = _mm512_loadu_ps(out.add(t * out_stride));
            }
            let parts = if C::SUB == HALF { 2 } else { 1 };
            let lanes = LANES_PER_BLOCK / parts;
            let of_parts = if C::SUB == HALF { &x.halves } else { &x.whole };
            for b in 0..strip.blocks {
                let block = codes.add(b * REGISTER * C::BYTES);
                isa::prefetch(block.wrapping_add(AHEAD), REGISTER * C::BYTES);
                let mut w = [_mm512_setzero_si512(); LANES_PER_BLOCK];
                for (v, w) in w.iter_mut().enumerate() {
                    let [low, high] = C::PLANES;
                    *w = part(block, low, v, 0);
                    if high > 0 {
                        *w = _mm512_or_si512(*w, part(block.add(REGISTER * low), high, v, low));
                    }
                    *w = C::unsigned(*w);
                }
                for p in 0..parts {
                    let sub = (b * BLOCK + p * HALF) / strip.sub * ROWS;
                    let factor = _mm512_loadu_ps(strip.factors.as_ptr().cast::<f32>().add(sub));
                    for (t, sum) in sums.iter_mut().enumerate() {
                        let at = t * x.blocks + strip.first_block + b;
                        let q = x.split.as_ptr().add(at * BLOCK).cast::<i32>().add(p * lanes);
                        // `unsigned` is a sum of activations times −128, so the shift divides it exactly.
                        let mut even = _mm512_set1_epi32((*of_parts.unsigned.get_unchecked(parts * at + p) >> 7) * C::OFFSET);
                        let mut odd = _mm512_setzero_si512();
                        for j in (0..lanes).step_by(2) {
                            even = _mm512_dpbusd_epi32(even, w[p * lanes + j], _mm512_set1_epi32(q.add(j).read_unaligned()));
                            odd = _mm512_dpbusd_epi32(odd, w[p * lanes + j + 1], _mm512_set1_epi32(q.add(j + 1).read_unaligned()));
                        }
                        let whole = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));
                        let scale = _mm512_mul_ps(factor, _mm512_set1_ps(*x.scales.get_unchecked(at)));
                        *sum = _mm512_fmadd_ps(scale, whole, *sum);
                        if C::HAS_MINIMA {
                            let minimum = _mm512_loadu_ps(strip.minima.as_ptr().cast::<f32>().add(sub));
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

    /// Loads the parts of `bits` bits of vector `v` ([`stored`](super::stored)), moved to bit `to` of each byte.
    #[inline(always)]
    unsafe fn part(from: *const u8, bits: usize, v: usize, to: usize) -> __m512i {
        let per_byte = 8 / bits;
        unsafe {
            let bytes = _mm512_loadu_si512(from.add(v / per_byte * REGISTER).cast());
            if bits == 8 {
                return bytes;
            }
            let from = v % per_byte * bits;
            let moved = match to >= from {
                true => _mm512_sll_epi16(bytes, _mm_cvtsi32_si128((to - from) as i32)),
                false => _mm512_srl_epi16(bytes, _mm_cvtsi32_si128((from - to) as i32)),
            };
            _mm512_and_si512(moved, _mm512_set1_epi8((((1 << bits) - 1) << to) as i8))
        }
    }
}
