//! The weight format `i4`: four bits per weight, and one scale per 64 weights. A scale may be negative.
//!
//! A code c, from 0 to 15, has the value (c − 8) / 8, from −1 to 7/8. The encoder tries several scales for a block. Each scale maps the weight
//! with the largest magnitude to a value near −1 or 1. The encoder chooses the scale with the smallest squared error.

use super::block_scales::OneScale;
use super::units::Codes;
use super::{Format, Loops, PAD, Scaling, WEIGHTS_PER_BLOCK, nibbles};
use crate::error::Result;

/// The weight format `i4`.
pub struct I4;

/// A code c has the value (c − ONE) / ONE.
const ONE: f32 = 8.0;

/// The values of the codes 0 to 15.
#[cfg(all(target_arch = "x86_64", has_avx512))]
const TABLE: [f32; 16] = {
    let (mut table, mut c) = ([0.0; 16], 0);
    while c < 16 {
        table[c] = (c as f32 - ONE) / ONE;
        c += 1;
    }
    table
};

impl Codes for I4 {
    const BYTES: usize = nibbles::BYTES;

    const SUB: usize = WEIGHTS_PER_BLOCK;

    const STEP: f32 = 1.0 / ONE;

    const NIBBLES: bool = true;

    const PLANES: [usize; 2] = [4, 0];

    const OFFSET: i32 = ONE as i32;

    const HAS_COLUMNS: bool = true;

    #[inline(always)]
    fn eight(unit: &[u8]) -> [f32; PAD] {
        let word = nibbles::word(unit);
        std::array::from_fn(|i| (nibbles::code(word, i) as f32 - ONE) / ONE)
    }

    #[inline(always)]
    fn raw(unit: &[u8]) -> [u8; PAD] {
        let word = nibbles::word(unit);
        std::array::from_fn(|i| nibbles::code(word, i) as u8)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(unit: *const u8) -> std::arch::x86_64::__m256 {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features and a whole unit.
        unsafe { _mm256_fmadd_ps(_mm256_cvtepi32_ps(nibbles::lanes(unit)), _mm256_set1_ps(1.0 / ONE), _mm256_set1_ps(-1.0)) }
    }

    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    #[inline(always)]
    unsafe fn load_two(units: *const u8) -> std::arch::x86_64::__m512 {
        // SAFETY: the caller guarantees the CPU's features and two whole units.
        unsafe { nibbles::look_up_two(units, std::arch::x86_64::_mm512_loadu_ps(TABLE.as_ptr())) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn values(codes: std::arch::x86_64::__m256i) -> std::arch::x86_64::__m256i {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features.
        unsafe { _mm256_sub_epi8(codes, _mm256_set1_epi8(ONE as i8)) }
    }

    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn signed_neon(units: *const u8) -> std::arch::aarch64::int8x16_t {
        use std::arch::aarch64::*;
        // SAFETY: the caller guarantees two whole units.
        unsafe { vsubq_s8(vreinterpretq_s8_u8(nibbles::bytes(units)), vdupq_n_s8(ONE as i8)) }
    }

    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn load_neon(units: *const u8) -> super::units::neon::Neon {
        // SAFETY: the caller guarantees two whole units.
        super::units::neon::fractions::<3>(unsafe { Self::signed_neon(units) })
    }

    #[cfg(has_simd128)]
    #[inline(always)]
    unsafe fn load_simd128(units: *const u8) -> super::units::simd128::Simd128 {
        use std::arch::wasm32::*;
        // SAFETY: the caller guarantees two whole units.
        super::units::simd128::fractions::<8>(i8x16_sub(unsafe { nibbles::bytes_simd128(units) }, i8x16_splat(ONE as i8)))
    }
}

/// Returns c − 8, a whole number from −8 to 7, where c is the code whose value is nearest to `x`.
fn nearest(x: f32) -> f32 {
    (x * ONE).round().clamp(-ONE, ONE - 1.0)
}

impl Format for I4 {
    fn name(&self) -> &'static str {
        "i4"
    }

    fn about(&self) -> &'static str {
        "4 bits"
    }

    fn bits(&self) -> usize {
        4
    }

    fn scaling(&self) -> Scaling {
        Scaling::Blocks
    }

    fn largest(&self) -> f32 {
        (ONE - 1.0) / ONE
    }

    /// Tries one preliminary scale per entry of `TRIED`: it maps the weight with the largest magnitude to entry / 8, and every weight x to the
    /// nearest value q of a code. The best scale for these q is Σ xq / Σ q², with the squared error Σ x² − (Σ xq)² / Σ q². Returns the scale with the
    /// smallest error, or 0 if all weights are 0.
    /// With an importance w, the sums are Σ w xq, Σ w q² and Σ w x².
    fn scale(&self, numbers: &[f32], importance: Option<&[f32]>) -> f32 {
        const TRIED: [f32; 9] = [-9.0, -8.5, -8.0, -7.5, -7.0, 7.0, 7.25, 7.5, 8.0];
        let most = numbers.iter().copied().fold(0f32, |most, x| if x.abs() > most.abs() { x } else { most });
        let (mut best, mut taken_off) = (0.0, 0.0);
        for code in TRIED {
            let inverse = code / ONE / most;
            let (mut xq, mut qq) = (0f32, 0f32);
            for (i, &x) in numbers.iter().enumerate() {
                let w = importance.map_or(1.0, |importance| importance[i]);
                let q = nearest(x * inverse) / ONE;
                xq += w * x * q;
                qq += w * q * q;
            }
            if xq * xq > taken_off * qq {
                (best, taken_off) = (xq / qq, xq * xq / qq);
            }
        }
        best
    }

    fn encode(&self, row: &[f32], out: &mut Vec<u8>) -> Result<()> {
        nibbles::pack(row.iter().map(|&x| (nearest(x) + ONE) as u32), out);
        Ok(())
    }

    fn loops(&self) -> Loops {
        Loops::of::<I4, OneScale<WEIGHTS_PER_BLOCK>>()
    }
}
