//! The weight format `q8_0`: the block type Q8_0 of GGUF files. Eight bits per weight, and one scale per 32 weights.
//!
//! A code c has the value c − 128, a whole number from −128 to 127. A weight is this value times the block's scale.

use super::units::Codes;
use super::{EncodedRows, Format, Loops, PAD, Repack, Scaling};
use crate::error::Result;

/// The weight format `q8_0`.
pub struct Q8_0;

/// The number of weights per block, in this format and in the other types of small blocks.
pub const BLOCK: usize = 32;
/// The value of a code is the code minus this number.
const ZERO: f32 = 128.0;
const LARGEST: f32 = 127.0;

impl Codes for Q8_0 {
    const BYTES: usize = PAD;

    #[inline(always)]
    fn eight(unit: &[u8]) -> [f32; PAD] {
        std::array::from_fn(|i| f32::from(unit[i]) - ZERO)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(unit: *const u8) -> std::arch::x86_64::__m256 {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features and a whole unit.
        unsafe {
            let codes = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(unit.cast())));
            _mm256_sub_ps(codes, _mm256_set1_ps(ZERO))
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
            _mm512_sub_ps(codes, _mm512_set1_ps(ZERO))
        }
    }

    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn load_neon(units: *const u8) -> super::units::neon::Neon {
        use std::arch::aarch64::*;
        // SAFETY: the caller guarantees two whole units. The change of the highest bit subtracts 128.
        super::units::neon::whole(unsafe { vreinterpretq_s8_u8(veorq_u8(vld1q_u8(units), vdupq_n_u8(0x80))) })
    }
}

impl Format for Q8_0 {
    fn name(&self) -> &'static str {
        "q8_0"
    }

    fn about(&self) -> &'static str {
        "GGUF's 8 bits"
    }

    fn bits(&self) -> usize {
        8
    }

    fn scaling(&self) -> Scaling {
        Scaling::Blocks
    }

    fn block(&self) -> usize {
        BLOCK
    }

    fn largest(&self) -> f32 {
        LARGEST
    }

    fn scale(&self, numbers: &[f32]) -> f32 {
        numbers.iter().fold(0f32, |most, x| most.max(x.abs())) / LARGEST
    }

    fn encode(&self, row: &[f32], out: &mut Vec<u8>) -> Result<()> {
        // Rounding to f16 can make the scale slightly too small for the largest number, so the code is clamped.
        out.extend(row.iter().map(|x| (x.round().clamp(-ZERO, LARGEST) + ZERO) as u8));
        Ok(())
    }

    fn loops(&self) -> Loops {
        Loops::of::<Q8_0>()
    }

    /// A block is a scale, then 32 signed bytes.
    fn repack(&self) -> Option<Repack> {
        let one = |block: &[u8], out: &mut EncodedRows| {
            out.scales.push(super::half(block));
            out.codes.extend(block[2..].iter().map(|q| q ^ 0x80));
        };
        Some(Repack { block_bytes: 34, one })
    }
}
