//! Matrix products on the CPU. The matrix has any format, the activations are f32.
//!
//! For a few tokens, a product consists of one dot product per row and token. Each thread takes some of the rows, and each row is read once.
//! For many tokens, rows are decoded in groups, and the crate `matrixmultiply` multiplies each group. Batch-invariant products always use dot
//! products.

use super::{Format, Scales, WEIGHTS_PER_BLOCK};
use rayon::prelude::*;

/// The smallest number of tokens for which a product of decoded rows is faster than dot products of codes.
const DENSE_FROM: usize = 6;
/// The number of rows that one task of the thread pool multiplies. A block along a column has 64 rows, a multiple of `TASK`. So all rows of a
/// task are in the same block of each column and share that block's scale.
const TASK: usize = 32;
const _: () = assert!(WEIGHTS_PER_BLOCK.is_multiple_of(TASK));

/// A matrix in host memory, as codes and scales.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    pub format: &'a dyn Format,
    /// The number of codes in a stored row, including padding.
    pub k: usize,
    /// The codes, `[rows, k]`, row-major.
    pub codes: &'a [u8],
    pub scales: &'a Scales,
}

impl Weights<'_> {
    /// Returns how many bytes the codes of a row take.
    fn row_bytes(&self) -> usize {
        self.format.size_bytes(self.k)
    }

    /// Decodes row `i` and applies its scales.
    pub fn row(&self, i: usize, out: &mut [f32]) {
        let size = self.row_bytes();
        self.format.decode(&self.codes[i * size..(i + 1) * size], out);
        self.scales.apply(i, out);
    }

    /// Computes `out[t][row] = Σ over k of W[row, k] x[t][k]` for each token `t`. Every `out[t]` has one element per row of W. If `x[t]` is
    /// shorter than a stored row, the end of the stored row is padding and is ignored. If `batch_invariant` is true, the result for a token does
    /// not depend on the number of tokens.
    pub fn product(&self, x: &[&[f32]], out: &mut [&mut [f32]], batch_invariant: bool) {
        let Some(rows) = out.first().map(|o| o.len()) else { return };
        let n = x.len();
        // The layout is [rows, n], so that each task writes one contiguous range.
        let mut sums = vec![0f32; rows * n];
        if n < DENSE_FROM || batch_invariant {
            self.few(x, &mut sums)
        } else {
            self.many(x, &mut sums)
        }
        for (t, out) in out.iter_mut().enumerate() {
            for (o, sums) in out.iter_mut().zip(sums.chunks_exact(n)) {
                *o = sums[t];
            }
        }
    }

    /// Computes the dot product of every row and every `x[t]` into `sums`, which is `[rows, number of tokens]`. If columns have scales, `x` is
    /// multiplied by these scales first.
    fn few(&self, x: &[&[f32]], sums: &mut [f32]) {
        let n = x.len();
        let scaled = |by: &[f32]| x.iter().map(|x| x.iter().zip(by).map(|(x, s)| x * s).collect()).collect::<Vec<Vec<f32>>>();
        let whole = match self.scales {
            Scales::Affine { ry, .. } => scaled(ry),
            _ => vec![],
        };
        let sums_of = |x: &[f32], by: &[f32]| x.iter().zip(by).map(|(x, m)| x * m).sum::<f32>();
        let offsets: Vec<[f32; 2]> = match self.scales {
            Scales::Affine { my, .. } => x.iter().map(|x| [x.iter().sum(), sums_of(x, my)]).collect(),
            _ => vec![],
        };
        let each = |task: usize, sums: &mut [f32], dot: &dyn Fn(usize, &[u8], usize) -> f32| {
            for (i, sums) in sums.chunks_exact_mut(n).enumerate() {
                let row = task * TASK + i;
                let codes = &self.codes[row * self.row_bytes()..][..self.row_bytes()];
                sums.iter_mut().enumerate().for_each(|(t, sum)| *sum = dot(row, codes, t));
            }
        };
        sums.par_chunks_mut(TASK * n).enumerate().for_each(|(task, sums)| match self.scales {
            Scales::None => each(task, sums, &|_, codes, t| self.format.dot(codes, x[t])),
            Scales::Rows(scales) => {
                let blocks = self.k.div_ceil(WEIGHTS_PER_BLOCK);
                each(task, sums, &|row, codes, t| self.format.dot_blocks(codes, &scales[row * blocks..][..blocks], x[t]));
            }
            Scales::Columns(scales) => {
                let x = scaled(&scales[task * TASK / WEIGHTS_PER_BLOCK * self.k..][..self.k]);
                each(task, sums, &|_, codes, t| self.format.dot(codes, &x[t]));
            }
            Scales::Affine { rx, mx, .. } => each(task, sums, &|row, codes, t| {
                let [sum, of_columns] = offsets[t];
                rx[row] * self.format.dot(codes, &whole[t]) + mx[row] * sum + of_columns
            }),
        });
    }

    /// Decodes groups of rows, and multiplies every decoded row by every `x[t]` into `sums`, which is `[rows, number of tokens]`.
    fn many(&self, x: &[&[f32]], sums: &mut [f32]) {
        let (n, k) = (x.len(), self.k);
        let width = x[0].len().min(k);
        let flat: Vec<f32> = x.iter().flat_map(|x| &x[..width]).copied().collect();
        sums.par_chunks_mut(TASK * n).enumerate().for_each_init(
            || vec![0f32; TASK * k],
            |block, (task, sums)| {
                let rows = sums.len() / n;
                block.chunks_exact_mut(k).take(rows).enumerate().for_each(|(i, row)| self.row(task * TASK + i, row));
                // SAFETY: block is [rows, k], flat is [n, width] with width <= k, sums is [rows, n]; strides match.
                unsafe {
                    matrixmultiply::sgemm(
                        rows,
                        width,
                        n,
                        1.0,
                        block.as_ptr(),
                        k as isize,
                        1,
                        flat.as_ptr(),
                        1,
                        width as isize,
                        0.0,
                        sums.as_mut_ptr(),
                        n as isize,
                        1,
                    );
                }
            },
        );
    }
}
