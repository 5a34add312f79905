//! The scales and offsets of the format `i8rc`: each row and each column of a matrix has one scale and one offset. RWKV's official Python package
//! (strategy `fp16i8`) computes the same scales and offsets.
//!
//! The rows of a matrix W have the offsets mx and the scales rx. The columns have the offsets my and the scales ry. If W has more columns (inputs)
//! than rows (outputs), the steps are:
//!
//! ```text
//! my = min of each column of W
//! mx = min of each row of (W − my)
//! rx = max of each row of (W − my − mx)
//! ry = max of each column of ((W − my − mx) / rx)
//! ```
//!
//! Otherwise mx is computed before my: mx = min of each row of W, then my = min of each column of (W − mx). rx and ry are computed as above.

use crate::error::{Error, Result};
use half::f16;

/// The scales rx and offsets mx of a matrix's rows, and the scales ry and offsets my of its columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Affine {
    pub rx: Vec<f32>,
    pub mx: Vec<f32>,
    pub ry: Vec<f32>,
    pub my: Vec<f32>,
    /// True if the column offset `my` is subtracted before the row offset `mx`. The order affects the rounding.
    columns_first: bool,
    /// True if [`Survey`] saw the transposed matrix. [`normalise`](Self::normalise) then divides by ry before rx, so that a matrix and its
    /// transpose have exactly the same codes.
    is_transposed: bool,
}

impl Affine {
    /// Reads the scales and offsets of a matrix `[rows, columns]`. `halves` holds the f16 values that [`stored`](Self::stored) returns for all
    /// rows of the matrix.
    pub fn from_stored(halves: &[f16], rows: usize, columns: usize) -> Affine {
        let k = (halves.len() - 2 * rows) / 2;
        let some = |at: usize, n: usize, factor: f32| halves[at..at + n].iter().map(|h| h.to_f32() * factor).collect();
        Affine {
            rx: some(0, rows, 16.0),
            mx: some(rows, rows, 1.0),
            ry: some(2 * rows, columns, 16.0),
            my: some(2 * rows + k, columns, 1.0),
            columns_first: columns > rows,
            is_transposed: false,
        }
    }

    /// Returns the scales and offsets of the transposed matrix.
    pub fn transposed(self) -> Affine {
        Affine {
            rx: self.ry,
            mx: self.my,
            ry: self.rx,
            my: self.mx,
            columns_first: !self.columns_first,
            is_transposed: !self.is_transposed,
        }
    }

    /// Returns the scales and offsets of all rows and of the columns `first .. first + n`. Columns beyond the end of the matrix are left out.
    pub fn columns(&self, first: usize, n: usize) -> Affine {
        let some = |of: &[f32]| of[first..of.len().min(first + n)].to_vec();
        Affine { ry: some(&self.ry), my: some(&self.my), ..self.clone() }
    }

    /// Replaces each weight W of row `i` by 256 · (W − mx − my) / rx / ry.
    pub fn normalise(&self, i: usize, row: &mut [f32]) {
        for ((x, my), ry) in row.iter_mut().zip(&self.my).zip(&self.ry) {
            let (rx, ry) = (divisor(self.rx[i]), divisor(*ry));
            let (first, second) = if self.is_transposed { (ry, rx) } else { (rx, ry) };
            *x = 256.0 * (self.shift(*x, i, *my) / first / second);
        }
    }

    /// Subtracts both offsets from the weight `x` of row `i`: returns x − mx − my, or x − my − mx if my was computed first.
    fn shift(&self, x: f32, i: usize, my: f32) -> f32 {
        if self.columns_first { x - my - self.mx[i] } else { x - self.mx[i] - my }
    }

    /// Returns the scales and offsets of the rows `first .. first + rows` and of all columns, as files and devices store them. The parts ry and
    /// my are filled with zeros up to `k` columns.
    ///
    /// The layout is `[rows] rx / 16, [rows] mx, [k] ry / 16, [k] my`. The product of two stored scales is rx · ry / 256.
    pub fn stored(&self, first: usize, rows: usize, k: usize) -> Vec<f16> {
        let mut halves = Vec::with_capacity(2 * (rows + k));
        let mut add = |numbers: &[f32], n: usize, factor: f32| {
            let end = halves.len() + n;
            halves.extend(numbers.iter().map(|x| f16::from_f32(x * factor)));
            halves.resize(end, f16::ZERO);
        };
        add(&self.rx[first..first + rows], rows, 1.0 / 16.0);
        add(&self.mx[first..first + rows], rows, 1.0);
        add(&self.ry, k, 1.0 / 16.0);
        add(&self.my, k, 1.0);
        halves
    }
}

/// Computes the scales and offsets of a matrix in two passes over its rows.
pub struct Survey {
    found: Affine,
}

impl Survey {
    /// Starts a survey of a matrix `[rows, columns]`.
    pub fn new(rows: usize, columns: usize) -> Survey {
        let found = Affine {
            rx: vec![0.0; rows],
            mx: vec![0.0; rows],
            ry: vec![0.0; columns],
            my: vec![f32::INFINITY; columns],
            columns_first: columns > rows,
            is_transposed: false,
        };
        Survey { found }
    }

    /// Takes row `i` in the first pass, which computes my. In a matrix with at most as many columns as rows, my depends on mx, so mx is computed
    /// first.
    pub fn first(&mut self, i: usize, row: &[f32]) {
        let found = &mut self.found;
        // min and max ignore NaN, so the first NaN or infinity of the row is kept in mx, and `done` reports it.
        if let Some(x) = row.iter().find(|x| !x.is_finite()) {
            found.mx[i] = *x;
        }
        if !found.columns_first && found.mx[i].is_finite() {
            found.mx[i] = row.iter().copied().fold(f32::INFINITY, f32::min);
        }
        let mx = found.mx[i];
        found.my.iter_mut().zip(row).for_each(|(my, x)| *my = my.min(x - mx));
    }

    /// Takes row `i` in the second pass. All rows of the matrix must have been in the first pass before.
    pub fn second(&mut self, i: usize, row: &[f32]) {
        let found = &mut self.found;
        if found.columns_first && found.mx[i].is_finite() {
            found.mx[i] = row.iter().zip(&found.my).map(|(x, my)| x - my).fold(f32::INFINITY, f32::min);
        }
        let shifted = |found: &Affine, x: f32, j: usize| found.shift(x, i, found.my[j]);
        found.rx[i] = row.iter().enumerate().map(|(j, &x)| shifted(found, x, j)).fold(0f32, f32::max);
        for (j, &x) in row.iter().enumerate() {
            found.ry[j] = found.ry[j].max(shifted(found, x, j) / divisor(found.rx[i]));
        }
    }

    /// Returns the scales and offsets of the matrix after both passes.
    ///
    /// # Errors
    ///
    /// `Model` if a weight of the matrix is not finite, or if a scale or an offset is too large for f16.
    pub fn done(self) -> Result<Affine> {
        let Affine { rx, mx, ry, my, .. } = &self.found;
        let scales = rx.iter().chain(ry).map(|s| s / 16.0);
        let misfit = scales.chain(mx.iter().chain(my).copied()).find(|x| !f16::from_f32(*x).is_finite());
        match misfit {
            Some(x) => {
                Err(Error::model(format!("the weights need a scale of {x}, which is too large for the format i8rc"))
                    .hint("leave out `quant`"))
            }
            None => Ok(self.found),
        }
    }
}

/// Returns the divisor for a scale: the scale itself, or 1 for the scale 0. A row of equal weights has the scale 0, because its offset alone
/// determines the weights.
fn divisor(scale: f32) -> f32 {
    if scale == 0.0 { 1.0 } else { scale }
}
