//! Rows of activations, rounded to eight bits.

use super::super::isa::{Body, Isa, SimdVector};
use super::{BLOCK, HALF};

/// Activations below this are rounded to 0 if their block has no larger ones, because 127 / x would be infinite.
const LEAST: f32 = 1e-30;
/// The largest code of an activation.
const LARGEST: f32 = 127.0;
/// Adding this number to a number from −2^22 to 2^22 rounds the latter to a whole number n, half to even. The lowest byte of the sum's bits is then the
/// lowest byte of n in two's complement.
const TO_WHOLE: f32 = 12_582_912.0;

/// Some instructions take weights from 0 to 255, so weights are stored plus 128. A sum of products is then too large by 128 Σ q. Adding
/// `UNSIGNED` times Σ q corrects it.
const UNSIGNED: i32 = -128;

/// Rows of activations x, in blocks of [`BLOCK`] columns: x = d q, where q are whole numbers from −127 to 127. d is the largest |x| of the block divided by
/// 127, and q is x / d, rounded half to even. The columns after the end of a row are 0.
///
/// A block whose numbers are all below 10^−30 has d = 0. A block with a number that is not finite has d = NaN, so that all its products are NaN.
pub struct RoundedRows {
    /// The number of rows.
    pub n: usize,
    /// The number of blocks per row.
    pub blocks: usize,
    /// The numbers q, `[n, blocks, BLOCK]`.
    pub codes: Vec<i8>,
    /// The numbers q with another order of each eight columns: the even ones, then the odd ones.
    pub split: Vec<i8>,
    /// The scales d, `[n, blocks]`.
    pub scales: Vec<f32>,
    /// The sums of each whole block.
    pub whole: Sums,
    /// The sums of each half of a block.
    pub halves: Sums,
}

/// Sums over equally large parts of all rows.
pub struct Sums {
    /// −128 Σ q, `[n, parts]`.
    pub unsigned: Vec<i32>,
    /// d Σ q, `[n, parts]`.
    pub scaled: Vec<f32>,
}

impl Sums {
    fn zeros(n: usize) -> Sums {
        Sums { unsigned: vec![0; n], scaled: vec![0.0; n] }
    }

    fn set(&mut self, part: usize, sum: i32, d: f32) {
        self.unsigned[part] = UNSIGNED * sum;
        self.scaled[part] = d * sum as f32;
    }
}

impl RoundedRows {
    pub(super) fn in_order(&self, is_split: bool) -> &[i8] {
        if is_split { &self.split } else { &self.codes }
    }

    /// Rounds rows of equal length.
    pub fn new(isa: Isa, x: &[&[f32]]) -> RoundedRows {
        let blocks = x.first().map_or(0, |x| x.len().div_ceil(BLOCK));
        let n = x.len() * blocks;
        let mut rows = RoundedRows {
            n: x.len(),
            blocks,
            codes: vec![0; n * BLOCK],
            split: vec![0; n * BLOCK],
            scales: vec![0.0; n],
            whole: Sums::zeros(n),
            halves: Sums::zeros(2 * n),
        };
        isa.with(Rounding { x, rows: &mut rows });
        rows
    }
}

/// The arguments of [`RoundedRows::new`].
struct Rounding<'a> {
    x: &'a [&'a [f32]],
    rows: &'a mut RoundedRows,
}

impl Body for Rounding<'_> {
    #[inline(always)]
    unsafe fn call<V: SimdVector>(self) {
        let mut codes = self.rows.codes.as_chunks_mut::<BLOCK>().0.iter_mut().zip(self.rows.split.as_chunks_mut::<BLOCK>().0);
        let mut b = 0;
        for x in self.x {
            let (whole, rest) = x.as_chunks::<BLOCK>();
            let mut last = [0.0; BLOCK];
            last[..rest.len()].copy_from_slice(rest);
            for x in whole.iter().chain((!rest.is_empty()).then_some(&last)) {
                let (codes, split) = codes.next().expect("a row has a code per column");
                let d = round(x, codes);
                for (split, codes) in split.as_chunks_mut::<8>().0.iter_mut().zip(codes.as_chunks::<8>().0) {
                    *split = [codes[0], codes[2], codes[4], codes[6], codes[1], codes[3], codes[5], codes[7]];
                }
                let (low, high) = codes.split_at(HALF);
                let sum = |half: &[i8]| half.iter().map(|q| i32::from(*q)).sum::<i32>();
                let (low, high) = (sum(low), sum(high));
                self.rows.scales[b] = d;
                self.rows.whole.set(b, low + high, d);
                self.rows.halves.set(2 * b, low, d);
                self.rows.halves.set(2 * b + 1, high, d);
                b += 1;
            }
        }
    }
}

/// Writes the codes of a block and returns its scale.
#[inline(always)]
fn round(x: &[f32; BLOCK], codes: &mut [i8; BLOCK]) -> f32 {
    // `other` adds up the products 0 · x: the sums are 0 if all numbers are finite, otherwise NaN.
    let mut most = [0f32; 8];
    let mut other = [0f32; 8];
    for eight in x.as_chunks::<8>().0 {
        for l in 0..8 {
            most[l] = if eight[l].abs() > most[l] { eight[l].abs() } else { most[l] };
            other[l] += 0.0 * eight[l];
        }
    }
    let most = most.iter().fold(0f32, |most, x| if *x > most { *x } else { most });
    if other.iter().any(|x| *x != 0.0) {
        return f32::NAN;
    }
    if most < LEAST {
        return 0.0;
    }
    let inverse = LARGEST / most;
    for (code, x) in codes.iter_mut().zip(x) {
        *code = (x * inverse + TO_WHOLE).to_bits() as i8;
    }
    most / LARGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_are_rounded_half_to_even() {
        let mut x = [0f32; BLOCK + 5];
        x[..8].copy_from_slice(&[127.0, -127.0, 0.5, 1.5, 2.5, -0.5, -1.5, 63.49]);
        x[BLOCK + 1] = -2.0;
        for isa in Isa::all() {
            let rows = RoundedRows::new(isa, &[&x, &x]);
            assert_eq!((rows.n, rows.blocks), (2, 2));
            assert_eq!(rows.codes[..9], [127, -127, 0, 2, 2, 0, -2, 63, 0], "{isa:?}");
            assert_eq!(rows.codes[BLOCK..BLOCK + 6], [0, -127, 0, 0, 0, 0], "{isa:?}");
            assert_eq!(rows.scales, [1.0, 2.0 / 127.0, 1.0, 2.0 / 127.0]);
            assert_eq!(rows.whole.unsigned[..2], [-128 * 65, 128 * 127]);
            assert_eq!(rows.halves.scaled[..4], [65.0, 0.0, -127.0 * (2.0 / 127.0), 0.0]);
            assert_eq!(rows.codes[..2 * BLOCK], rows.codes[2 * BLOCK..]);
        }
    }

    #[test]
    fn zeros_tiny_numbers_and_numbers_that_are_not_finite() {
        for isa in Isa::all() {
            for (x, scale) in [(0.0, 0.0), (1e-31, 0.0), (f32::NAN, f32::NAN), (f32::INFINITY, f32::NAN), (f32::MAX, f32::MAX / 127.0)] {
                let mut row = [0.0; BLOCK];
                row[3] = x;
                let rows = RoundedRows::new(isa, &[&row]);
                assert_eq!(rows.scales[0].to_bits(), f32::to_bits(scale), "{isa:?} {x}");
                assert_eq!(rows.codes[3], if x == f32::MAX { 127 } else { 0 }, "{isa:?} {x}");
            }
        }
    }
}
