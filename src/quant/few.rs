//! Products of encoded rows and few tokens. Each weight is decoded in a register and multiplied at once. This saves the panel of decoded
//! weights, which pays only if many tokens read the panel.
//!
//! The sums have the same bits as the sums of [`tile::multiply`](super::tile::multiply).

use super::codes::{UNITS, fetch};
use super::isa::{Body, Isa, LANES, Vector};
use super::tile::STRIP;
use super::units::Codes;
use super::{Factors, WEIGHTS_PER_BLOCK};
use std::marker::PhantomData;

/// The largest number of tokens that [`Multiply`] takes.
pub const MOST: usize = 4;

/// Some columns of a strip of encoded rows, and the activations that they are multiplied by.
pub struct Strip<'a> {
    /// The codes of the rows. Row i begins at byte `i * row_bytes` and has `depth` codes.
    pub codes: &'a [u8],
    pub row_bytes: usize,
    /// The factors of each row, all of one kind.
    pub factors: [Factors<'a>; STRIP],
    /// The codes that are multiplied soon, which are fetched from memory meanwhile. They have the same `row_bytes`.
    pub soon: &'a [u8],
    /// The number of columns, a multiple of [`LANES`].
    pub depth: usize,
    /// The activations, one row of at least `depth` floats per `x_stride` floats. The number of rows is at most [`MOST`].
    pub x: &'a [f32],
    pub x_stride: usize,
}

/// Adds `Σ over j of w[i][j] x[t][j]` to `out[t * out_stride + i]`, for the rows i of a strip and all tokens t: `(isa, strip, out, out_stride)`.
pub type Multiply = fn(Isa, Strip<'_>, &mut [f32], usize);

/// Returns the loop for codes of the units `C`.
pub(super) fn multiply_of<C: Codes>() -> Multiply {
    |isa, strip, out, out_stride| {
        let codes = PhantomData::<C>;
        match out.len().div_ceil(out_stride) {
            1 => isa.with(Few::<C, 1> { strip, out, out_stride, codes }),
            2 => isa.with(Few::<C, 2> { strip, out, out_stride, codes }),
            3 => isa.with(Few::<C, 3> { strip, out, out_stride, codes }),
            4 => isa.with(Few::<C, 4> { strip, out, out_stride, codes }),
            n => panic!("expected 1 to {MOST} tokens, found {n}"),
        }
    }
}

/// A strip and `T` tokens.
struct Few<'a, C, const T: usize> {
    strip: Strip<'a>,
    out: &'a mut [f32],
    out_stride: usize,
    codes: PhantomData<C>,
}

impl<C: Codes, const T: usize> Body for Few<'_, C, T> {
    #[inline(always)]
    unsafe fn call<V: Vector>(self) {
        let s = &self.strip;
        assert!(s.depth.is_multiple_of(LANES) && s.x.len() >= (T - 1) * s.x_stride + s.depth);
        assert!(s.codes.len() >= (STRIP - 1) * s.row_bytes + s.depth / LANES * UNITS * C::BYTES);
        // SAFETY: the caller guarantees the CPU's instructions, and the slices hold all rows, as checked above. Each call reads at most `depth`
        // factors of a row, whose list is as long as the row.
        let sums = unsafe {
            match s.factors {
                [Factors::One, ..] => self.sums::<V>(|_, units, _, _| V::decode::<C>(units)),
                [Factors::Blocks(a), ..] => {
                    let rows = s.factors.map(|f| if let Factors::Blocks(f) = f { f } else { a });
                    self.sums::<V>(|i, units, block, _| V::decode_times::<C>(units, rows[i][block]))
                }
                [Factors::Each(a), ..] => {
                    let rows = s.factors.map(|f| if let Factors::Each(f) = f { f } else { a });
                    self.sums::<V>(|i, units, _, column| V::decode::<C>(units).mul(V::load(&rows[i][column..].as_chunks().0[0])))
                }
            }
        };
        for (t, sums) in sums.into_iter().enumerate() {
            for (out, sum) in self.out[t * self.out_stride..].iter_mut().zip(sums) {
                // SAFETY: the caller guarantees the CPU's instructions.
                *out += unsafe { sum.total() };
            }
        }
    }
}

impl<C: Codes, const T: usize> Few<'_, C, T> {
    /// Returns the sums of each token and row. `load` loads the weights of row i from two units: `(i, units, block, column)`, where `column` is
    /// the first of these columns and `block` its block.
    #[inline(always)]
    unsafe fn sums<V: Vector>(&self, load: impl Fn(usize, *const u8, usize, usize) -> V) -> [[V; STRIP]; T] {
        let s = &self.strip;
        // SAFETY: `call` has checked the lengths of the slices.
        unsafe {
            let mut sums = [[V::splat(0.0); STRIP]; T];
            for first in (0..s.depth).step_by(WEIGHTS_PER_BLOCK) {
                let block = first / WEIGHTS_PER_BLOCK;
                for i in 0..STRIP {
                    fetch::<C>(s.soon.get(i * s.row_bytes..).unwrap_or_default(), block);
                }
                for column in (first..s.depth.min(first + WEIGHTS_PER_BLOCK)).step_by(LANES) {
                    let x: [V; T] = std::array::from_fn(|t| V::load(&*s.x.as_ptr().add(t * s.x_stride + column).cast()));
                    for i in 0..STRIP {
                        let w = load(i, s.codes.as_ptr().add(i * s.row_bytes + column / LANES * UNITS * C::BYTES), block, column);
                        for (sums, &x) in sums.iter_mut().zip(&x) {
                            sums[i] = w.mul_add(x, sums[i]);
                        }
                    }
                }
            }
            sums
        }
    }
}
