//! The weight format `q4_0`: the block type Q4_0 of GGUF files. Four bits per weight, and one scale per 32 weights. A scale may be negative.
//!
//! A code c has the value c − 8, a whole number from −8 to 7. A weight is this value times the block's scale.

use super::i4::I4;
use super::q8_0::BLOCK;
use super::units::Codes;
use super::{EncodedRows, Format, Loops, PAD, Repack, Scaling, nibbles};
use crate::error::Result;

/// The weight format `q4_0`.
pub struct Q4_0;

/// The value of a code is the code minus this number.
const ZERO: f32 = 8.0;

/// The values of the codes 0 to 15.
#[cfg(all(target_arch = "x86_64", has_avx512))]
const TABLE: [f32; 16] = {
    let (mut table, mut c) = ([0.0; 16], 0);
    while c < 16 {
        table[c] = c as f32 - ZERO;
        c += 1;
    }
    table
};

impl Codes for Q4_0 {
    const BYTES: usize = nibbles::BYTES;

    #[inline(always)]
    fn eight(unit: &[u8]) -> [f32; PAD] {
        let word = nibbles::word(unit);
        std::array::from_fn(|i| nibbles::code(word, i) as f32 - ZERO)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(unit: *const u8) -> std::arch::x86_64::__m256 {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features and a whole unit.
        unsafe { _mm256_sub_ps(_mm256_cvtepi32_ps(nibbles::lanes(unit)), _mm256_set1_ps(ZERO)) }
    }

    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    #[inline(always)]
    unsafe fn load_two(units: *const u8) -> std::arch::x86_64::__m512 {
        // SAFETY: the caller guarantees the CPU's features and two whole units.
        unsafe { nibbles::look_up_two(units, std::arch::x86_64::_mm512_loadu_ps(TABLE.as_ptr())) }
    }

    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn load_neon(units: *const u8) -> super::units::neon::Neon {
        use std::arch::aarch64::*;
        // SAFETY: the caller guarantees two whole units.
        super::units::neon::whole(unsafe { vsubq_s8(vreinterpretq_s8_u8(nibbles::bytes(units)), vdupq_n_s8(8)) })
    }

    /// Multiplies the table by `factor` before the look-up, instead of the values after the look-up.
    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    #[inline(always)]
    unsafe fn load_two_times(units: *const u8, factor: f32) -> std::arch::x86_64::__m512 {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features and two whole units.
        unsafe { nibbles::look_up_two(units, _mm512_mul_ps(_mm512_loadu_ps(TABLE.as_ptr()), _mm512_set1_ps(factor))) }
    }
}

impl Format for Q4_0 {
    fn name(&self) -> &'static str {
        "q4_0"
    }

    fn about(&self) -> &'static str {
        "GGUF's 4 bits"
    }

    fn bits(&self) -> usize {
        4
    }

    fn scaling(&self) -> Scaling {
        Scaling::Blocks
    }

    fn block(&self) -> usize {
        BLOCK
    }

    fn largest(&self) -> f32 {
        ZERO - 1.0
    }

    /// Searches a scale as `i4` does. The values of `i4` are eighths.
    fn scale(&self, numbers: &[f32]) -> f32 {
        I4.scale(numbers) / ZERO
    }

    fn encode(&self, row: &[f32], out: &mut Vec<u8>) -> Result<()> {
        nibbles::pack(row.iter().map(|x| (x.round().clamp(-ZERO, ZERO - 1.0) + ZERO) as u32), out);
        Ok(())
    }

    fn loops(&self) -> Loops {
        Loops::of::<Q4_0>()
    }

    /// A block is a scale, then 16 bytes. Their low nibbles are the first 16 codes, their high nibbles the others.
    fn repack(&self) -> Option<Repack> {
        let one = |block: &[u8], out: &mut EncodedRows| {
            out.scales.push(super::half(block));
            let (low, high) = (block[2..].iter().map(|n| n & 15), block[2..].iter().map(|n| n >> 4));
            nibbles::pack(low.chain(high).map(u32::from), &mut out.codes);
        };
        Some(Repack { block_bytes: 18, one })
    }
}
