//! The weight format `f32`, 32-bit floating point.

use super::block_scales::NoBlocks;
use super::units::Codes;
use super::{Format, Loops, PAD};
use crate::error::Result;

/// The weight format `f32`.
pub struct F32;

impl Codes for F32 {
    const BYTES: usize = 4 * PAD;

    #[inline(always)]
    fn eight(unit: &[u8]) -> [f32; PAD] {
        std::array::from_fn(|i| f32::from_le_bytes([unit[4 * i], unit[4 * i + 1], unit[4 * i + 2], unit[4 * i + 3]]))
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(unit: *const u8) -> std::arch::x86_64::__m256 {
        // SAFETY: the caller guarantees the CPU's features and a whole unit.
        unsafe { std::arch::x86_64::_mm256_loadu_ps(unit.cast()) }
    }

    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn load_neon(units: *const u8) -> super::units::neon::Neon {
        // SAFETY: the caller guarantees two whole units, sixteen floats.
        unsafe { super::units::neon::load(units.cast()) }
    }

    #[cfg(has_simd128)]
    #[inline(always)]
    unsafe fn load_simd128(units: *const u8) -> super::units::simd128::Simd128 {
        // SAFETY: the caller guarantees two whole units, sixteen floats.
        unsafe { super::units::simd128::load(units.cast()) }
    }
}

impl Format for F32 {
    fn name(&self) -> &'static str {
        "f32"
    }

    fn bits(&self) -> usize {
        32
    }

    fn largest(&self) -> f32 {
        f32::INFINITY
    }

    fn encode(&self, row: &[f32], out: &mut Vec<u8>) -> Result<()> {
        out.extend(row.iter().flat_map(|v| v.to_le_bytes()));
        Ok(())
    }

    fn loops(&self) -> Loops {
        Loops::of::<F32, NoBlocks>()
    }
}
