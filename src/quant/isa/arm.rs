//! Vectors in the registers of NEON.

use super::{Codes, LANES, SimdVector};
use crate::quant::units::neon::{self, Neon};
use std::arch::aarch64::*;

// SAFETY of all functions: every CPU of the target has NEON. Arrays have sixteen numbers, and callers guarantee two whole units.

impl SimdVector for Neon {
    #[inline(always)]
    unsafe fn load(from: &[f32; LANES]) -> Self {
        unsafe { neon::load(from.as_ptr()) }
    }
    #[inline(always)]
    unsafe fn store(self, to: &mut [f32; LANES]) {
        for (i, four) in self.into_iter().enumerate() {
            unsafe { vst1q_f32(to.as_mut_ptr().add(4 * i), four) }
        }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { [vdupq_n_f32(x); LANES / 4] }
    }
    #[inline(always)]
    unsafe fn decode<C: Codes>(units: *const u8) -> Self {
        unsafe { C::load_neon(units) }
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        std::array::from_fn(|i| unsafe { vmulq_f32(self[i], b[i]) })
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        std::array::from_fn(|i| unsafe { vfmaq_f32(c[i], self[i], b[i]) })
    }
    #[inline(always)]
    unsafe fn total(self) -> f32 {
        unsafe {
            let four = vaddq_f32(vaddq_f32(self[0], self[2]), vaddq_f32(self[1], self[3]));
            vaddv_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)))
        }
    }
}
