//! Vectors in the registers of x86-64: AVX2 and AVX-512.

use super::{Body, Codes, LANES, SimdVector};
use half::f16;
use std::arch::x86_64::*;

// SAFETY of all functions: the caller guarantees the CPU's instructions. Arrays have sixteen numbers.

#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn run256(body: impl Body) {
    unsafe { body.call::<[__m256; 2]>() }
}

#[cfg(has_avx512)]
#[target_feature(enable = "avx512f,avx512vl,avx2,fma,f16c")]
pub unsafe fn run512(body: impl Body) {
    unsafe { body.call::<__m512>() }
}

#[inline(always)]
unsafe fn widened(halves: &[f16; 8]) -> [f32; 8] {
    let mut floats = [0.0; 8];
    unsafe { _mm256_storeu_ps(floats.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(halves.as_ptr().cast()))) };
    floats
}

impl SimdVector for [__m256; 2] {
    const REGISTER: usize = 8;
    #[inline(always)]
    unsafe fn widened(halves: &[f16; 8]) -> [f32; 8] {
        unsafe { widened(halves) }
    }
    #[inline(always)]
    unsafe fn decode_pairs<C: Codes, const R: usize>(units: [*const u8; R]) -> [[Self; 2]; R] {
        unsafe {
            let mut pairs = [[[_mm256_setzero_ps(); 2]; 2]; R];
            for i in 0..R {
                let values = C::signed(units[i]);
                let halves = [_mm256_castsi256_si128(values), _mm256_extracti128_si256::<1>(values)];
                for h in 0..2 {
                    pairs[i][h][0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(halves[h]));
                    pairs[i][h][1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(halves[h], halves[h])));
                }
            }
            pairs
        }
    }
    #[inline(always)]
    unsafe fn load(from: &[f32; LANES]) -> Self {
        unsafe { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))] }
    }
    #[inline(always)]
    unsafe fn store(self, to: &mut [f32; LANES]) {
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), self[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), self[1]);
        }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { [_mm256_set1_ps(x); 2] }
    }
    #[inline(always)]
    unsafe fn decode<C: Codes>(units: *const u8) -> Self {
        unsafe { [C::load(units), C::load(units.add(C::BYTES))] }
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        unsafe { [_mm256_mul_ps(self[0], b[0]), _mm256_mul_ps(self[1], b[1])] }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        unsafe { [_mm256_fmadd_ps(self[0], b[0], c[0]), _mm256_fmadd_ps(self[1], b[1], c[1])] }
    }
    #[inline(always)]
    unsafe fn total(self) -> f32 {
        unsafe { total(_mm256_add_ps(self[0], self[1])) }
    }
}

#[inline(always)]
unsafe fn total(sums: __m256) -> f32 {
    unsafe {
        let four = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps::<1>(sums));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
    }
}

#[cfg(has_avx512)]
impl SimdVector for __m512 {
    const REGISTER: usize = 16;
    #[inline(always)]
    unsafe fn widened(halves: &[f16; 8]) -> [f32; 8] {
        unsafe { widened(halves) }
    }
    #[inline(always)]
    unsafe fn decode_pairs<C: Codes, const R: usize>(units: [*const u8; R]) -> [[Self; 2]; R] {
        unsafe {
            let (mut values, mut pairs) = ([_mm256_setzero_si256(); R], [[_mm512_setzero_ps(); 2]; R]);
            for i in 0..R {
                values[i] = C::signed(units[i]);
            }
            for i in 0..R {
                pairs[i][0] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(values[i])));
                pairs[i][1] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256::<1>(values[i])));
            }
            pairs
        }
    }
    #[inline(always)]
    unsafe fn load(from: &[f32; LANES]) -> Self {
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }
    #[inline(always)]
    unsafe fn store(self, to: &mut [f32; LANES]) {
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), self) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn decode<C: Codes>(units: *const u8) -> Self {
        unsafe { C::load_two(units) }
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        unsafe { _mm512_mul_ps(self, b) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        unsafe { _mm512_fmadd_ps(self, b, c) }
    }
    #[inline(always)]
    unsafe fn total(self) -> f32 {
        unsafe {
            let high = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(self)));
            total(_mm256_add_ps(_mm512_castps512_ps256(self), high))
        }
    }
}
