//! Sums of the squares of matrices' inputs, which an executor collects while it plays steps. Columns with larger sums matter more to quantisation.

use super::{Matrix, Tape};

/// The sums of one matrix of a stack.
#[derive(Debug, Clone, Default)]
pub struct InputSums {
    /// The sum of the squares of each input, `[k]`. Empty before the first row.
    pub squares: Vec<f64>,
    /// The number of rows of activations that the matrix has multiplied.
    pub rows: u64,
}

/// The sums of all matrices of a tape.
#[derive(Debug, Clone)]
pub struct AllInputSums(Vec<Vec<InputSums>>);

impl AllInputSums {
    /// Returns empty sums for every matrix of the tape.
    pub fn new(tape: &Tape) -> AllInputSums {
        AllInputSums(tape.matrices.iter().map(|spec| vec![InputSums::default(); spec.parts.len()]).collect())
    }

    /// Adds rows of activations that part `part` of a stack multiplies. Each row has `k` elements.
    pub fn add<'a>(&mut self, matrix: Matrix, part: usize, rows: impl Iterator<Item = &'a [f32]>) {
        let sums = &mut self.0[matrix.0][part];
        for row in rows {
            sums.squares.resize(row.len(), 0.0);
            sums.squares.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x) * f64::from(*x));
            sums.rows += 1;
        }
    }

    /// Returns the sums, by the index of the matrix in the tape, then by the index of the part in its stack.
    pub fn matrices(&self) -> &[Vec<InputSums>] {
        &self.0
    }
}
