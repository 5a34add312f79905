//! Vectors in the registers of WebAssembly.

use super::{Codes, LANES, SimdVector};
use crate::quant::units::simd128::{self, Simd128};
use std::arch::wasm32::*;

// SAFETY of all functions: the module is compiled for the registers. Arrays have sixteen numbers, and callers guarantee two whole units.

impl SimdVector for Simd128 {
    #[inline(always)]
    unsafe fn load(from: &[f32; LANES]) -> Self {
        unsafe { simd128::load(from.as_ptr()) }
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
