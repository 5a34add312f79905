//! The weight format `i8`: eight bits per weight, symmetric around 0, and one scale per 64 weights. The loss is small.
//!
//! A code c has the value (c − 128) / 128, from −127/128 to 127/128. The scale of a block is its largest magnitude times 128/127. Values are
//! fractions and not whole numbers, so that a scale is about as large as the weights of its block, and fits f16.

use super::block_scales::OneScale;
use super::units::Codes;
use super::{Format, Loops, PAD, Scaling, WEIGHTS_PER_BLOCK};
use crate::error::Result;

/// The weight format `i8`.
pub struct I8;

const ONE: f32 = 128.0;
const LARGEST: f32 = 127.0;

impl Codes for I8 {
    const BYTES: usize = PAD;

    const SUB: usize = WEIGHTS_PER_BLOCK;

    const STEP: f32 = 1.0 / ONE;

    const PLANES: [usize; 2] = [8, 0];

    const OFFSET: i32 = ONE as i32;

    const HAS_COLUMNS: bool = true;

    #[inline(always)]
    fn eight(unit: &[u8]) -> [f32; PAD] {
        std::array::from_fn(|i| (f32::from(unit[i]) - ONE) / ONE)
    }

    #[inline(always)]
    fn raw(unit: &[u8]) -> [u8; PAD] {
        std::array::from_fn(|i| unit[i])
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn values(codes: std::arch::x86_64::__m256i) -> std::arch::x86_64::__m256i {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features. The change of the highest bit subtracts 128.
        unsafe { _mm256_xor_si256(codes, _mm256_set1_epi8(i8::MIN)) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(unit: *const u8) -> std::arch::x86_64::__m256 {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features and a whole unit.
        unsafe {
            let codes = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(unit.cast())));
            _mm256_fmadd_ps(codes, _mm256_set1_ps(1.0 / ONE), _mm256_set1_ps(-1.0))
        }
    }

    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    #[inline(always)]
    unsafe fn load_two(units: *const u8) -> std::arch::x86_64::__m512 {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features and two whole units.
        unsafe {
            let codes = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(units.cast())));
            _mm512_fmadd_ps(codes, _mm512_set1_ps(1.0 / ONE), _mm512_set1_ps(-1.0))
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn signed(units: *const u8) -> std::arch::x86_64::__m256i {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features and four whole units. The change of the highest bit subtracts 128.
        unsafe { _mm256_xor_si256(_mm256_loadu_si256(units.cast()), _mm256_set1_epi8(i8::MIN)) }
    }

    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn signed_neon(units: *const u8) -> std::arch::aarch64::int8x16_t {
        use std::arch::aarch64::*;
        // SAFETY: the caller guarantees two whole units. The change of the highest bit subtracts 128.
        unsafe { vreinterpretq_s8_u8(veorq_u8(vld1q_u8(units), vdupq_n_u8(0x80))) }
    }

    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn load_neon(units: *const u8) -> super::units::neon::Neon {
        // SAFETY: the caller guarantees two whole units.
        super::units::neon::fractions::<7>(unsafe { Self::signed_neon(units) })
    }

    #[cfg(has_simd128)]
    #[inline(always)]
    unsafe fn load_simd128(units: *const u8) -> super::units::simd128::Simd128 {
        use std::arch::wasm32::*;
        // SAFETY: the caller guarantees two whole units. The change of the highest bit subtracts 128.
        super::units::simd128::fractions::<128>(v128_xor(unsafe { v128_load(units.cast()) }, i8x16_splat(i8::MIN)))
    }
}

impl Format for I8 {
    fn name(&self) -> &'static str {
        "i8"
    }

    fn about(&self) -> &'static str {
        "8 bits, nearly lossless"
    }

    fn bits(&self) -> usize {
        8
    }

    fn scaling(&self) -> Scaling {
        Scaling::Blocks
    }

    fn largest(&self) -> f32 {
        LARGEST / ONE
    }

    fn scale(&self, numbers: &[f32], _importance: Option<&[f32]>) -> f32 {
        numbers.iter().fold(0f32, |most, x| most.max(x.abs())) * (ONE / LARGEST)
    }

    fn encode(&self, row: &[f32], out: &mut Vec<u8>) -> Result<()> {
        // Rounding to f16 can make the scale slightly too small for the largest number, so the code is clamped.
        out.extend(row.iter().map(|x| ((x * ONE).round().clamp(-LARGEST, LARGEST) + ONE) as u8));
        Ok(())
    }

    fn loops(&self) -> Loops {
        Loops::of::<I8, OneScale<WEIGHTS_PER_BLOCK>>()
    }
}
