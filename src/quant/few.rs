//! Multiplies encoded rows by the activations of a few tokens. Each weight is decoded in a register and multiplied at once. For more tokens,
//! [`super::product`] first decodes the weights into a *panel*, a buffer in the CPU's cache. A panel pays only if many tokens read it.
//!
//! The sums have the same bits as the sums of [`tile::multiply`](super::tile::multiply).

use super::block_scales::{DEPTH, Expanded};
use super::codes::UNITS;
use super::isa::{self, Body, Isa, LANES, SimdVector};
use super::tile::STRIP;
use super::units::Codes;
use super::{RowFactors, WEIGHTS_PER_BLOCK};
use std::marker::PhantomData;

/// The largest number of tokens with a loop of its own. In a module for browsers, more loops would take more room than their speed is worth.
const COMPILED: usize = if cfg!(has_simd128) { 1 } else { 8 };

/// Returns the largest number of tokens that [`Multiply`] takes. With wide registers, the sums of eight tokens and two rows stay in registers.
pub fn most(isa: Isa) -> usize {
    match isa {
        #[cfg(all(target_arch = "x86_64", has_avx512))]
        Isa::Avx512 => 8,
        _ => COMPILED.min(4),
    }
}

/// The number of rows that are multiplied together if there are more than four tokens, so that all sums stay in registers.
const HALF: usize = STRIP / 2;
/// Codes are prefetched at least this many bytes ahead of the loop.
const AHEAD: usize = 12 << 10;

/// Some encoded rows, and the activations that they are multiplied by.
pub struct RowBlock<'a> {
    /// The number of rows, a multiple of [`STRIP`].
    pub n: usize,
    /// The codes of the rows. Codes of later rows may follow; they are only prefetched into the cache.
    pub codes: &'a [u8],
    pub row_bytes: usize,
    pub factors: RowFactors<'a>,
    /// The number of columns, a multiple of [`LANES`].
    pub width: usize,
    /// The number of columns that are multiplied at a time, a multiple of [`WEIGHTS_PER_BLOCK`] and at most [`DEPTH`]. Their products are added up in registers, and the
    /// sum is then added to the result.
    pub depth: usize,
    /// The activations of at most [`most`] tokens. The activations of token t begin at index `t * x_stride` and have at least `width` floats.
    pub x: &'a [f32],
    pub x_stride: usize,
}

/// A function `(isa, rows, out, out_stride)` that adds `Σ over j of w[i][j] x[t][j]` to `out[t * out_stride + i]`, for all rows i and tokens t. w are
/// the decoded weights of `rows`, x their activations. The number of tokens is `out.len() / out_stride`, rounded up.
pub type Multiply = fn(Isa, RowBlock<'_>, &mut [f32], usize);

/// Returns the [`Multiply`] function of the format whose units `C` describes.
pub(super) fn multiply_of<C: Codes>() -> Multiply {
    |isa, rows, out, out_stride| {
        let codes = PhantomData::<C>;
        match out.len().div_ceil(out_stride) {
            1 => isa.with(Few::<C, 1, STRIP> { rows, out, out_stride, codes }),
            2 if COMPILED > 1 => isa.with(Few::<C, 2, STRIP> { rows, out, out_stride, codes }),
            3 if COMPILED > 1 => isa.with(Few::<C, 3, STRIP> { rows, out, out_stride, codes }),
            4 if COMPILED > 1 => isa.with(Few::<C, 4, STRIP> { rows, out, out_stride, codes }),
            5 => isa.with_wide(Few::<C, 5, HALF> { rows, out, out_stride, codes }),
            6 => isa.with_wide(Few::<C, 6, HALF> { rows, out, out_stride, codes }),
            7 => isa.with_wide(Few::<C, 7, HALF> { rows, out, out_stride, codes }),
            8 => isa.with_wide(Few::<C, 8, HALF> { rows, out, out_stride, codes }),
            n => panic!("expected 1 to {} tokens, found {n}", most(isa)),
        }
    }
}

/// The arguments of a [`Multiply`] function for `T` tokens, which multiplies `R` rows at a time.
struct Few<'a, C, const T: usize, const R: usize> {
    rows: RowBlock<'a>,
    out: &'a mut [f32],
    out_stride: usize,
    codes: PhantomData<C>,
}

impl<C: Codes, const T: usize, const R: usize> Body for Few<'_, C, T, R> {
    #[inline(always)]
    unsafe fn call<V: SimdVector>(mut self) {
        let r = &self.rows;
        assert!(r.n.is_multiple_of(STRIP) && r.width.is_multiple_of(LANES) && r.depth.is_multiple_of(WEIGHTS_PER_BLOCK));
        assert!(r.width / LANES * UNITS * C::BYTES <= r.row_bytes && r.codes.len() >= r.n * r.row_bytes);
        assert!(r.x.len() >= (T - 1) * r.x_stride + r.width);
        // SAFETY: the caller guarantees the CPU's instructions, and the slices hold all rows, as checked here.
        unsafe {
            // A format's constants decide which loops are compiled.
            match r.factors {
                RowFactors::One if C::SUB == 0 => self.rows::<V>(|_, _, _| {}, |values, _, _, _| values),
                RowFactors::Blocks(items, n, blocks) if C::SUB != 0 => {
                    assert!(r.depth <= DEPTH && n >= blocks.per_row(r.width) && items.len() >= r.n * n);
                    assert!((blocks.sub, blocks.has_minima) == (C::SUB, C::HAS_MINIMA));
                    let width = r.width;
                    let expand = |row: usize, first: usize, to: &mut Expanded| {
                        let own = &items[row * n..][first / blocks.len * blocks.items..n];
                        (blocks.expand)(own, (width - first).min(DEPTH).div_ceil(C::SUB), to);
                    };
                    // `column` is below DEPTH, so the index is below the number of factors.
                    let scale = |values: V, own: &Expanded, _: usize, column: usize| {
                        let sub = column / C::SUB;
                        let factor = V::splat(*own.factors.get_unchecked(sub));
                        if C::HAS_MINIMA { values.mul_add(factor, V::splat(-*own.minima.get_unchecked(sub))) } else { values.mul(factor) }
                    };
                    self.rows::<V>(expand, scale);
                }
                RowFactors::Each(scales) if C::HAS_COLUMNS => {
                    assert!(scales.len() >= r.width);
                    let scale = |values: V, _: &Expanded, first, column| values.mul(V::load(&*scales.as_ptr().add(first + column).cast()));
                    self.rows::<V>(|_, _, _| {}, scale);
                }
                _ => unreachable!("a format has only its own scales"),
            }
        }
    }
}

impl<C: Codes, const T: usize, const R: usize> Few<'_, C, T, R> {
    /// Multiplies all rows, `depth` columns at a time. `expand(row, first, own)` expands the scales of a row's columns from `first` on. Then
    /// `scale(values, own, first, column)` turns the 16 values from column `first + column` of the row on into weights.
    #[inline(always)]
    unsafe fn rows<V: SimdVector>(
        &mut self,
        expand: impl Fn(usize, usize, &mut Expanded),
        scale: impl Fn(V, &Expanded, usize, usize) -> V,
    ) {
        let mut own: [Expanded; R] = std::array::from_fn(|_| Expanded::default());
        for strip in (0..self.rows.n).step_by(R) {
            for first in (0..self.rows.width).step_by(self.rows.depth) {
                own.iter_mut().enumerate().for_each(|(i, own)| expand(strip + i, first, own));
                // SAFETY: `call` has checked the lengths of the slices.
                let sums = unsafe { self.sums(strip, first, |values, i, column| scale(values, &own[i], first, column)) };
                for (t, sums) in sums.into_iter().enumerate() {
                    for (out, sum) in self.out[t * self.out_stride + strip..].iter_mut().zip(sums) {
                        // SAFETY: the caller guarantees the CPU's instructions.
                        *out += unsafe { sum.total() };
                    }
                }
            }
        }
    }

    /// Returns the sums of the rows `strip .. strip + R` for each token, over at most `depth` columns from `first` on. Each sum is a vector of 16
    /// partial sums. `scale(values, i, column)` turns the values of row `strip + i` from column `first + column` on into weights.
    #[inline(always)]
    unsafe fn sums<V: SimdVector>(&self, strip: usize, first: usize, scale: impl Fn(V, usize, usize) -> V) -> [[V; R]; T] {
        let r = &self.rows;
        let block_bytes = WEIGHTS_PER_BLOCK / LANES * UNITS * C::BYTES;
        // The rows of a strip are read side by side, but prefetched in the order of memory, as the CPU's own prefetching does. The last rows begin far
        // into the strip, so the whole strip is prefetched before it is read.
        let ahead = AHEAD.next_multiple_of(R * r.row_bytes);
        let end = r.width.min(first + r.depth);
        // SAFETY: `call` has checked the lengths of the slices. Fetches may be of any address.
        unsafe {
            let mut sums = [[V::splat(0.0); R]; T];
            for block in (first..end).step_by(WEIGHTS_PER_BLOCK) {
                let at = strip * r.row_bytes + ahead + block / WEIGHTS_PER_BLOCK * R * block_bytes;
                isa::prefetch(r.codes.as_ptr().wrapping_add(at), R * block_bytes);
                let end = end.min(block + WEIGHTS_PER_BLOCK);
                let mut column = block;
                if V::REGISTER >= C::SIGNED_FROM {
                    while column + 2 * LANES <= end {
                        let scale = |values: V, i: usize, column: usize| scale(values, i, column - first);
                        // Narrow registers cannot hold the weights of all rows.
                        if V::REGISTER == LANES {
                            self.pairs::<V, R>(strip, 0, column, &mut sums, scale);
                        } else {
                            for i in 0..R {
                                self.pairs::<V, 1>(strip, i, column, &mut sums, scale);
                            }
                        }
                        column += 2 * LANES;
                    }
                }
                while column < end {
                    let x: [V; T] = std::array::from_fn(|t| self.x(t, column));
                    for i in 0..R {
                        let w = scale(V::decode::<C>(self.units(strip + i, column)), i, column - first);
                        for (sums, &x) in sums.iter_mut().zip(&x) {
                            sums[i] = w.mul_add(x, sums[i]);
                        }
                    }
                    column += LANES;
                }
            }
            sums
        }
    }

    /// Adds the products of 32 columns from `column` on to the sums of the rows `strip + i .. strip + i + G`. `scale` has the arguments `(values, i, column)`.
    #[inline(always)]
    unsafe fn pairs<V: SimdVector, const G: usize>(
        &self,
        strip: usize,
        i: usize,
        column: usize,
        sums: &mut [[V; R]; T],
        scale: impl Fn(V, usize, usize) -> V,
    ) {
        // SAFETY: `call` has checked the lengths of the slices.
        unsafe {
            let mut units = [std::ptr::null(); G];
            for (g, units) in units.iter_mut().enumerate() {
                *units = self.units(strip + i + g, column);
            }
            let mut w = V::decode_pairs::<C, G>(units);
            for (g, pair) in w.iter_mut().enumerate() {
                for (values, column) in pair.iter_mut().zip([column, column + LANES]) {
                    *values = scale(*values, i + g, column);
                }
            }
            for (h, column) in [column, column + LANES].into_iter().enumerate() {
                for (t, sums) in sums.iter_mut().enumerate() {
                    let x: V = self.x(t, column);
                    for (sum, pair) in sums[i..i + G].iter_mut().zip(&w) {
                        *sum = pair[h].mul_add(x, *sum);
                    }
                }
            }
        }
    }

    /// Returns the units of row `i` from column `column` on.
    #[inline(always)]
    unsafe fn units(&self, i: usize, column: usize) -> *const u8 {
        // SAFETY: `call` has checked the length of the codes.
        unsafe { self.rows.codes.as_ptr().add(i * self.rows.row_bytes + column / LANES * UNITS * C::BYTES) }
    }

    /// Loads the activations of token `t` from column `column` on.
    #[inline(always)]
    unsafe fn x<V: SimdVector>(&self, t: usize, column: usize) -> V {
        // SAFETY: `call` has checked the length of the activations.
        unsafe { V::load(&*self.rows.x.as_ptr().add(t * self.rows.x_stride + column).cast()) }
    }
}
