//! The weight format `f16`, IEEE half precision. Weights in bf16 also fit this format exactly, unless their magnitude is very small or very large.

use super::units::Codes;
use super::{Format, Loops, PAD};
use crate::error::{Error, Result};
use half::{f16, slice::HalfFloatSliceExt};

/// The weight format `f16`.
pub struct F16;

impl Codes for F16 {
    const BYTES: usize = 2 * PAD;

    fn eight(unit: &[u8]) -> [f32; PAD] {
        std::array::from_fn(|i| f16::from_le_bytes([unit[2 * i], unit[2 * i + 1]]).to_f32())
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(unit: *const u8) -> std::arch::x86_64::__m256 {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features and a whole unit.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(unit.cast())) }
    }

    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    #[inline(always)]
    unsafe fn load_two(units: *const u8) -> std::arch::x86_64::__m512 {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features and two whole units.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(units.cast())) }
    }

    /// Uses assembly, because the standard library has functions for NEON's f16 conversions only since Rust 1.94.
    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn load_neon(units: *const u8) -> super::units::neon::Neon {
        use std::arch::{aarch64::*, asm};
        // SAFETY: the caller guarantees two whole units. The assembly only converts registers.
        unsafe {
            let [a, b] = [0, 1].map(|i| {
                let halves = vld1q_u16(units.add(i * Self::BYTES).cast());
                let (low, high): (float32x4_t, float32x4_t);
                asm!(
                    "fcvtl {low:v}.4s, {halves:v}.4h",
                    "fcvtl2 {high:v}.4s, {halves:v}.8h",
                    low = out(vreg) low, high = lateout(vreg) high, halves = in(vreg) halves,
                    options(pure, nomem, nostack, preserves_flags)
                );
                [low, high]
            });
            [a[0], a[1], b[0], b[1]]
        }
    }
}

impl Format for F16 {
    fn name(&self) -> &'static str {
        "f16"
    }

    fn bits(&self) -> usize {
        16
    }

    fn largest(&self) -> f32 {
        f16::MAX.to_f32()
    }

    fn encode(&self, row: &[f32], out: &mut Vec<u8>) -> Result<()> {
        let mut halves = vec![f16::ZERO; row.len()];
        halves.convert_from_f32_slice(row);
        if let Some((v, _)) = row.iter().zip(&halves).find(|(v, h)| h.is_infinite() && v.is_finite()) {
            return Err(Error::model(format!("the weight {v} is too large for f16")).hint("use `dtype=f32`, or fp32 in a strategy"));
        }
        if cfg!(target_endian = "little") {
            out.extend_from_slice(bytemuck::cast_slice(&halves));
        } else {
            out.extend(halves.iter().flat_map(|h| h.to_le_bytes()));
        }
        Ok(())
    }

    fn loops(&self) -> Loops {
        Loops::of::<F16>()
    }
}
