//! Sums over the inputs of matrices, which an executor collects while it plays steps. They show which columns of a matrix matter.

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
    /// Returns sums without rows.
    pub fn new(tape: &Tape) -> AllInputSums {
        AllInputSums(tape.matrices.iter().map(|spec| vec![InputSums::default(); spec.parts.len()]).collect())
    }

    /// Adds the rows that part `part` of a stack multiplies.
    pub fn add<'a>(&mut self, matrix: Matrix, part: usize, rows: impl Iterator<Item = &'a [f32]>) {
        let sums = &mut self.0[matrix.0][part];
        for row in rows {
            sums.squares.resize(row.len(), 0.0);
            sums.squares.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x) * f64::from(*x));
            sums.rows += 1;
        }
    }

    /// Returns the sums of each matrix of the tape, and of each part of it.
    pub fn matrices(&self) -> &[Vec<InputSums>] {
        &self.0
    }
}
