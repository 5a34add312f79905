//! A whole quantised matrix in the layout of wingbeat's files: the codes of all rows, then the scales.

use super::{Axis, Format, Scales, Scaling, padded};
use crate::error::{Error, Result};
use half::f16;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The encoding of a matrix: its format, the direction of its blocks, whether it is transposed, and the number of its slices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coding {
    pub format: &'static dyn Format,
    pub axis: Axis,
    /// True if the matrix is the transposed tensor: rows of the matrix are then columns of the tensor.
    pub transposed: bool,
    /// The number of slices: groups of consecutive rows, all of the same size, each with its own scales. For example, a matrix of GLM's gate and up
    /// rows has two slices.
    pub slices: usize,
}

impl Coding {
    /// Returns the rows and columns of the encoded matrix for a tensor of this shape. The columns are the last dimension or, if `transposed` is
    /// true, the last but one. The rows are the product of all other dimensions.
    pub fn sides(&self, shape: &[usize]) -> (usize, usize) {
        let k = match shape {
            [.., k, _] if self.transposed => *k,
            _ => shape.last().copied().unwrap_or(0),
        };
        (shape.iter().product::<usize>() / k.max(1), k)
    }

    /// Returns how many items of 16 bits store the scales and offsets of a slice `[rows, k]`.
    fn n_items(&self, rows: usize, k: usize) -> usize {
        match self.format.scaling() {
            Scaling::None => 0,
            Scaling::Blocks => self.axis.n_items(rows, padded(k), self.format),
            Scaling::Affine => 2 * (rows + padded(k)),
        }
    }

    /// Returns how many bytes a matrix `[rows, k]` takes: the codes of its padded rows, and the scales of its slices. Returns `None` if the
    /// number overflows `usize`.
    pub fn size_bytes(&self, rows: usize, k: usize) -> Option<usize> {
        // Checks that an upper bound fits `usize`: a code has at most 4 bytes, and each padded row or column has at most a few f16 scales.
        k.checked_add(8)?.checked_mul(rows.checked_add(8)?)?.checked_mul(32)?;
        Some(rows * self.format.size_bytes(padded(k)) + 2 * self.slices * self.n_items(rows / self.slices, k))
    }
}

/// An encoded matrix `[rows, k]` over borrowed bytes.
#[derive(Debug, Clone)]
pub struct Coded<'a> {
    pub coding: Coding,
    pub rows: usize,
    pub k: usize,
    bytes: &'a [u8],
    is_scaled: bool,
    /// All decoded weights. The first call of [`at`](Coded::at) fills this field, so `at` is for small matrices only.
    whole: Arc<OnceLock<Vec<f32>>>,
}

impl<'a> Coded<'a> {
    /// Wraps the bytes of a matrix `[rows, k]` after a check of its sizes.
    ///
    /// # Errors
    ///
    /// `File` if the matrix is empty, if the rows cannot be divided into the slices, or if the number of bytes is wrong.
    pub fn new(coding: Coding, rows: usize, k: usize, bytes: &'a [u8]) -> Result<Coded<'a>> {
        if rows == 0 || k == 0 || coding.slices == 0 || !rows.is_multiple_of(coding.slices) {
            return Err(Error::file(format!(
                "expected a quantised matrix whose rows divide into {} slices, found the shape [{rows}, {k}]",
                coding.slices
            )));
        }
        match coding.size_bytes(rows, k) {
            Some(expected) if expected == bytes.len() => {}
            expected => {
                let name = coding.format.name();
                let expected = expected.map_or("fewer elements".to_string(), |n| format!("{n} bytes"));
                return Err(Error::file(format!(
                    "a matrix of shape [{rows}, {k}] in the format {name} needs {expected}, found {} bytes",
                    bytes.len()
                )));
            }
        }
        Ok(Coded { coding, rows, k, bytes, is_scaled: true, whole: Arc::default() })
    }

    /// Returns the matrix without its scales: [`read`](Self::read) then returns the unscaled values of the codes. Encoding these values gives the
    /// same codes again.
    pub fn unscaled(&self) -> Coded<'a> {
        Coded { is_scaled: false, whole: Arc::default(), ..self.clone() }
    }

    /// Returns how many bytes the codes of a row take.
    pub fn row_bytes(&self) -> usize {
        self.coding.format.size_bytes(padded(self.k))
    }

    /// Returns the codes of all rows, `[rows, padded k]`, row-major.
    pub fn codes(&self) -> &'a [u8] {
        &self.bytes[..self.rows * self.row_bytes()]
    }

    fn slice_rows(&self) -> usize {
        self.rows / self.coding.slices
    }

    /// Returns the scales of slice `slice` as they are stored. [`Axis`] describes the layout of block scales, [`super::Affine::stored`] the
    /// layout of affine scales.
    pub fn scales(&self, slice: usize) -> Vec<f16> {
        let n = self.coding.n_items(self.slice_rows(), self.k);
        self.halves(slice * n..(slice + 1) * n)
    }

    fn halves(&self, range: Range<usize>) -> Vec<f16> {
        let scales = &self.bytes[self.rows * self.row_bytes()..];
        scales[2 * range.start..2 * range.end].chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]])).collect()
    }

    /// Decodes row `i` with its padding into `out`, which has the padded length of a row. Applies the scales if `is_scaled` is true.
    fn read_row(&self, i: usize, out: &mut [f32]) {
        let Coding { format, axis, .. } = self.coding;
        format.decode(&self.codes()[i * self.row_bytes()..][..self.row_bytes()], out);
        if !self.is_scaled {
            return;
        }
        let (rows, k) = (self.slice_rows(), out.len());
        let (slice, i) = (i / rows, i % rows);
        let first = slice * self.coding.n_items(rows, self.k);
        let own = match (format.scaling(), axis) {
            (Scaling::None, _) => return,
            (Scaling::Blocks, Axis::Row) => {
                let at = first + axis.n_items(i, k, format);
                self.halves(at..at + axis.n_items(1, k, format))
            }
            (Scaling::Blocks, Axis::Column) => {
                let at = first + i / super::WEIGHTS_PER_BLOCK * k;
                self.halves(at..at + k)
            }
            (Scaling::Affine, _) => {
                let columns = first + 2 * rows;
                let of_row = [first + i, first + rows + i].map(|at| self.halves(at..at + 1)[0]);
                [of_row.to_vec(), self.halves(columns..columns + 2 * k)].concat()
            }
        };
        Scales::new(format, axis, &own, 1).apply(0, out);
    }

    /// Fills `out` with decoded weights, from row-major index `start` on. Padding is left out and does not count in the index.
    pub fn read(&self, start: usize, out: &mut [f32]) {
        if out.is_empty() {
            return;
        }
        let mut row = vec![0.0; padded(self.k)];
        let (mut i, mut from, mut rest) = (start / self.k, start % self.k, out);
        while !rest.is_empty() {
            self.read_row(i, &mut row);
            let n = (self.k - from).min(rest.len());
            let (now, later) = rest.split_at_mut(n);
            now.copy_from_slice(&row[from..from + n]);
            (i, from, rest) = (i + 1, 0, later);
        }
    }

    /// Returns one weight by its row-major index. The first call decodes the whole matrix.
    pub fn at(&self, index: usize) -> f32 {
        self.whole.get_or_init(|| {
            let mut all = vec![0.0; self.rows * self.k];
            self.read(0, &mut all);
            all
        })[index]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Affine, EncodedRows, FORMATS, RowEncoder, Survey};
    use super::*;

    /// Encodes a matrix of odd width in slices. Returns its coding, its bytes and the decoded weights.
    fn coded(format: &'static dyn Format, axis: Axis, slices: usize, rows: usize, k: usize) -> (Coding, Vec<u8>, Vec<f32>) {
        let numbers: Vec<f32> = (0..rows * k).map(|i| ((i * 7919) % 257) as f32 / 64.0 - 2.0).collect();
        let (mut codes, mut halves, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for slice in numbers.chunks(rows / slices * k) {
            let mut survey = Survey::new(rows / slices, k);
            slice.chunks(k).enumerate().for_each(|(i, row)| survey.first(i, row));
            slice.chunks(k).enumerate().for_each(|(i, row)| survey.second(i, row));
            let affine: Affine = survey.done().unwrap();
            let mut padded_rows: Vec<f32> = slice.chunks(k).flat_map(|row| [row, &vec![0.0; padded(k) - k]].concat()).collect();
            let mut encoded = EncodedRows::default();
            let encoder = RowEncoder { affine: Some(&affine), ..RowEncoder::new(format, axis) };
            encoder.encode(0, &mut padded_rows, padded(k), &mut encoded).unwrap();
            let own = if format.scaling() == Scaling::Affine { affine.stored(0, rows / slices, padded(k)) } else { encoded.scales };
            let mut decoded = vec![0.0; rows / slices * padded(k)];
            format.decode(&encoded.codes, &mut decoded);
            let scales = Scales::new(format, axis, &own, rows / slices);
            decoded.chunks_mut(padded(k)).enumerate().for_each(|(i, row)| scales.apply(i, row));
            expected.extend(decoded.chunks(padded(k)).flat_map(|row| row[..k].to_vec()));
            codes.extend(encoded.codes);
            halves.extend(own);
        }
        codes.extend(halves.iter().flat_map(|h: &f16| h.to_le_bytes()));
        (Coding { format, axis, transposed: false, slices }, codes, expected)
    }

    #[test]
    fn numbers_are_read_from_anywhere() {
        for format in FORMATS.iter().copied() {
            for axis in [Axis::Row, Axis::Column] {
                if axis == Axis::Column && format.file_blocks().is_some() {
                    continue;
                }
                for slices in [1, 2] {
                    let (rows, k) = (132, 77);
                    let (coding, bytes, expected) = coded(format, axis, slices, rows, k);
                    let matrix = Coded::new(coding, rows, k, &bytes).unwrap();
                    for (start, n) in [(0, rows * k), (5, 300), (k * 65 + 3, 1), (k - 1, k + 2), (rows * k, 0)] {
                        let mut out = vec![f32::NAN; n];
                        matrix.read(start, &mut out);
                        assert_eq!(out, expected[start..start + n], "{} {axis:?} {slices} {start}", format.name());
                    }
                    assert_eq!(matrix.at(k * 70 + 1), expected[k * 70 + 1]);
                }
            }
        }
    }

    #[test]
    fn unscaled_values_encode_to_the_same_codes() {
        for format in FORMATS.iter().copied().filter(|f| f.scaling() != Scaling::None) {
            let (coding, bytes, _) = coded(format, Axis::Row, 1, 16, 256);
            let matrix = Coded::new(coding, 16, 256, &bytes).unwrap();
            let mut values = vec![0.0; 16 * 256];
            matrix.unscaled().read(0, &mut values);
            let mut again = Vec::new();
            format.encode(&values, &mut again).unwrap();
            assert_eq!(again, matrix.codes(), "{}", format.name());
        }
    }

    #[test]
    fn sizes_are_checked() {
        let (coding, bytes, _) = coded(FORMATS[2], Axis::Row, 1, 8, 64);
        assert!(Coded::new(coding, 8, 64, &bytes[1..]).unwrap_err().to_string().contains("shape [8, 64] in the format i8"));
        assert!(Coded::new(Coding { slices: 0, ..coding }, 8, 64, &bytes).is_err());
        assert!(Coded::new(Coding { slices: 3, ..coding }, 8, 64, &bytes).is_err());
        assert!(Coded::new(coding, usize::MAX, 64, &bytes).is_err());
        assert!(Coded::new(coding, usize::MAX / 2, usize::MAX / 2, &bytes).is_err());
    }
}
