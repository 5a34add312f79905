//! The order of codes of 2, 3, 5 and 6 bits on a device. A unit is eight codes of one row. A cell is four units of each of four rows, and takes as
//! many words of 16 bytes as a code has bits. All cells of the same four rows are consecutive.
//!
//! A cell begins with the low bits of all codes: one word per unit for four bits, one word per two units for two bits. The high bits follow: one word
//! per two units for two bits, one word per cell for one bit. A word consists of four numbers of 32 bits. `shaders/matrix/cells.wgsl` reads the same
//! layout:
//!
//! | bits | place of the bits of code j, unit u (0 to 3), row r (0 to 3) |
//! |---|---|
//! | four | word u, number r, bits from 4 j on |
//! | two | word u / 2, number 2 (u % 2) + r / 2, bits from 4 j + 2 (r % 2) on |
//! | one | number u, bit 4 j + r |
//!
//! In a number, the codes of one row have equal distances, so that a kernel moves the bits of eight codes at once.

use crate::quant::Format;

/// The size in bytes of a word, the unit that kernels load from memory.
pub const WORD_BYTES: usize = 16;
/// The number of units of a row in a cell.
pub const UNITS: usize = 4;
/// The number of rows in a cell.
const ROWS: usize = 4;

/// Returns how many low bits and how many high bits a code has, or `None` if codes of the format are not stored in cells.
pub fn planes(format: &dyn Format) -> Option<[usize; 2]> {
    match format.bits() {
        2 => Some([2, 0]),
        3 => Some([2, 1]),
        5 => Some([4, 1]),
        6 => Some([4, 2]),
        _ => None,
    }
}

/// Adds the codes of unit `unit` of row `row` to `placed`, which has rows of `n` units. `bytes` is the unit: low bits of all codes, then high bits.
pub fn place([low, high]: [usize; 2], bytes: &[u8], row: usize, unit: usize, n: usize, placed: &mut [u8]) {
    let cell = (row / ROWS * n.div_ceil(UNITS) + unit / UNITS) * (low + high);
    let (r, u) = (row % ROWS, unit % UNITS);
    let mut first = cell;
    for (bits, bytes) in [(low, &bytes[..low]), (high, &bytes[low..])] {
        let number = bytes.iter().rev().fold(0u32, |number, byte| number << 8 | u32::from(*byte));
        let (word, at, number) = match bits {
            4 => (u, r, number),
            2 => (u / 2, 2 * (u % 2) + r / 2, spread_pairs(number) << (2 * (r % 2))),
            1 => (0, u, spread_bits(number) << r),
            _ => continue,
        };
        let to = &mut placed[(first + word) * WORD_BYTES + 4 * at..][..4];
        to.iter_mut().zip(number.to_le_bytes()).for_each(|(to, byte)| *to |= byte);
        first += bits;
    }
}

/// Spreads eight pairs of bits: moves pair j from bit 2 j to bit 4 j.
fn spread_pairs(x: u32) -> u32 {
    let x = (x | x << 8) & 0x00ff_00ff;
    let x = (x | x << 4) & 0x0f0f_0f0f;
    (x | x << 2) & 0x3333_3333
}

/// Spreads eight bits: moves bit j to bit 4 j.
fn spread_bits(x: u32) -> u32 {
    let x = (x | x << 12) & 0x000f_000f;
    let x = (x | x << 6) & 0x0303_0303;
    (x | x << 3) & 0x1111_1111
}
