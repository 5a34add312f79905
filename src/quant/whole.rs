//! The values of the codes of GGUF's types: whole numbers, computed from a code or looked up in a table.

use super::planes::{Bits, Planes};
use super::units::Codes;
use super::{PAD, nibbles};
use std::marker::PhantomData;

/// Codes c of the layout `B`, with the values c − `ZERO`. `SUB` weights share a factor and, if `MINIMA` is true, a minimum.
pub struct Whole<B, const ZERO: i32, const SUB: usize, const MINIMA: bool>(PhantomData<B>);

impl<B: Bits, const ZERO: i32, const SUB: usize, const MINIMA: bool> Codes for Whole<B, ZERO, SUB, MINIMA> {
    const BYTES: usize = B::BITS;

    const SUB: usize = SUB;

    const STEP: f32 = 1.0;

    const NIBBLES: bool = B::BITS == 4;

    const PLANES: [usize; 2] = B::PLANES;

    const OFFSET: i32 = ZERO;

    const HAS_FEW: bool = !cfg!(target_family = "wasm");

    /// With codes of 4 or 8 bits, [`Bits::lanes`] is fast, so `signed` is faster only with registers of 16 floats.
    const SIGNED_FROM: usize = if matches!(B::BITS, 4 | 8) { 16 } else { 8 };

    const HAS_MINIMA: bool = MINIMA;

    #[inline(always)]
    fn eight(unit: &[u8]) -> [f32; PAD] {
        B::eight(unit).map(|code| (i32::from(code) - ZERO) as f32)
    }

    #[inline(always)]
    fn raw(unit: &[u8]) -> [u8; PAD] {
        B::eight(unit)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(unit: *const u8) -> std::arch::x86_64::__m256 {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features and a whole unit.
        unsafe { _mm256_cvtepi32_ps(_mm256_sub_epi32(B::lanes(unit), _mm256_set1_epi32(ZERO))) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn signed(units: *const u8) -> std::arch::x86_64::__m256i {
        // SAFETY: the caller guarantees the CPU's features and four whole units.
        unsafe { Self::values(B::bytes_of_four(units)) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn values(codes: std::arch::x86_64::__m256i) -> std::arch::x86_64::__m256i {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features. Bytes wrap around, so that the difference is right for 8 bits, too.
        unsafe { _mm256_sub_epi8(codes, _mm256_set1_epi8(ZERO as i8)) }
    }

    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn signed_neon(units: *const u8) -> std::arch::aarch64::int8x16_t {
        use std::arch::aarch64::*;
        // SAFETY: the caller guarantees two whole units. Bytes wrap around, so that the difference is right for 8 bits, too.
        unsafe { vreinterpretq_s8_u8(vsubq_u8(B::bytes(units), vdupq_n_u8(ZERO as u8))) }
    }

    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn load_neon(units: *const u8) -> super::units::neon::Neon {
        // SAFETY: the caller guarantees two whole units.
        super::units::neon::whole(unsafe { Self::signed_neon(units) })
    }
}

/// The values of the sixteen codes of IQ4_NL and IQ4_XS.
pub const VALUES: [f32; 16] = [-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0];

/// [`VALUES`] as bytes.
#[cfg(any(target_arch = "x86_64", has_neon))]
const BYTES: [i8; 16] = {
    let (mut bytes, mut i) = ([0; 16], 0);
    while i < 16 {
        bytes[i] = VALUES[i] as i8;
        i += 1;
    }
    bytes
};

/// Codes of four bits with the values [`VALUES`]. 32 weights share a factor.
pub struct Tabled;

impl Codes for Tabled {
    const BYTES: usize = nibbles::BYTES;

    const SUB: usize = 32;

    const STEP: f32 = 1.0;

    const NIBBLES: bool = true;

    const PLANES: [usize; 2] = [4, 0];

    const OFFSET: i32 = 128;

    const HAS_FEW: bool = !cfg!(target_family = "wasm");

    const SIGNED_FROM: usize = 8;

    #[inline(always)]
    fn eight(unit: &[u8]) -> [f32; PAD] {
        Planes::<4, 0>::eight(unit).map(|code| VALUES[usize::from(code)])
    }

    #[inline(always)]
    fn raw(unit: &[u8]) -> [u8; PAD] {
        Planes::<4, 0>::eight(unit)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(unit: *const u8) -> std::arch::x86_64::__m256 {
        // SAFETY: the caller guarantees the CPU's features and a whole unit.
        unsafe { nibbles::look_up(unit, &VALUES) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn values(codes: std::arch::x86_64::__m256i) -> std::arch::x86_64::__m256i {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features. The table has 16 bytes.
        unsafe { _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(BYTES.as_ptr().cast())), codes) }
    }

    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    #[inline(always)]
    unsafe fn unsigned(codes: std::arch::x86_64::__m512i) -> std::arch::x86_64::__m512i {
        use std::arch::x86_64::*;
        // SAFETY: the caller guarantees the CPU's features. The table has 16 bytes.
        unsafe {
            let table = _mm_xor_si128(_mm_loadu_si128(BYTES.as_ptr().cast()), _mm_set1_epi8(-128));
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), codes)
        }
    }

    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn signed_neon(units: *const u8) -> std::arch::aarch64::int8x16_t {
        use std::arch::aarch64::*;
        // SAFETY: the caller guarantees two whole units. The table has 16 bytes.
        unsafe { vqtbl1q_s8(vld1q_s8(BYTES.as_ptr()), nibbles::bytes(units)) }
    }

    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn load_neon(units: *const u8) -> super::units::neon::Neon {
        // SAFETY: the caller guarantees two whole units.
        super::units::neon::whole(unsafe { Self::signed_neon(units) })
    }
}
