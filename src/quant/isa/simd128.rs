//! Vectors in the registers of WebAssembly.

use super::{Codes, LANES, SimdVector};
use std::arch::wasm32::*;

/// Sixteen floats: the lanes 0 to 3, 4 to 7, 8 to 11 and 12 to 15.
pub type Simd128 = [v128; 4];

// SAFETY of all functions: the module is compiled for the registers. Arrays have sixteen numbers, and callers guarantee two whole units.

impl SimdVector for Simd128 {
    #[inline(always)]
    unsafe fn load(from: &[f32; LANES]) -> Self {
        load(from)
    }
    #[inline(always)]
    unsafe fn store(self, to: &mut [f32; LANES]) {
        for (four, to) in self.into_iter().zip(to.as_chunks_mut::<4>().0) {
            unsafe { v128_store(to.as_mut_ptr().cast(), four) }
        }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        [f32x4_splat(x); LANES / 4]
    }
    #[inline(always)]
    unsafe fn decode<C: Codes>(units: *const u8) -> Self {
        unsafe { C::load_simd128(units) }
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        std::array::from_fn(|i| f32x4_mul(self[i], b[i]))
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        std::array::from_fn(|i| f32x4_add(f32x4_mul(self[i], b[i]), c[i]))
    }
    #[inline(always)]
    unsafe fn total(self) -> f32 {
        let four = f32x4_add(f32x4_add(self[0], self[2]), f32x4_add(self[1], self[3]));
        let two = f32x4_add(four, i32x4_shuffle::<2, 3, 2, 3>(four, four));
        f32x4_extract_lane::<0>(two) + f32x4_extract_lane::<1>(two)
    }
}

/// Loads sixteen floats.
#[inline(always)]
pub fn load(from: &[f32; LANES]) -> Simd128 {
    // SAFETY: the array has four registers of floats.
    std::array::from_fn(|i| unsafe { v128_load(from.as_ptr().add(4 * i).cast()) })
}

/// Returns the sixteen whole numbers of `codes`, which are signed bytes, each divided by `ONE`, a power of two.
#[inline(always)]
pub fn fractions<const ONE: u8>(codes: v128) -> Simd128 {
    let (low, high) = (i16x8_extend_low_i8x16(codes), i16x8_extend_high_i8x16(codes));
    let four = [i32x4_extend_low_i16x8(low), i32x4_extend_high_i16x8(low), i32x4_extend_low_i16x8(high), i32x4_extend_high_i16x8(high)];
    four.map(|four| f32x4_mul(f32x4_convert_i32x4(four), f32x4_splat(1.0 / f32::from(ONE))))
}
