//! The values of the codes of GGUF's types: whole numbers, computed from a code or looked up in a table.

use super::planes::{Bits, Planes};
use super::units::Codes;
use super::{PAD, nibbles};
use std::marker::PhantomData;

/// Codes c of the layout `B`, with the values c − `ZERO`. `SUB` weights share a factor and, if `MINIMA` is true, a minimum.
pub struct Whole<B, const ZERO: i32, const SUB: usize, const MINIMA: bool>(PhantomData<B>);

impl<B: Bits, const ZERO: i32, const SUB: usize, const MINIMA: bool> Whole<B, ZERO, SUB, MINIMA> {
    /// Returns the values of 4-bit codes, times `factor`, minus `minimum`.
    ///
    /// # Safety
    /// The CPU has AVX-512 F.
    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    #[inline(always)]
    unsafe fn table(factor: f32, minimum: f32) -> std::arch::x86_64::__m512 {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees AVX-512.
        unsafe {
            let codes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let values = _mm512_cvtepi32_ps(_mm512_sub_epi32(codes, _mm512_set1_epi32(ZERO)));
            _mm512_fmsub_ps(values, _mm512_set1_ps(factor), _mm512_set1_ps(minimum))
        }
    }
}

impl<B: Bits, const ZERO: i32, const SUB: usize, const MINIMA: bool> Codes for Whole<B, ZERO, SUB, MINIMA> {
    const BYTES: usize = B::BITS;

    const SUB: usize = SUB;

    const HAS_FEW: bool = !cfg!(target_family = "wasm");

    const HAS_MINIMA: bool = MINIMA;

    #[inline(always)]
    fn eight(unit: &[u8]) -> [f32; PAD] {
        B::eight(unit).map(|code| (i32::from(code) - ZERO) as f32)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(unit: *const u8) -> std::arch::x86_64::__m256 {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features and a whole unit.
        unsafe { _mm256_cvtepi32_ps(_mm256_sub_epi32(B::lanes(unit), _mm256_set1_epi32(ZERO))) }
    }

    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    #[inline(always)]
    unsafe fn load_two(units: *const u8) -> std::arch::x86_64::__m512 {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features and two whole units.
        unsafe {
            if B::BITS == 4 {
                return nibbles::look_up_two(units, Self::table(1.0, 0.0));
            }
            _mm512_cvtepi32_ps(_mm512_sub_epi32(B::lanes_of_two(units), _mm512_set1_epi32(ZERO)))
        }
    }

    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn load_neon(units: *const u8) -> super::units::neon::Neon {
        use std::arch::aarch64::*;
        // SAFETY: the caller guarantees two whole units. Bytes wrap around, so that the difference is right for 8 bits, too.
        super::units::neon::whole(unsafe { vreinterpretq_s8_u8(vsubq_u8(B::bytes(units), vdupq_n_u8(ZERO as u8))) })
    }

    /// Multiplies the table of 4-bit codes before the look-up, instead of the values after the look-up.
    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    #[inline(always)]
    unsafe fn load_two_times(units: *const u8, factor: f32) -> std::arch::x86_64::__m512 {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features and two whole units.
        unsafe {
            if B::BITS == 4 {
                Self::load_two_scaled(units, factor, 0.0)
            } else {
                _mm512_mul_ps(Self::load_two(units), _mm512_set1_ps(factor))
            }
        }
    }

    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    #[inline(always)]
    unsafe fn load_two_scaled(units: *const u8, factor: f32, minimum: f32) -> std::arch::x86_64::__m512 {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features and two whole units.
        unsafe {
            if B::BITS == 4 {
                return nibbles::look_up_two(units, Self::table(factor, minimum));
            }
            _mm512_fmsub_ps(Self::load_two(units), _mm512_set1_ps(factor), _mm512_set1_ps(minimum))
        }
    }
}

/// The values of the sixteen codes of IQ4_NL and IQ4_XS.
pub const VALUES: [f32; 16] = [-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0];

/// Codes of four bits with the values [`VALUES`]. 32 weights share a factor.
pub struct Tabled;

impl Codes for Tabled {
    const BYTES: usize = nibbles::BYTES;

    const SUB: usize = 32;

    const HAS_FEW: bool = !cfg!(target_family = "wasm");

    #[inline(always)]
    fn eight(unit: &[u8]) -> [f32; PAD] {
        Planes::<4, 0>::eight(unit).map(|code| VALUES[usize::from(code)])
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(unit: *const u8) -> std::arch::x86_64::__m256 {
        // SAFETY: the caller guarantees the CPU's features and a whole unit.
        unsafe { nibbles::look_up(unit, &VALUES) }
    }

    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    #[inline(always)]
    unsafe fn load_two(units: *const u8) -> std::arch::x86_64::__m512 {
        // SAFETY: the caller guarantees the CPU's features and two whole units.
        unsafe { nibbles::look_up_two(units, std::arch::x86_64::_mm512_loadu_ps(VALUES.as_ptr())) }
    }

    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn load_neon(units: *const u8) -> super::units::neon::Neon {
        use std::arch::aarch64::*;
        const BYTES: [i8; 16] = {
            let (mut bytes, mut i) = ([0; 16], 0);
            while i < 16 {
                bytes[i] = VALUES[i] as i8;
                i += 1;
            }
            bytes
        };
        // SAFETY: the caller guarantees two whole units.
        super::units::neon::whole(unsafe { vqtbl1q_s8(vld1q_s8(BYTES.as_ptr()), nibbles::bytes(units)) })
    }

    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    #[inline(always)]
    unsafe fn load_two_times(units: *const u8, factor: f32) -> std::arch::x86_64::__m512 {
        // SAFETY: the caller guarantees the CPU's features and two whole units.
        unsafe { nibbles::look_up_two_times(units, &VALUES, factor) }
    }
}
