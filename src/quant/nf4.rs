//! The weight format `nf4` (NormalFloat). A code of four bits is an index into a table of sixteen quantiles of a normal distribution. The table
//! is from the QLoRA paper, appendix E. Each block of 64 weights has one scale: its largest magnitude or,
//! with an importance of each column, the best of several scales.

use super::block_scales::OneScale;
use super::gguf::search;
use super::units::Codes;
use super::{Format, Loops, PAD, Scaling, WEIGHTS_PER_BLOCK, nibbles};
use crate::error::Result;

/// The weight format `nf4`.
pub struct Nf4;

/// The values of the codes 0 to 15. The shaders `weight/nf4` and `weight/nf4_table` contain the same values.
const TABLE: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// Byte b of the table's entry c is `TABLE_BYTES[b][c]`. A register holds the bytes b of all entries.
#[cfg(has_neon)]
const TABLE_BYTES: [[u8; 16]; 4] = {
    let (mut bytes, mut i) = ([[0; 16]; 4], 0);
    while i < 64 {
        bytes[i % 4][i / 4] = TABLE[i / 4].to_le_bytes()[i % 4];
        i += 1;
    }
    bytes
};

impl Codes for Nf4 {
    const BYTES: usize = nibbles::BYTES;

    const SUB: usize = WEIGHTS_PER_BLOCK;

    const HAS_COLUMNS: bool = true;

    const HAS_FEW: bool = !cfg!(target_family = "wasm");

    #[inline(always)]
    fn eight(unit: &[u8]) -> [f32; PAD] {
        let word = nibbles::word(unit);
        std::array::from_fn(|i| TABLE[nibbles::code(word, i) as usize])
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(unit: *const u8) -> std::arch::x86_64::__m256 {
        // SAFETY: the caller guarantees the CPU's features and a whole unit.
        unsafe { nibbles::look_up(unit, &TABLE) }
    }

    #[cfg(all(target_arch = "x86_64", has_avx512))]
    #[allow(clippy::incompatible_msrv, reason = "compiled only if the standard library has AVX-512")]
    #[inline(always)]
    unsafe fn load_two(units: *const u8) -> std::arch::x86_64::__m512 {
        // SAFETY: the caller guarantees the CPU's features and two whole units.
        unsafe { nibbles::look_up_two(units, std::arch::x86_64::_mm512_loadu_ps(TABLE.as_ptr())) }
    }

    /// Looks up each byte of the values in a table of its own, and then joins the bytes.
    #[cfg(has_neon)]
    #[inline(always)]
    unsafe fn load_neon(units: *const u8) -> super::units::neon::Neon {
        use std::arch::aarch64::*;
        // SAFETY: the caller guarantees two whole units, and each table has sixteen bytes.
        unsafe {
            let codes = nibbles::bytes(units);
            let [b0, b1, b2, b3] = TABLE_BYTES.each_ref().map(|table| vqtbl1q_u8(vld1q_u8(table.as_ptr()), codes));
            let join = |low, high| [vzip1q_u8(low, high), vzip2q_u8(low, high)].map(|pairs| vreinterpretq_u16_u8(pairs));
            let (low, high) = (join(b0, b1), join(b2, b3));
            [vzip1q_u16(low[0], high[0]), vzip2q_u16(low[0], high[0]), vzip1q_u16(low[1], high[1]), vzip2q_u16(low[1], high[1])]
                .map(|four| vreinterpretq_f32_u16(four))
        }
    }
}

/// Returns the code whose value is nearest to `x`: the number of midpoints below x. A midpoint is halfway between two adjacent table entries.
fn nearest(x: f32) -> u8 {
    TABLE.windows(2).filter(|w| (w[0] + w[1]) / 2.0 < x).count() as u8
}

impl Format for Nf4 {
    fn name(&self) -> &'static str {
        "nf4"
    }

    fn about(&self) -> &'static str {
        "4 bits, NormalFloat"
    }

    fn bits(&self) -> usize {
        4
    }

    fn scaling(&self) -> Scaling {
        Scaling::Blocks
    }

    fn largest(&self) -> f32 {
        1.0
    }

    /// Without an importance, the scale is the largest magnitude, as the format's authors define it.
    fn scale(&self, numbers: &[f32], importance: Option<&[f32]>) -> f32 {
        match importance {
            Some(w) => search::scale(numbers, w, nearest, 1.0, &|code| TABLE[usize::from(code)]),
            None => numbers.iter().fold(0f32, |most, x| most.max(x.abs())),
        }
    }

    fn encode(&self, row: &[f32], out: &mut Vec<u8>) -> Result<()> {
        nibbles::pack(row.iter().map(|&x| u32::from(nearest(x))), out);
        Ok(())
    }

    fn loops(&self) -> Loops {
        Loops::of::<Nf4, OneScale<WEIGHTS_PER_BLOCK>>()
    }
}
