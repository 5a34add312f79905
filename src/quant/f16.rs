//! The weight format `f16`, IEEE half precision. Weights in bf16 also fit this format exactly, unless their magnitude is very small or very large.

use super::block_scales::NoBlocks;
use super::units::Codes;
use super::{Format, Loops, PAD};
use crate::error::{Error, Result};
use half::{f16, slice::HalfFloatSliceExt};

/// The weight format `f16`.
pub struct F16;

/// Converts half precision, given as bits. Has no branches, so that a compiler can convert several numbers at once where the CPU has no instruction for
/// it, as in WebAssembly.
#[inline(always)]
fn widened(half: u16) -> f32 {
    /// Exponents have the bias 15 in f16, and 127 in f32.
    const BIAS: f32 = f32::from_bits((127 + 127 - 15) << 23);
    let magnitude = u32::from(half & 0x7fff) << 13;
    let finite = (f32::from_bits(magnitude) * BIAS).to_bits();
    let is_finite = half & 0x7c00 != 0x7c00;
    let sign = u32::from(half & 0x8000) << 16;
    f32::from_bits(sign | if is_finite { finite } else { magnitude | 0x7f80_0000 })
}

impl Codes for F16 {
    const BYTES: usize = 2 * PAD;

    #[inline(always)]
    fn eight(unit: &[u8]) -> [f32; PAD] {
        std::array::from_fn(|i| widened(u16::from_le_bytes([unit[2 * i], unit[2 * i + 1]])))
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

    #[cfg(has_simd128)]
    #[inline(always)]
    unsafe fn load_simd128(units: *const u8) -> super::units::simd128::Simd128 {
        use std::arch::wasm32::*;
        // SAFETY: the caller guarantees two whole units.
        let halves = unsafe { [v128_load(units.cast()), v128_load(units.add(Self::BYTES).cast())] };
        // The sign in bit 31, the exponent and the fraction in bits 27 to 13: where f32 has them.
        let spread = |four: v128| v128_and(i32x4_shl(four, 13), u32x4_splat(0x8fff_e000));
        let [a, b] = halves.map(|h| [spread(i32x4_extend_low_i16x8(h)), spread(i32x4_extend_high_i16x8(h))]);
        let all = [a[0], a[1], b[0], b[1]];
        // Only the exponents 0 and 31 lose all of these bits when 1 is added to them.
        let special = halves.map(|h| i16x8_eq(v128_and(i16x8_add(h, i16x8_splat(0x0400)), i16x8_splat(0x7800)), i16x8_splat(0)));
        if v128_any_true(v128_or(special[0], special[1])) { all.map(wide::any) } else { all.map(wide::normal) }
    }
}

/// Conversions of four halves whose bits are where f32 has them.
#[cfg(has_simd128)]
mod wide {
    use std::arch::wasm32::*;

    /// Exponents have the bias 15 in f16, and 127 in f32.
    const REBIAS: u32 = (127 - 15) << 23;
    const SMALLEST: u32 = 1 << 23;
    const INFINITE: u32 = 31 << 23;

    /// Converts numbers that are normal in f16.
    #[inline(always)]
    pub fn normal(four: v128) -> v128 {
        i32x4_add(four, u32x4_splat(REBIAS))
    }

    /// Converts any numbers. A subnormal number gets a leading 1, which is then subtracted: a multiplication of subnormal numbers would be slow.
    #[inline(always)]
    pub fn any(four: v128) -> v128 {
        let sign = v128_and(four, u32x4_splat(1 << 31));
        let magnitude = v128_xor(four, sign);
        let wide = normal(magnitude);
        let one = u32x4_splat(REBIAS + SMALLEST);
        let subnormal = f32x4_sub(i32x4_add(magnitude, one), one);
        let finite = v128_bitselect(subnormal, wide, i32x4_lt(magnitude, u32x4_splat(SMALLEST)));
        // 31 becomes 255, the exponent of infinity and NaN in f32.
        let last = v128_and(i32x4_ge(magnitude, u32x4_splat(INFINITE)), u32x4_splat(REBIAS));
        v128_or(sign, i32x4_add(finite, last))
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
        Loops::of::<F16, NoBlocks>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_has_its_value() {
        for bits in 0..=u16::MAX {
            let (found, want) = (widened(bits), f16::from_bits(bits).to_f32());
            assert!(found.to_bits() == want.to_bits() || found.is_nan() && want.is_nan(), "{bits:04x}: {found} {want}");
        }
    }
}
