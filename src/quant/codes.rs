//! The inner loops that all formats share. The loops decode units of eight codes, and compute dot products of a row of codes and f32
//! activations.
//!
//! A dot product has 32 partial sums, which are added up in a fixed order. So the result for a sequence does not depend on the rest of the
//! batch. On x86-64, the AVX2 code is used if the CPU has AVX2. In all other cases, the compiler vectorises the portable code.

use super::{PAD, WEIGHTS_PER_BLOCK};

/// Decodes the units of a format. A unit is the bytes of eight consecutive codes.
pub trait Codes {
    /// The number of bytes per unit.
    const BYTES: usize;

    /// Returns the unscaled values of a unit's codes.
    fn eight(unit: &[u8]) -> [f32; PAD];

    /// Loads the unscaled values of a unit into a register.
    ///
    /// # Safety
    /// The CPU has AVX2, FMA and F16C, and `unit` points to a whole unit.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load(unit: *const u8) -> std::arch::x86_64::__m256;
}

/// The inner loops of a format, as functions: one function decodes, one computes dot products without scales, and one computes dot products with
/// the scales of blocks.
pub struct Loops {
    pub(super) decode: fn(&[u8], &mut [f32]),
    pub(super) dot: fn(&[u8], &[f32]) -> f32,
    pub(super) dot_blocks: fn(&[u8], &[f32], &[f32]) -> f32,
}

impl Loops {
    /// Returns the loops of the format whose units `C` decodes.
    pub(super) fn of<C: Codes>() -> Loops {
        Loops { decode: decode::<C>, dot: dot::<C>, dot_blocks: dot_blocks::<C> }
    }
}

/// Decodes whole units to unscaled values.
fn decode<C: Codes>(bytes: &[u8], out: &mut [f32]) {
    for (out, unit) in out.chunks_exact_mut(PAD).zip(bytes.chunks_exact(C::BYTES)) {
        out.copy_from_slice(&C::eight(unit));
    }
}

/// Returns the dot product Σ code·x of a row and `x`. If `x` is shorter than the row, the end of the row is padding and is ignored.
fn dot<C: Codes>(row: &[u8], x: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if avx2() {
        // SAFETY: the CPU has AVX2, FMA and F16C.
        return unsafe { x86::dot::<C>(row, x) };
    }
    portable::<C>(row, x)
}

/// Returns the dot product of a row and `x`. The sum Σ code·x of each block is multiplied by the block's scale, and the products are added.
fn dot_blocks<C: Codes>(row: &[u8], scales: &[f32], x: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if avx2() {
        // SAFETY: the CPU has AVX2, FMA and F16C.
        return unsafe { x86::dot_blocks::<C>(row, scales, x) };
    }
    let blocks = row.chunks(WEIGHTS_PER_BLOCK / PAD * C::BYTES).zip(x.chunks(WEIGHTS_PER_BLOCK)).zip(scales);
    blocks.map(|((row, x), scale)| scale * portable::<C>(row, x)).sum()
}

/// The number of partial sums: four registers of eight sums. Four independent registers are enough to hide the latency of a multiply-add.
const LANES: usize = 32;

/// Decodes the unit at the start of `bytes`. If a row without padding ends within the unit, zeros replace the missing bytes.
fn eight<C: Codes>(bytes: &[u8]) -> [f32; PAD] {
    if bytes.len() >= C::BYTES {
        return C::eight(bytes);
    }
    let mut unit = [0; 4 * PAD];
    unit[..bytes.len()].copy_from_slice(bytes);
    C::eight(&unit)
}

/// Returns the dot product Σ code·x of a row and `x`, without CPU-specific instructions.
fn portable<C: Codes>(row: &[u8], x: &[f32]) -> f32 {
    let mut sums = [0f32; LANES];
    for (u, (unit, x)) in row.chunks(C::BYTES).zip(x.chunks(PAD)).enumerate() {
        let sums = &mut sums[u * PAD % LANES..][..PAD];
        for ((sum, w), x) in sums.iter_mut().zip(eight::<C>(unit)).zip(x) {
            *sum += w * x;
        }
    }
    sums.iter().sum()
}

/// Returns true if the CPU has the features that the AVX2 code needs.
#[cfg(target_arch = "x86_64")]
fn avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Codes, LANES, PAD, WEIGHTS_PER_BLOCK};
    use std::arch::x86_64::*;

    const REGISTERS: usize = LANES / PAD;

    // Callers of the functions in this module must have checked that the CPU has AVX2, FMA and F16C.

    #[target_feature(enable = "avx2,fma,f16c")]
    pub unsafe fn dot<C: Codes>(row: &[u8], x: &[f32]) -> f32 {
        let mut sums = [_mm256_setzero_ps(); REGISTERS];
        // SAFETY: the caller has checked the CPU's features.
        unsafe {
            let tail = add::<C>(row, x, &mut sums);
            total(sums) + tail
        }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub unsafe fn dot_blocks<C: Codes>(row: &[u8], scales: &[f32], x: &[f32]) -> f32 {
        let mut sums = [_mm256_setzero_ps(); REGISTERS];
        let mut rest = 0.0;
        for ((row, x), &scale) in row.chunks(WEIGHTS_PER_BLOCK / PAD * C::BYTES).zip(x.chunks(WEIGHTS_PER_BLOCK)).zip(scales) {
            let mut block = [_mm256_setzero_ps(); REGISTERS];
            // SAFETY: the caller has checked the CPU's features.
            rest += scale * unsafe { add::<C>(row, x, &mut block) };
            let scale = _mm256_set1_ps(scale);
            for (sum, block) in sums.iter_mut().zip(block) {
                *sum = _mm256_fmadd_ps(block, scale, *sum);
            }
        }
        // SAFETY: the caller has checked the CPU's features.
        unsafe { total(sums) + rest }
    }

    /// Multiplies the units of `row` by the activations `x`, and adds the products of successive units to the four registers in turn. Returns
    /// the sum of the products of the last, incomplete unit, or 0 if all units are complete.
    #[inline(always)]
    unsafe fn add<C: Codes>(row: &[u8], x: &[f32], sums: &mut [__m256; REGISTERS]) -> f32 {
        let units = (x.len() / PAD).min(row.len() / C::BYTES);
        // SAFETY: the caller has checked the CPU's features. All loads are within whole units of `row` and of `x`.
        unsafe {
            let step = |sum: &mut __m256, u: usize| {
                *sum = _mm256_fmadd_ps(C::load(row.as_ptr().add(u * C::BYTES)), _mm256_loadu_ps(x.as_ptr().add(u * PAD)), *sum);
            };
            let whole = units / REGISTERS * REGISTERS;
            for u in (0..whole).step_by(REGISTERS) {
                for (i, sum) in sums.iter_mut().enumerate() {
                    step(sum, u + i);
                }
            }
            for u in whole..units {
                step(&mut sums[u - whole], u);
            }
        }
        let left = &x[units * PAD..];
        if left.is_empty() { 0.0 } else { super::eight::<C>(&row[units * C::BYTES..]).iter().zip(left).map(|(w, x)| w * x).sum() }
    }

    /// Adds up the four registers and their lanes in a fixed order.
    #[inline(always)]
    unsafe fn total(sums: [__m256; REGISTERS]) -> f32 {
        let mut lanes = [0f32; PAD];
        // SAFETY: the caller has checked the CPU's features. `lanes` has room for one register.
        unsafe {
            let sum = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
            _mm256_storeu_ps(lanes.as_mut_ptr(), sum);
        }
        lanes.iter().sum()
    }
}
