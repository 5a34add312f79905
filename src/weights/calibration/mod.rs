//! Importance of matrix columns: mean squares of a matrix's inputs over a text. Encoders of weights spend their precision where inputs are large.
//!
//! llama.cpp calls this an importance matrix and has two file formats for it, a GGUF file and an older one. Both name matrices as GGUF files of
//! models do. Every file is treated as hostile.

mod dat;
mod gguf;

use crate::error::{Error, Result};
use crate::weights::read_small;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// The maximum size of a file, in bytes. A file has four bytes per column of each matrix: some 20 MB for the largest published models. GLM-4.7-Flash
/// needs 70 MB, because each of its experts has columns of its own.
const MAX_BYTES: u64 = 1 << 30;

/// The importance of the columns of a model's matrices.
///
/// ```
/// # fn main() -> wingbeat::Result<()> {
/// use wingbeat::{Calibration, low_level::weights::ColumnSums};
///
/// let sums = ColumnSums { squares: vec![6.0, 0.0, 1.5], counts: vec![3.0] };
/// let calibration = Calibration::new([("output.weight".to_string(), sums)])?;
/// assert_eq!(calibration.mean_squares("output.weight"), Some(vec![2.0, 0.0, 0.5]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Calibration {
    sums: BTreeMap<String, ColumnSums>,
    /// The names of the texts, as the file has them.
    pub datasets: Vec<String>,
    /// The number of chunks that were read, or 0 if the file does not say it. A chunk begins with an empty state.
    pub n_chunks: u32,
    /// The largest number of tokens in a chunk. 0 if the file does not say it.
    pub chunk_size: u32,
}

/// Sums over the inputs of a tensor with one matrix, or with several matrices of the same size.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ColumnSums {
    /// The sum of the squares of each input, `[matrices, columns]`.
    pub squares: Vec<f32>,
    /// The number of rows that entered the sums, `[matrices]`. In the older format, this is the number of calls, because the file stores each mean
    /// times this number.
    pub counts: Vec<f32>,
}

impl ColumnSums {
    /// Checks the sizes and the numbers.
    fn check(&self) -> Result<()> {
        if self.counts.is_empty() || self.squares.is_empty() || !self.squares.len().is_multiple_of(self.counts.len()) {
            let (squares, counts) = (self.squares.len(), self.counts.len());
            return Err(Error::file(format!("expected sums of whole matrices, found {squares} sums and {counts} counts")));
        }
        match self.squares.iter().chain(&self.counts).find(|x| !(x.is_finite() && **x >= 0.0)) {
            Some(x) => Err(Error::file(format!("expected numbers of at least 0, found {x}"))),
            None => Ok(()),
        }
    }

    /// Returns whether any matrix of the tensor has seen an input.
    pub(crate) fn has_inputs(&self) -> bool {
        self.counts.iter().any(|n| *n > 0.0)
    }

    /// Returns the means for the elements `range` of `squares`. A matrix that has seen no input has the mean 0.
    pub(crate) fn means(&self, range: Range<usize>) -> Vec<f32> {
        let columns = self.squares.len() / self.counts.len();
        let mean = |i: usize| Some(self.counts[i / columns]).filter(|n| *n > 0.0).map_or(0.0, |n| self.squares[i] / n);
        range.map(mean).collect()
    }
}

impl Calibration {
    /// Makes a calibration from sums by the names that the matrices have in GGUF files, such as `blk.0.ffn_up.weight`.
    ///
    /// # Errors
    ///
    /// `File` if a number is negative or not finite, if the sizes contradict each other, if a name occurs twice, or if `sums` is empty.
    pub fn new(sums: impl IntoIterator<Item = (String, ColumnSums)>) -> Result<Calibration> {
        let mut found = Calibration::default();
        for (name, sums) in sums {
            sums.check().map_err(|e| e.at(format!("matrix {name}")))?;
            if found.sums.insert(name.clone(), sums).is_some() {
                return Err(Error::file("two matrices have this name").at(format!("matrix {name}")));
            }
        }
        match found.sums.is_empty() {
            true => Err(Error::file("the importance matrix names no matrices")),
            false => Ok(found),
        }
    }

    /// Returns whether bytes are the beginning of an importance matrix, and not of a text. The older format begins with a small number, whose high
    /// byte is zero. No text has this byte.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(b"GGUF") || bytes.iter().take(4).any(|b| *b == 0)
    }

    /// Reads an importance matrix in either format.
    ///
    /// # Errors
    ///
    /// `File` if the file cannot be read; the errors of [`parse`](Self::parse).
    pub fn open(path: &Path) -> Result<Calibration> {
        Calibration::parse(&read_small(path, MAX_BYTES)?).map_err(|e| e.at(path.display()))
    }

    /// Reads the bytes of an importance matrix in either format.
    ///
    /// # Errors
    ///
    /// `File` if the bytes are truncated or damaged, or if a number is negative or not finite.
    pub fn parse(bytes: &[u8]) -> Result<Calibration> {
        match bytes.starts_with(b"GGUF") {
            true => gguf::parse(bytes),
            false => dat::parse(bytes),
        }
    }

    /// Writes an importance matrix as a GGUF file, under a temporary name that is then changed to `path`.
    ///
    /// # Errors
    ///
    /// `File` if the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        gguf::write(self, path)
    }

    /// Returns the mean square of each input of a tensor, `[matrices, columns]`, by the tensor's name in GGUF files. The numbers of a matrix that
    /// has seen no input, such as an expert that no token has used, are 0. Returns `None` if the name is missing, or if all matrices have seen no
    /// input.
    pub fn mean_squares(&self, tensor: &str) -> Option<Vec<f32>> {
        let sums = self.sums_of(tensor).filter(|sums| sums.has_inputs())?;
        Some(sums.means(0..sums.squares.len()))
    }

    /// Returns the sums of a tensor, by its name in GGUF files.
    pub(crate) fn sums_of(&self, tensor: &str) -> Option<&ColumnSums> {
        self.sums.get(tensor)
    }

    /// Returns the names of the tensors in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sums.keys().map(String::as_str)
    }

    /// Returns the sums by tensor.
    pub(crate) fn sums(&self) -> impl Iterator<Item = (&str, &ColumnSums)> {
        self.sums.iter().map(|(name, sums)| (name.as_str(), sums))
    }
}

#[cfg(test)]
mod tests;
