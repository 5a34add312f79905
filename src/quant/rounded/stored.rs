//! Striped codes: codes in the order in which strips multiply them, so that a processor reads one stream and transposes nothing.
//!
//! A block of a strip has eight vectors. A vector has four columns of each row: vectors 2 u and 2 u + 1 have the even and the odd columns of unit u.
//! The parts of a vector's codes are stored as follows; a byte holds the same column of several vectors:
//!
//! | bits of a part | bytes | byte |
//! |--:|--:|:--|
//! | 8 | eight times 64 | the code of one vector |
//! | 4 | four times 64 | vectors 2 u and 2 u + 1, from the lowest bits on |
//! | 2 | twice 64 | vectors 4 h to 4 h + 3 |
//! | 1 | 64 | vectors 0 to 7 |
//!
//! First come the low parts of all codes, then the high parts.

use super::super::block_scales::STRIP_ROWS as ROWS;
use super::super::units::Codes;
use super::super::{Format, PAD};
use super::{Dots, LANES_PER_BLOCK, PER_LANE};
use bytemuck::{Pod, Zeroable};
use half::f16;
use rayon::prelude::*;

/// The number of units in a block.
const UNITS: usize = LANES_PER_BLOCK * PER_LANE / PAD;
/// The number of codes in a vector.
const VECTOR: usize = ROWS * PER_LANE;

/// A change of this bit adds 128 to a number from −128 to 127.
pub(super) const HIGHEST: u8 = 0x80;

/// Four columns of each row.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Columns(pub [[u8; PER_LANE]; ROWS]);

/// A function `(codes, row_bytes, to)` that writes the striped codes of one strip. `codes` are its rows, one after the other.
pub type Stripe = fn(&[u8], usize, &mut [u8]);

/// Returns the function for the format whose units `C` describes. Returns `None` in a build for browsers, or if `Codes::IS_WHOLE` is false.
pub fn stripe_of<C: Codes>() -> Option<Stripe> {
    if !C::IS_WHOLE || cfg!(target_family = "wasm") {
        return None;
    }
    Some(|codes, row_bytes, to| {
        let rows = codes.len() / row_bytes;
        for i in 0..ROWS {
            // If the last strip has too few rows, the last row takes the place of each missing row. Units that a row lacks stay 0.
            let row = &codes[i.min(rows - 1) * row_bytes..][..row_bytes];
            for (blocks, to) in row.chunks(UNITS * C::BYTES).zip(to.chunks_exact_mut(VECTOR * C::BYTES)) {
                for (u, unit) in blocks.chunks_exact(C::BYTES).enumerate() {
                    for (column, code) in C::raw(unit).into_iter().enumerate() {
                        let (vector, at) = (2 * u + column % 2, i * PER_LANE + column / 2);
                        let [low, high] = C::PLANES;
                        put(to, low, vector, at, code & (u8::MAX >> (8 - low)));
                        if high > 0 {
                            put(&mut to[VECTOR * low..], high, vector, at, code >> low);
                        }
                    }
                }
            }
        }
    })
}

/// Writes `part`, which has `bits` bits, for code `at` of a vector. The bits of `to` that it takes must be 0.
fn put(to: &mut [u8], bits: usize, vector: usize, at: usize, part: u8) {
    let per_byte = 8 / bits;
    to[vector / per_byte * VECTOR + at] |= part << (vector % per_byte * bits);
}

/// Returns how many bytes `units` units of the rows of a strip take. `unit_bytes` is the size of a unit.
pub fn bytes_of(units: usize, unit_bytes: usize) -> usize {
    units.div_ceil(UNITS) * VECTOR * unit_bytes
}

/// Returns how many bytes the codes of a strip take, or `None` if this CPU or the format has no striped codes. `row_bytes` is the size of a row.
pub fn strip_bytes(format: &dyn Format, row_bytes: usize) -> Option<usize> {
    let unit_bytes = format.size_bytes(PAD);
    (format.loops().stripe.is_some() && Dots::best().reads_stripes()).then(|| bytes_of(row_bytes / unit_bytes, unit_bytes))
}

/// Writes the striped codes of a matrix. `to` must be all zeros, and have [`strip_bytes`] bytes per strip of 16 rows, also for an incomplete last
/// strip.
pub fn stripe(format: &dyn Format, row_bytes: usize, codes: &[u8], to: &mut [u8]) {
    let (Some(stripe), Some(bytes)) = (format.loops().stripe, strip_bytes(format, row_bytes)) else {
        unreachable!("the caller asks for the size first");
    };
    to.par_chunks_mut(bytes).zip(codes.par_chunks(ROWS * row_bytes)).for_each(|(to, codes)| stripe(codes, row_bytes, to));
}

/// Reorders the items of a matrix's scales from `[rows, per_row]` to `[strips, per_row, ROWS]`, the order in which strips read them. If the last
/// strip has fewer than `ROWS` rows, each missing row gets the items of the last row.
pub fn stripe_items(items: &[f16], per_row: usize) -> Vec<f16> {
    let rows = items.len() / per_row;
    let strips = (0..rows).step_by(ROWS);
    let at = |first: usize| (0..per_row * ROWS).map(move |i| (first + i % ROWS).min(rows - 1) * per_row + i / ROWS);
    strips.flat_map(at).map(|i| items[i]).collect()
}

/// Writes the values of rows `i .. i + 8` to the blocks in `to`. `codes` begins with the first block. With `UNSIGNED`, adds 128 to each value.
///
/// # Safety
/// The CPU has AVX2, and `codes` has all blocks.
#[inline(always)]
pub unsafe fn arrange<C: Codes, const UNSIGNED: bool>(codes: &[u8], i: usize, to: &mut [Columns]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller guarantees AVX2 and the codes.
    unsafe {
        x86::arrange::<C, UNSIGNED>(codes.as_ptr(), i, to);
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("only loops for x86-64 read striped codes: {} {i} {}", codes.len(), to.len());
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use crate::quant::isa;
    use std::arch::x86_64::*;

    /// Codes are prefetched this many bytes ahead.
    const AHEAD: usize = 12 << 10;

    // SAFETY of all functions: the caller guarantees AVX2 and the codes.

    /// Does what [`super::arrange`] does.
    #[inline(always)]
    pub unsafe fn arrange<C: Codes, const UNSIGNED: bool>(codes: *const u8, i: usize, to: &mut [Columns]) {
        // SAFETY: the caller guarantees the codes of all blocks. Fetches may be of any address.
        unsafe {
            let highest = _mm256_set1_epi8(if UNSIGNED { HIGHEST as i8 } else { 0 });
            for (b, to) in to.as_chunks_mut::<LANES_PER_BLOCK>().0.iter_mut().enumerate() {
                let block = codes.add(b * VECTOR * C::BYTES);
                if i == 0 {
                    isa::prefetch(block.wrapping_add(AHEAD), VECTOR * C::BYTES);
                }
                for (v, to) in to.iter_mut().enumerate() {
                    let [low, high] = C::PLANES;
                    let mut codes = part(block, low, v, i);
                    if high > 0 {
                        let high = part(block.add(VECTOR * low), high, v, i);
                        codes = _mm256_or_si256(codes, _mm256_sll_epi16(high, _mm_cvtsi32_si128(low as i32)));
                    }
                    let values = _mm256_xor_si256(C::values(codes), highest);
                    _mm256_storeu_si256(to.0.as_mut_ptr().add(i).cast(), values);
                }
            }
        }
    }

    /// Loads the parts of `bits` bits of vector `v`, of eight rows from `i` on.
    #[inline(always)]
    unsafe fn part(from: *const u8, bits: usize, v: usize, i: usize) -> __m256i {
        let per_byte = 8 / bits;
        // SAFETY: the caller guarantees a whole block.
        unsafe {
            let bytes = _mm256_loadu_si256(from.add(v / per_byte * VECTOR + i * PER_LANE).cast());
            if bits == 8 {
                return bytes;
            }
            let shifted = _mm256_srl_epi16(bytes, _mm_cvtsi32_si128((v % per_byte * bits) as i32));
            _mm256_and_si256(shifted, _mm256_set1_epi8((1 << bits) - 1))
        }
    }
}
