//! The merge of one matrix with its low-rank pair, in blocks of rows: W + s·L·R. L `[rows, r]` is the pair's B, and R `[r, columns]` is its A. For
//! an embedding, and for a matrix that the model stores transposed, L is the transpose of A, and R the transpose of B.
//!
//! DoRA also has a magnitude m for each output of the matrix. Then each output's row of the sum is scaled so that its norm is m. In a transposed
//! matrix, an output is a column.

use crate::error::{Error, Result, filled};
use crate::tensor::{DType, View};
use crate::weights::encode::write_numbers;
use sha2::{Digest, Sha256};
use std::io::Write;

/// The approximate number of elements in a block of rows. A merge computes one such block at a time.
pub(super) const BLOCK_LEN: usize = 64 << 10;
/// The use of the memory, for the error of a failed allocation.
const LORA: &str = "an adapter's product";

/// Returns the tensor of the adapter's file with this name.
pub(super) type Find<'f, 'a> = &'f dyn Fn(&str) -> Result<View<'a>>;

/// A low-rank pair, or a range of its rows, for one matrix of the model.
#[derive(Debug)]
pub(super) struct Pair {
    pub left: Factor,
    pub right: Factor,
    pub rank: usize,
    /// The sizes of the model's matrix.
    pub n_rows: usize,
    pub n_columns: usize,
    /// The first row of L that belongs to this matrix. L may be for a joint matrix of queries, keys and values.
    pub first: usize,
    pub scale: f32,
    pub magnitude: Option<Magnitude>,
}

/// A matrix of the adapter's file.
#[derive(Debug, Clone)]
pub(super) struct Factor {
    /// The name in the file.
    pub name: String,
    /// True if the factor is the transpose of the stored matrix.
    pub is_transposed: bool,
}

/// The vector of magnitudes of DoRA.
#[derive(Debug)]
pub(super) struct Magnitude {
    /// The name in the file.
    pub name: String,
    /// True if the matrix has a magnitude for each column, false for each row.
    pub of_columns: bool,
}

impl Factor {
    pub fn transposed(self) -> Factor {
        Factor { is_transposed: !self.is_transposed, ..self }
    }

    fn view<'a>(&self, find: Find<'_, 'a>) -> Result<View<'a>> {
        let view = find(&self.name)?;
        Ok(if self.is_transposed { view.transposed() } else { view })
    }
}

/// The matrices of a merge while it runs.
struct Sum<'a, 'p> {
    pair: &'p Pair,
    w: &'p View<'a>,
    left: View<'a>,
    right: Vec<f32>,
}

impl Pair {
    /// Writes the merged matrix, computed in f32 and rounded once. The whole matrix R is in memory. W and L are read in blocks of rows.
    ///
    /// # Errors
    ///
    /// `Model` or `File` if a tensor cannot be read or written. `Memory` if there is too little memory.
    pub fn merge(&self, find: Find<'_, '_>, w: &View<'_>, dtype: DType, out: &mut dyn Write) -> Result<()> {
        let sum = Sum { pair: self, w, left: self.left.view(find)?, right: self.right.view(find)?.to_f32()? };
        let (of_rows, of_columns) = match &self.magnitude {
            None => (None, None),
            Some(magnitude) if magnitude.of_columns => (None, Some(sum.column_factors(self.magnitudes(find, self.n_columns)?)?)),
            Some(_) => (Some(self.magnitudes(find, self.n_rows)?), None),
        };
        let (n_columns, mut bytes) = (self.n_columns, Vec::new());
        sum.blocks(&mut |first, block| {
            for (row, numbers) in (first..).zip(block.chunks_mut(n_columns)) {
                if let Some(magnitudes) = &of_rows {
                    let factor = factor(magnitudes[row], numbers.iter().map(|&x| f64::from(x).powi(2)).sum());
                    numbers.iter_mut().for_each(|x| *x *= factor);
                }
                if let Some(factors) = &of_columns {
                    numbers.iter_mut().zip(factors).for_each(|(x, factor)| *x *= factor);
                }
            }
            write_numbers(block, first * n_columns, dtype, &mut bytes, out)
        })
    }

    /// Reads the magnitudes of this matrix, `n` numbers.
    fn magnitudes(&self, find: Find<'_, '_>, n: usize) -> Result<Vec<f32>> {
        let Some(magnitude) = &self.magnitude else { return Ok(Vec::new()) };
        let mut numbers = filled(0f32, n, LORA)?;
        find(&magnitude.name)?.read_f32(if magnitude.of_columns { 0 } else { self.first }, &mut numbers)?;
        Ok(numbers)
    }

    /// Adds everything that determines the merged matrix to a hash.
    ///
    /// # Errors
    ///
    /// `File` if a tensor cannot be read.
    pub fn identify(&self, find: Find<'_, '_>, hash: &mut Sha256) -> Result<()> {
        hash.update(format!("{} {} {} {}\n", self.n_rows, self.n_columns, self.rank, self.scale));
        add(&self.left.view(find)?, self.first * self.rank, self.n_rows * self.rank, hash)?;
        add(&self.right.view(find)?, 0, self.rank * self.n_columns, hash)?;
        if let Some(magnitude) = &self.magnitude {
            hash.update("magnitude\n");
            let n = if magnitude.of_columns { self.n_columns } else { self.n_rows };
            hash.update(bytemuck::cast_slice::<f32, u8>(&self.magnitudes(find, n)?));
        }
        Ok(())
    }
}

impl Sum<'_, '_> {
    /// Calls `use_block(first row, rows)` for each block of rows of W + s·L·R.
    fn blocks(&self, use_block: &mut dyn FnMut(usize, &mut [f32]) -> Result<()>) -> Result<()> {
        let &Pair { rank, n_columns, n_rows, first: skipped, scale, .. } = self.pair;
        let block_rows = (BLOCK_LEN / n_columns.max(rank)).clamp(1, n_rows);
        let (mut rows, mut factors) = (filled(0f32, block_rows * n_columns, LORA)?, filled(0f32, block_rows * rank, LORA)?);
        let mut delta = filled(0f32, n_columns, LORA)?;
        for first in (0..n_rows).step_by(block_rows) {
            let n = block_rows.min(n_rows - first);
            let (rows, factors) = (&mut rows[..n * n_columns], &mut factors[..n * rank]);
            self.w.read_f32(first * n_columns, rows)?;
            self.left.read_f32((skipped + first) * rank, factors)?;
            for (row, factors) in rows.chunks_mut(n_columns).zip(factors.chunks(rank)) {
                delta.fill(0.0);
                for (factor, right_row) in factors.iter().zip(self.right.chunks(n_columns)) {
                    delta.iter_mut().zip(right_row).for_each(|(d, x)| *d += factor * x);
                }
                row.iter_mut().zip(&delta).for_each(|(w, d)| *w += scale * d);
            }
            use_block(first, rows)?;
        }
        Ok(())
    }

    /// Returns one factor per column. Multiplied by its factor, a column has the norm that its magnitude sets.
    fn column_factors(&self, magnitudes: Vec<f32>) -> Result<Vec<f32>> {
        let mut squares = filled(0f64, magnitudes.len(), LORA)?;
        self.blocks(&mut |_, block| {
            for row in block.chunks(magnitudes.len()) {
                squares.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x).powi(2));
            }
            Ok(())
        })?;
        Ok(magnitudes.into_iter().zip(squares).map(|(magnitude, squares)| factor(magnitude, squares)).collect())
    }
}

/// Returns the factor that gives numbers the norm `magnitude`. `squares` is the sum of their squares. Numbers that are all 0 stay 0.
fn factor(magnitude: f32, squares: f64) -> f32 {
    if squares == 0.0 { 1.0 } else { (f64::from(magnitude) / squares.sqrt()) as f32 }
}

/// Adds `n` elements of a view, from row-major index `start` on, to a hash.
///
/// # Errors
///
/// `File` if the elements cannot be read.
pub(super) fn add(view: &View<'_>, start: usize, n: usize, hash: &mut Sha256) -> Result<()> {
    let mut block = vec![0.0; BLOCK_LEN.min(n)];
    for at in (0..n).step_by(BLOCK_LEN) {
        let block = &mut block[..BLOCK_LEN.min(n - at)];
        view.read_f32(start + at, block)?;
        hash.update(bytemuck::cast_slice::<f32, u8>(block));
    }
    Ok(())
}

/// Returns the error for a tensor that the adapter's file lacks.
pub(super) fn lacking(name: &str) -> Error {
    Error::file("the LoRA adapter lacks this tensor").at(format!("tensor {name}"))
}
