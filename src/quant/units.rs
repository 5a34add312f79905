//! Units of eight codes: how the formats decode them, in plain arithmetic and in the registers of x86-64 and aarch64.

use super::PAD;
#[cfg(target_arch = "x86_64")]
use super::planes::{Bits, Planes};

/// Decodes the units of a format. A unit is the bytes of eight consecutive codes.
pub trait Codes {
    /// The number of bytes per unit.
    const BYTES: usize;

    /// The number of weights that share a factor in blocks along rows, or 0 if the format has no such blocks.
    const SUB: usize = 0;

    /// True if blocks along rows have minima.
    const HAS_MINIMA: bool = false;

    /// True if the loops for a few tokens are compiled. Without them, products decode whole rows first. In a module for browsers, the loops of most
    /// quantised formats take more room than their speed is worth, because models run on the GPU there.
    const HAS_FEW: bool = true;

    /// True if the format also has blocks along columns, with one factor per column.
    const HAS_COLUMNS: bool = false;

    /// If the values of the codes are whole numbers from −128 to 127 times a constant, this is the constant, otherwise 0.
    const STEP: f32 = 0.0;

    /// True if the codes have four bits and lie side by side, and the format has the function [`values`](Self::values).
    const NIBBLES: bool = false;

    /// True if the values of the codes are whole numbers times a constant, in blocks along rows.
    const IS_WHOLE: bool = Self::STEP != 0.0 && Self::SUB != 0;

    /// The numbers of bits of the low and the high part of a code. Only formats with a step have them.
    const PLANES: [usize; 2] = [0, 0];

    /// The number that `unsigned` adds, so that no result is negative: c − v / [`STEP`](Self::STEP), the same for every code c with the value v.
    /// If the values are in a table, 128.
    const OFFSET: i32 = 0;

    /// The number of floats in a register from which on [`signed`](Self::signed) is faster than [`load`](Self::load). The default is for formats without
    /// this function.
    const SIGNED_FROM: usize = usize::MAX;

    /// Returns the unscaled values of a unit's codes.
    fn eight(unit: &[u8]) -> [f32; PAD];

    /// Returns a unit's codes. Only formats with a step have this function.
    fn raw(_unit: &[u8]) -> [u8; PAD] {
        unreachable!("only formats with a step")
    }

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

    /// Loads the unscaled values of four consecutive units, divided by [`STEP`](Self::STEP), one per byte. Only formats with a step have this
    /// function. The default is for formats with [`NIBBLES`](Self::NIBBLES).
    ///
    /// # Safety
    /// The CPU has the instructions of [`Isa::Avx2`](super::isa::Isa::Avx2), and `units` points to four whole units.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn signed(units: *const u8) -> std::arch::x86_64::__m256i {
        assert!(Self::NIBBLES, "only formats with a step");
        // SAFETY: the caller guarantees the CPU's features and four whole units, here of four bits per code.
        unsafe { Self::values(Planes::<4, 0>::bytes_of_four(units)) }
    }

    /// Returns the unscaled values of codes, divided by [`STEP`](Self::STEP), one per byte.
    ///
    /// # Safety
    /// The CPU has the instructions of [`Isa::Avx2`](super::isa::Isa::Avx2).
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn values(_codes: std::arch::x86_64::__m256i) -> std::arch::x86_64::__m256i {
        unreachable!("only formats with a step")
    }

    /// Returns the values of codes, divided by [`STEP`](Self::STEP), plus [`OFFSET`](Self::OFFSET), which are not negative.
    ///
    /// # Safety
    /// The CPU has the instructions of [`Isa::Avx512`](super::isa::Isa::Avx512).
    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[inline(always)]
    unsafe fn unsigned(codes: std::arch::x86_64::__m512i) -> std::arch::x86_64::__m512i {
        codes
    }

    /// Loads the unscaled values of two consecutive units, divided by [`STEP`](Self::STEP), one per byte. Only formats with a step have this
    /// function.
    ///
    /// # Safety
    /// `units` points to two whole units.
    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn signed_neon(_units: *const u8) -> std::arch::aarch64::int8x16_t {
        unreachable!("only formats with a step")
    }

    /// Loads the unscaled values of two consecutive units into four registers.
    ///
    /// # Safety
    /// `units` points to two whole units.
    #[cfg(has_neon)]
    unsafe fn load_neon(units: *const u8) -> neon::Neon;

    /// Loads the unscaled values of two consecutive units into four registers of WebAssembly. The default decodes them in plain arithmetic.
    ///
    /// # Safety
    /// `units` points to two whole units.
    #[cfg(has_simd128)]
    #[inline(always)]
    unsafe fn load_simd128(units: *const u8) -> simd128::Simd128
    where
        Self: Sized,
    {
        // SAFETY: the caller guarantees two whole units.
        let units = unsafe { std::slice::from_raw_parts(units, 2 * Self::BYTES) };
        let values = [Self::eight(units), Self::eight(&units[Self::BYTES..])];
        // SAFETY: there are sixteen values.
        unsafe { simd128::load(values.as_ptr().cast()) }
    }
}

/// Vectors of sixteen floats for [`Codes::load_neon`].
#[cfg(has_neon)]
pub mod neon {
    use std::arch::aarch64::*;

    // SAFETY of all functions: every CPU of the target has NEON.

    /// Sixteen floats: the lanes 0 to 3, 4 to 7, 8 to 11 and 12 to 15.
    pub type Neon = [float32x4_t; 4];

    /// Loads sixteen floats.
    ///
    /// # Safety
    /// `from` points to sixteen floats.
    #[inline(always)]
    pub unsafe fn load(from: *const f32) -> Neon {
        std::array::from_fn(|i| unsafe { vld1q_f32(from.add(4 * i)) })
    }

    /// Returns the sixteen whole numbers of `codes`, each divided by 2^`BITS`.
    #[inline(always)]
    pub fn fractions<const BITS: i32>(codes: int8x16_t) -> Neon {
        widened(codes).map(|four| unsafe { vcvtq_n_f32_s32::<BITS>(four) })
    }

    /// Returns the sixteen whole numbers of `codes`.
    #[inline(always)]
    pub fn whole(codes: int8x16_t) -> Neon {
        widened(codes).map(|four| unsafe { vcvtq_f32_s32(four) })
    }

    #[inline(always)]
    fn widened(codes: int8x16_t) -> [int32x4_t; 4] {
        unsafe {
            let (low, high) = (vmovl_s8(vget_low_s8(codes)), vmovl_high_s8(codes));
            [vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)]
        }
    }
}

/// Vectors of sixteen floats for [`Codes::load_simd128`].
#[cfg(has_simd128)]
pub mod simd128 {
    use std::arch::wasm32::*;

    /// Sixteen floats: the lanes 0 to 3, 4 to 7, 8 to 11 and 12 to 15.
    pub type Simd128 = [v128; 4];

    /// Loads sixteen floats from any address.
    ///
    /// # Safety
    /// `from` points to sixteen floats.
    #[inline(always)]
    pub unsafe fn load(from: *const f32) -> Simd128 {
        // SAFETY: the caller guarantees four registers of floats.
        std::array::from_fn(|i| unsafe { v128_load(from.add(4 * i).cast()) })
    }

    /// Returns the sixteen whole numbers of `codes`, which are signed bytes, each divided by `ONE`, a power of two.
    #[inline(always)]
    pub fn fractions<const ONE: u8>(codes: v128) -> Simd128 {
        let (low, high) = (i16x8_extend_low_i8x16(codes), i16x8_extend_high_i8x16(codes));
        let four = [i32x4_extend_low_i16x8(low), i32x4_extend_high_i16x8(low), i32x4_extend_low_i16x8(high), i32x4_extend_high_i16x8(high)];
        four.map(|four| f32x4_mul(f32x4_convert_i32x4(four), f32x4_splat(1.0 / f32::from(ONE))))
    }
}
