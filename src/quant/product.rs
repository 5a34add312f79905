//! Matrix products on the CPU: rows in any format, activations in f32.
//!
//! A few tokens: one dot product a row and token, rows over threads, each row read once. Many tokens: rows are decoded in
//! blocks and multiplied by a well-kept crate. The first is the only class where results must not depend on the batch.

use super::Format;
use rayon::prelude::*;

/// From so many tokens on, decoding a block of rows and calling the dense product pays.
const DENSE_FROM: usize = 6;
/// Rows a task takes.
const BLOCK: usize = 32;

/// `out[t][row] = Σ over k of W[row, k] x[t][k]`, W given as encoded rows of `k` elements (`x[t]` may be shorter: the rest of
/// a row is padding). Every `out[t]` has one element a row.
pub fn product(format: &dyn Format, weights: &[u8], k: usize, x: &[&[f32]], out: &mut [&mut [f32]], batch_invariant: bool) {
    let Some(rows) = out.first().map(|o| o.len()) else { return };
    let row_bytes = weights.len() / rows.max(1);
    let n = x.len();
    // [rows, n], so that a task writes one contiguous block.
    let mut sums = vec![0f32; rows * n];
    let tasks = sums.par_chunks_mut(BLOCK * n).zip(weights.par_chunks(BLOCK * row_bytes));
    if n < DENSE_FROM || batch_invariant {
        tasks.for_each(|(sums, weights)| {
            for (sums, row) in sums.chunks_exact_mut(n).zip(weights.chunks_exact(row_bytes)) {
                for (sum, x) in sums.iter_mut().zip(x) {
                    *sum = format.dot(row, x);
                }
            }
        });
    } else {
        let width = x[0].len().min(k);
        let flat: Vec<f32> = x.iter().flat_map(|x| &x[..width]).copied().collect();
        tasks.for_each_init(
            || vec![0f32; BLOCK * k],
            |block, (sums, weights)| {
                let rows = weights.len() / row_bytes;
                for (row, bytes) in block.chunks_exact_mut(k).zip(weights.chunks_exact(row_bytes)) {
                    format.decode(bytes, row);
                }
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
    for (t, out) in out.iter_mut().enumerate() {
        for (o, sums) in out.iter_mut().zip(sums.chunks_exact(n)) {
            *o = sums[t];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::FORMATS;

    #[test]
    fn both_classes_agree_with_a_plain_loop() {
        for format in FORMATS {
            for (rows, k, n) in [(1, 8, 1), (33, 24, 5), (70, 40, 6), (65, 72, 37)] {
                let w: Vec<f32> = (0..rows * k).map(|i| ((i * 37 % 101) as f32 - 50.0) / 64.0).collect();
                let mut bytes = Vec::new();
                format.encode(&w, &mut bytes).unwrap();
                let x: Vec<Vec<f32>> = (0..n).map(|t| (0..k).map(|i| ((i * 13 + t * 7) % 29) as f32 / 16.0 - 0.9).collect()).collect();
                let x: Vec<&[f32]> = x.iter().map(Vec::as_slice).collect();
                for batch_invariant in [false, true] {
                    let mut out = vec![vec![0.0; rows]; n];
                    let mut views: Vec<&mut [f32]> = out.iter_mut().map(Vec::as_mut_slice).collect();
                    product(*format, &bytes, k, &x, &mut views, batch_invariant);
                    for t in 0..n {
                        for r in 0..rows {
                            let expected: f32 = (0..k).map(|i| w[r * k + i] * x[t][i]).sum();
                            assert!((out[t][r] - expected).abs() < 1e-4, "{} {rows} {k} {n}", format.name());
                        }
                    }
                }
            }
        }
    }
}
