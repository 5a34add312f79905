//! The weight format `i8rc`, the int8 of RWKV's official Python package (strategy `fp16i8`). The format has one scale and one offset per row and per
//! column of a matrix.
//!
//! A code c represents the weight (c + 1/2) · rx · ry / 256 + mx + my. Each row (output) has a scale rx and an offset mx. Each column (input)
//! has a scale ry and an offset my. [`super::Survey`] computes the scales and offsets.

use super::block_scales::NoBlocks;
use super::units::Codes;
use super::{Format, Loops, PAD, Scaling};
use crate::error::Result;

/// The weight format `i8rc`.
pub struct I8rc;

impl Codes for I8rc {
    const BYTES: usize = PAD;

    #[inline(always)]
    fn eight(unit: &[u8]) -> [f32; PAD] {
        std::array::from_fn(|i| f32::from(unit[i]) + 0.5)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(unit: *const u8) -> std::arch::x86_64::__m256 {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features and a whole unit.
        unsafe {
            let codes = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(unit.cast())));
            _mm256_add_ps(codes, _mm256_set1_ps(0.5))
        }
    }

    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn load_neon(units: *const u8) -> super::units::neon::Neon {
        use std::arch::aarch64::*;
        // SAFETY: the caller guarantees two whole units.
        unsafe {
            let codes = vld1q_u8(units);
            let [low, high] = [vmovl_u8(vget_low_u8(codes)), vmovl_high_u8(codes)];
            [vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low), vmovl_u16(vget_low_u16(high)), vmovl_high_u16(high)]
                .map(|four| vaddq_f32(vcvtq_f32_u32(four), vdupq_n_f32(0.5)))
        }
    }
}

impl Format for I8rc {
    fn name(&self) -> &'static str {
        "i8rc"
    }

    fn about(&self) -> &'static str {
        "the int8 of RWKV's Python package"
    }

    fn bits(&self) -> usize {
        8
    }

    fn scaling(&self) -> Scaling {
        Scaling::Affine
    }

    fn largest(&self) -> f32 {
        255.5
    }

    /// Encodes normalised weights, which are from 0 to 256, by rounding down.
    fn encode(&self, row: &[f32], out: &mut Vec<u8>) -> Result<()> {
        out.extend(row.iter().map(|x| x.floor().clamp(0.0, 255.0) as u8));
        Ok(())
    }

    fn loops(&self) -> Loops {
        Loops::of::<I8rc, NoBlocks>()
    }
}
