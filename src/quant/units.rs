//! Units of eight codes: how the formats decode them, in plain arithmetic and in the registers of x86-64.

use super::PAD;

/// Decodes the units of a format. A unit is the bytes of eight consecutive codes.
pub trait Codes {
    /// The number of bytes per unit.
    const BYTES: usize;

    /// Returns the unscaled values of a unit's codes.
    fn eight(unit: &[u8]) -> [f32; PAD];

    /// Loads the unscaled values of a unit into a register.
    ///
    /// # Safety
    /// The CPU has the instructions of [`Isa::Avx2`](super::isa::Isa::Avx2), and `unit` points to a whole unit.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load(unit: *const u8) -> std::arch::x86_64::__m256;

    /// Loads the unscaled values of two consecutive units into a register.
    ///
    /// # Safety
    /// The CPU has the instructions of [`Isa::Avx512`](super::isa::Isa::Avx512), and `units` points to two whole units.
    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[inline(always)]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    unsafe fn load_two(units: *const u8) -> std::arch::x86_64::__m512 {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features and two whole units.
        unsafe {
            let (low, high) = (_mm256_castps_pd(Self::load(units)), _mm256_castps_pd(Self::load(units.add(Self::BYTES))));
            _mm512_castpd_ps(_mm512_insertf64x4::<1>(_mm512_castpd256_pd512(low), high))
        }
    }

    /// Loads the values of a unit, multiplied by `factor`. A format may replace this function by a faster one with the same result.
    ///
    /// # Safety
    /// As for [`load`](Self::load).
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load_times(unit: *const u8, factor: f32) -> std::arch::x86_64::__m256 {
        // SAFETY: the caller guarantees the CPU's features and a whole unit.
        unsafe { std::arch::x86_64::_mm256_mul_ps(Self::load(unit), std::arch::x86_64::_mm256_set1_ps(factor)) }
    }

    /// Loads the values of two consecutive units, multiplied by `factor`. A format may replace this function by a faster one with the same
    /// result.
    ///
    /// # Safety
    /// As for [`load_two`](Self::load_two).
    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[inline(always)]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    unsafe fn load_two_times(units: *const u8, factor: f32) -> std::arch::x86_64::__m512 {
        // SAFETY: the caller guarantees the CPU's features and two whole units.
        unsafe { std::arch::x86_64::_mm512_mul_ps(Self::load_two(units), std::arch::x86_64::_mm512_set1_ps(factor)) }
    }
}
