//! Four bits, a scale for 64 numbers, either sign.
//!
//! A code c stands for (c − 8) / 8, from −1 to 7/8. The scale is the one that leaves the smallest squared error, among those
//! that give the largest magnitude a code near −8 or 8.

use super::codes::{Codes, Loops};
use super::{Format, PAD, Scaling, nibbles};
use crate::error::Result;

pub struct I4;

const ONE: f32 = 8.0;

impl Codes for I4 {
    const BYTES: usize = nibbles::BYTES;

    fn eight(unit: &[u8]) -> [f32; PAD] {
        let word = nibbles::word(unit);
        std::array::from_fn(|i| (nibbles::code(word, i) as f32 - ONE) / ONE)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(unit: *const u8) -> std::arch::x86_64::__m256 {
        use std::arch::x86_64::*;
        // SAFETY: the caller's.
        unsafe { _mm256_fmadd_ps(_mm256_cvtepi32_ps(nibbles::lanes(unit)), _mm256_set1_ps(1.0 / ONE), _mm256_set1_ps(-1.0)) }
    }
}

fn nearest(x: f32) -> f32 {
    (x * ONE).round().clamp(-ONE, ONE - 1.0)
}

impl Format for I4 {
    fn name(&self) -> &'static str {
        "i4"
    }

    fn bits(&self) -> usize {
        4
    }

    fn scaling(&self) -> Scaling {
        Scaling::Blocks
    }

    fn largest(&self) -> f32 {
        (ONE - 1.0) / ONE
    }

    /// Tries some codes for the largest magnitude, each with the scale that fits best what all codes are then: Σ xq / Σ q², which
    /// takes (Σ xq)² / Σ q² off the squared error.
    fn scale(&self, numbers: &[f32]) -> f32 {
        const TRIED: [f32; 9] = [-9.0, -8.5, -8.0, -7.5, -7.0, 7.0, 7.25, 7.5, 8.0];
        let most = numbers.iter().copied().fold(0f32, |most, x| if x.abs() > most.abs() { x } else { most });
        let (mut best, mut taken_off) = (0.0, 0.0);
        for code in TRIED {
            let inverse = code / ONE / most;
            let (mut xq, mut qq) = (0f32, 0f32);
            for &x in numbers {
                let q = nearest(x * inverse) / ONE;
                xq += x * q;
                qq += q * q;
            }
            if xq * xq > taken_off * qq {
                (best, taken_off) = (xq / qq, xq * xq / qq);
            }
        }
        best
    }

    fn encode(&self, row: &[f32], out: &mut Vec<u8>) -> Result<()> {
        nibbles::pack(row.iter().map(|&x| (nearest(x) + ONE) as u32), out);
        Ok(())
    }

    fn loops(&self) -> Loops {
        Loops::of::<I4>()
    }
}
