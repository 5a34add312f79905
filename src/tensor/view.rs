//! A strided view of a tensor: shape, strides and bytes. Reading returns the elements as f32, in row-major order of the shape.

use super::{DType, blocks, dense_strides, n_elements};
use crate::error::{Error, Result, filled};
use crate::quant::Coded;
use half::{bf16, f16, slice::HalfFloatSliceExt};

/// A tensor in borrowed little-endian bytes.
#[derive(Debug, Clone)]
pub struct View<'a> {
    dtype: DType,
    shape: Vec<usize>,
    /// The strides, in elements.
    strides: Vec<usize>,
    /// The bytes from the tensor's first element or first block on.
    bytes: &'a [u8],
    /// The factor by which every element is multiplied when the element is read.
    scale: f32,
    /// If not `None`, the elements are read from this quantised matrix, and `bytes` is empty.
    coded: Option<Coded<'a>>,
}

impl<'a> View<'a> {
    /// Returns a view of a dense row-major tensor.
    ///
    /// # Errors
    /// `File` if the tensor needs more bytes than `bytes` has, or if the shape overflows.
    pub fn dense(dtype: DType, shape: &[usize], bytes: &'a [u8]) -> Result<Self> {
        n_elements(shape).ok_or_else(|| overflow(shape))?;
        Self::strided(dtype, shape, &dense_strides(shape), bytes)
    }

    /// Returns a view of a tensor with the given strides, in elements.
    ///
    /// # Errors
    /// `File` if an element would be outside `bytes`, if the shape overflows, or if shape and strides differ in length.
    pub fn strided(dtype: DType, shape: &[usize], strides: &[usize], bytes: &'a [u8]) -> Result<Self> {
        if shape.len() != strides.len() {
            return Err(Error::file(format!(
                "expected one stride per dimension of a tensor, found {} dimensions and {} strides",
                shape.len(),
                strides.len()
            )));
        }
        let len = n_elements(shape).ok_or_else(|| overflow(shape))?;
        let last = shape.iter().zip(strides).try_fold(0usize, |at, (&d, &s)| at.checked_add(d.saturating_sub(1).checked_mul(s)?));
        let needed = if len == 0 { Some(0) } else { last.and_then(|l| dtype.bytes_of(l.checked_add(1)?)) };
        match needed {
            Some(n) if n <= bytes.len() => {}
            Some(n) => {
                return Err(Error::file(format!(
                    "a tensor of type {dtype} and shape {shape:?} needs {n} bytes, found {} bytes",
                    bytes.len()
                )));
            }
            None => return Err(overflow(shape)),
        }
        Ok(View { dtype, shape: shape.to_vec(), strides: strides.to_vec(), bytes, scale: 1.0, coded: None })
    }

    /// Returns a tensor of `shape` whose rows are read from a quantised matrix. If `matrix.coding.transposed` is true, the rows of the matrix are the
    /// columns of the tensor.
    ///
    /// # Errors
    /// `File` if the number of rows or the width of the matrix does not match the shape.
    pub fn coded(mut matrix: Coded<'a>, shape: &[usize]) -> Result<Self> {
        let transposed = matrix.coding.transposed;
        let mut stored = shape.to_vec();
        if let (true, &mut [.., ref mut rows, ref mut columns]) = (transposed, &mut stored[..]) {
            std::mem::swap(rows, columns);
        }
        if n_elements(shape) != matrix.rows.checked_mul(matrix.k) || stored.last() != Some(&matrix.k) {
            return Err(Error::file(format!(
                "a quantised matrix of {} rows of {} numbers does not fit the shape {shape:?}",
                matrix.rows, matrix.k
            )));
        }
        matrix.coding.transposed = false; // `View::transposed` below sets this flag
        let dtype = DType::Coded(matrix.coding.format.name());
        let view = View { dtype, strides: dense_strides(&stored), shape: stored, bytes: &[], scale: 1.0, coded: Some(matrix) };
        Ok(if transposed { view.transposed() } else { view })
    }

    /// Returns a view that multiplies every element by `by` when it is read. Some programs divide weights before they write a file, and the factor
    /// undoes this division. `by` is a power of two, so the multiplication is exact.
    pub fn scaled(self, by: f32) -> View<'a> {
        View { scale: self.scale * by, ..self }
    }

    /// Returns the quantised matrix from which the elements are read. Its `coding.transposed` is true if its rows are the columns of the tensor.
    /// Returns `None` if the tensor is not quantised, or if the view multiplies elements by a factor.
    pub fn matrix(&self) -> Option<&Coded<'a>> {
        self.coded.as_ref().filter(|_| !self.is_scaled())
    }

    /// Returns a view that reads the unscaled values of a quantised matrix's codes. Other tensors stay unchanged.
    pub fn unscaled(self) -> View<'a> {
        View { coded: self.coded.map(|coded| coded.unscaled()), ..self }
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Returns the size of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// Returns whether the view multiplies elements by a factor.
    pub fn is_scaled(&self) -> bool {
        self.scale != 1.0
    }
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }
    /// Returns whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a view of the same elements in another shape, or `None` if the number of elements differs. If the elements are not row-major
    /// without gaps, only dimensions of size 1 can be added or removed; otherwise returns `None`.
    pub fn reshaped(&self, shape: &[usize]) -> Option<View<'a>> {
        let strides = if self.is_dense() {
            (n_elements(shape)? == self.len()).then(|| dense_strides(shape))?
        } else {
            let mut kept = self.shape.iter().zip(&self.strides).filter(|(d, _)| **d != 1);
            let strides: Option<Vec<usize>> =
                shape.iter().map(|&d| if d == 1 { Some(1) } else { kept.next().filter(|(k, _)| **k == d).map(|(_, s)| *s) }).collect();
            kept.next().is_none().then_some(strides?)?
        };
        Some(View { shape: shape.to_vec(), strides, ..self.clone() })
    }

    /// Returns the view with its last two dimensions swapped. Copies no elements. A tensor with fewer than two dimensions stays the same.
    pub fn transposed(mut self) -> View<'a> {
        let n = self.shape.len();
        if n >= 2 {
            self.shape.swap(n - 1, n - 2);
            self.strides.swap(n - 1, n - 2);
            self.coded.iter_mut().for_each(|c| c.coding.transposed = !c.coding.transposed);
        }
        self
    }

    /// Returns whether the elements are row-major without gaps.
    fn is_dense(&self) -> bool {
        let mut expected = 1;
        for (&d, &s) in self.shape.iter().zip(&self.strides).rev() {
            if d != 1 && s != expected {
                return false;
            }
            expected *= d;
        }
        true
    }

    /// Returns the stored bytes if they are exactly the elements, row-major without gaps. Returns `None` for block types, quantised matrices,
    /// views with a factor, and strided views.
    pub fn dense_bytes(&self) -> Option<&'a [u8]> {
        let size = self.dtype.size_bytes()?;
        (self.is_dense() && !self.is_scaled()).then(|| &self.bytes[..self.len() * size])
    }

    /// Returns the stored blocks, row-major without gaps, if the elements are in a block type. Returns `None` for views with a factor, for strided
    /// views, and if the elements do not fill whole blocks.
    pub fn block_bytes(&self) -> Option<&'a [u8]> {
        let (len, size) = self.dtype.block().filter(|_| self.dtype.size_bytes().is_none())?;
        (self.is_dense() && !self.is_scaled() && self.len().is_multiple_of(len)).then(|| &self.bytes[..self.len() / len * size])
    }

    /// Reads `out.len()` elements as f32, from row-major index `start` on.
    ///
    /// # Errors
    /// `Input` if the tensor has too few elements. `Model` if its element type cannot be read as weights.
    pub fn read_f32(&self, start: usize, out: &mut [f32]) -> Result<()> {
        let end = start.checked_add(out.len()).filter(|&e| e <= self.len());
        if end.is_none() {
            return Err(Error::input(format!(
                "cannot read {} numbers from number {start} on: the tensor has {} numbers",
                out.len(),
                self.len()
            )));
        }
        if self.is_dense() {
            self.read_stored(start, out)?;
        } else if self.coded.is_none() && self.dtype.is_writable() {
            self.read_runs(start, out)?;
        } else if let Some(coded) = &self.coded {
            out.iter_mut().zip(Walk::new(&self.shape, &self.strides, start)).for_each(|(x, at)| *x = coded.at(at));
        } else {
            for (slot, at) in out.iter_mut().zip(Walk::new(&self.shape, &self.strides, start)) {
                self.read_stored(at, std::slice::from_mut(slot))?;
            }
        }
        if self.is_scaled() {
            out.iter_mut().for_each(|x| *x *= self.scale);
        }
        Ok(())
    }

    /// Reads plain elements of a strided view, without the factor `scale`. A run is a part of a row: its elements are equally far apart, so they are widened
    /// together. A transposed matrix, such as the keys of a head in GLM-4.7-Flash, would otherwise be widened float by float.
    fn read_runs(&self, start: usize, out: &mut [f32]) -> Result<()> {
        let (Some((&width, outer)), Some((&stride, strides))) = (self.shape.split_last(), self.strides.split_last()) else {
            return self.read_stored(0, out); // a single element
        };
        let (mut column, mut rest) = (start % width.max(1), out);
        for row in Walk::new(outer, strides, start / width.max(1)) {
            if rest.is_empty() {
                break;
            }
            let n = rest.len().min(width - column);
            let (run, after) = rest.split_at_mut(n);
            self.read_run(row + column * stride, stride, run)?;
            (column, rest) = (0, after);
        }
        Ok(())
    }

    /// Reads plain elements that are `stride` elements apart, from storage index `at` on.
    fn read_run(&self, at: usize, stride: usize, out: &mut [f32]) -> Result<()> {
        if stride == 1 {
            return self.read_stored(at, out);
        }
        let mut gathered = [0u32; 256]; // aligned for all types
        let n = gathered.len();
        for (i, out) in out.chunks_mut(n).enumerate() {
            let first = at + i * n * stride;
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut gathered);
            let bytes = match self.dtype {
                DType::F32 => gather::<4>(self.bytes, first, stride, &mut bytes[..4 * out.len()]),
                _ => gather::<2>(self.bytes, first, stride, &mut bytes[..2 * out.len()]),
            };
            widen(self.dtype, bytes, out)?;
        }
        Ok(())
    }

    /// Reads `out.len()` stored elements from index `at` on, without the factor `scale`. A single element of a block type costs the decoding of
    /// its whole block. Only strided views read single elements, and such tensors are small.
    fn read_stored(&self, at: usize, out: &mut [f32]) -> Result<()> {
        if let Some(coded) = &self.coded {
            coded.read(at, out);
            return Ok(());
        }
        match (self.dtype.size_bytes(), blocks::of(self.dtype)) {
            (Some(size), _) => widen(self.dtype, &self.bytes[at * size..(at + out.len()) * size], out)?,
            (None, Some(block)) => block.read(self.bytes, at, out),
            (None, None) => unreachable!("a type without blocks has plain numbers"),
        }
        Ok(())
    }

    /// Reads all elements as f32.
    ///
    /// # Errors
    /// `Memory` if the host does not have enough memory. `Model` if the element type cannot be read as weights.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let mut out = filled(0.0, self.len(), "a tensor")?;
        self.read_f32(0, &mut out)?;
        Ok(out)
    }
}

fn overflow(shape: &[usize]) -> Error {
    Error::file(format!("the shape {shape:?} is too large for this machine"))
}

/// An iterator over the storage indices of a strided tensor, in elements. The iterator visits the elements in row-major order of the shape, then
/// begins again at the first element. So `next` never returns `None`.
pub struct Walk<'s> {
    shape: &'s [usize],
    strides: &'s [usize],
    index: Vec<usize>,
    at: usize,
}

impl<'s> Walk<'s> {
    /// Returns an iterator that begins at the element with row-major index `start`.
    pub fn new(shape: &'s [usize], strides: &'s [usize], start: usize) -> Self {
        let mut index = vec![0; shape.len()];
        let (mut rest, mut at) = (start, 0);
        for i in (0..shape.len()).rev() {
            index[i] = rest % shape[i].max(1);
            rest /= shape[i].max(1);
            at += index[i] * strides[i];
        }
        Walk { shape, strides, index, at }
    }
}

impl Iterator for Walk<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let now = self.at;
        for i in (0..self.shape.len()).rev() {
            self.index[i] += 1;
            self.at += self.strides[i];
            if self.index[i] < self.shape[i] {
                break;
            }
            self.at -= self.index[i] * self.strides[i];
            self.index[i] = 0;
        }
        Some(now)
    }
}

/// Copies elements of `N` bytes that are `stride` elements apart to `out`, and returns `out`.
fn gather<'o, const N: usize>(bytes: &[u8], first: usize, stride: usize, out: &'o mut [u8]) -> &'o [u8] {
    for (i, element) in out.as_chunks_mut::<N>().0.iter_mut().enumerate() {
        element.copy_from_slice(&bytes[(first + i * stride) * N..][..N]);
    }
    out
}

/// Converts little-endian elements to f32. The crate `half` uses F16C or NEON if the CPU has them.
fn widen(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<()> {
    match dtype {
        DType::F32 => out.iter_mut().zip(bytes.chunks_exact(4)).for_each(|(o, b)| *o = f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        DType::F16 => match bytemuck::try_cast_slice::<u8, f16>(bytes) {
            Ok(halves) if cfg!(target_endian = "little") => halves.convert_to_f32_slice(out),
            _ => out.iter_mut().zip(bytes.chunks_exact(2)).for_each(|(o, b)| *o = f16::from_le_bytes([b[0], b[1]]).to_f32()),
        },
        DType::BF16 => out.iter_mut().zip(bytes.chunks_exact(2)).for_each(|(o, b)| *o = bf16::from_le_bytes([b[0], b[1]]).to_f32()),
        other => return other.check_weight(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transposed_view_reads_row_major() {
        let numbers: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let view = View::dense(DType::F32, &[2, 3], &numbers).unwrap().transposed();
        assert_eq!(view.shape(), [3, 2]);
        assert_eq!(view.to_f32().unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let mut tail = [0.0; 2];
        view.read_f32(3, &mut tail).unwrap();
        assert_eq!(tail, [4.0, 2.0]);
        assert_eq!(view.reshaped(&[1, 3, 1, 2]).unwrap().to_f32().unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    }

    #[test]
    fn strided_views_read_every_element_from_anywhere() {
        // Rows of more elements than are gathered at once.
        let (rows, columns) = (600, 7);
        let numbers: Vec<f32> = (0..2 * rows * columns).map(|i| (i % 251) as f32).collect();
        let bytes = |dtype: DType| -> Vec<u8> {
            match dtype {
                DType::F16 => numbers.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
                DType::BF16 => numbers.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect(),
                _ => numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
            }
        };
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let bytes = bytes(dtype);
            let dense = View::dense(dtype, &[2, rows, columns], &bytes).unwrap();
            let at = |plane: usize, column: usize, row: usize| numbers[(plane * rows + row) * columns + column];
            let expected: Vec<f32> = (0..2 * columns * rows).map(|i| at(i / (columns * rows), i / rows % columns, i % rows)).collect();
            let view = dense.transposed();
            assert_eq!(view.to_f32().unwrap(), expected, "{dtype}");
            for (start, n) in [(0, 0), (1, 1), (599, 2), (598, 1300), (2 * columns * rows - 1, 1)] {
                let mut out = vec![0.0; n];
                view.read_f32(start, &mut out).unwrap();
                assert_eq!(out, expected[start..start + n], "{dtype} {start}");
            }
            // Every second column of every row, and one dimension.
            let view = View::strided(dtype, &[rows, 3], &[columns, 2], &bytes).unwrap();
            assert_eq!(view.to_f32().unwrap()[3..6], [at(0, 0, 1), at(0, 2, 1), at(0, 4, 1)], "{dtype}");
            assert_eq!(
                View::strided(dtype, &[4], &[3], &bytes).unwrap().to_f32().unwrap(),
                numbers.iter().copied().step_by(3).take(4).collect::<Vec<_>>()
            );
        }
        let none = View::strided(DType::F32, &[3, 0], &[1, 9], &[]).unwrap();
        assert!(none.to_f32().unwrap().is_empty());
    }

    #[test]
    fn a_view_never_reaches_past_its_bytes() {
        assert!(View::dense(DType::F16, &[4], &[0; 7]).is_err());
        assert!(View::dense(DType::F32, &[usize::MAX, 2], &[]).is_err());
        assert!(View::strided(DType::F32, &[2, 2], &[usize::MAX, 1], &[0; 64]).is_err());
        assert!(View::dense(DType::F32, &[0, 5], &[]).unwrap().is_empty());
        assert!(View::dense(DType::Q8_0, &[64], &[0; 67]).is_err());
        assert!(View::dense(DType::Q8_0, &[usize::MAX], &[0; 67]).is_err());
        assert!(View::dense(DType::Q6K, &[0, 256], &[]).unwrap().to_f32().unwrap().is_empty());
    }

    /// Returns Q8_0 blocks and their elements. Element i is i % 96 - 40, halved in blocks with an odd index.
    fn q8_0(blocks: usize) -> (Vec<u8>, Vec<f32>) {
        let (mut bytes, mut numbers) = (Vec::new(), Vec::new());
        for i in 0..blocks {
            let d = if i % 2 == 0 { 1.0 } else { 0.5 };
            bytes.extend(f16::from_f32(d).to_le_bytes());
            let q = (32 * i..32 * i + 32).map(|n| (n % 96) as i8 - 40);
            q.for_each(|q| {
                bytes.push(q as u8);
                numbers.push(d * f32::from(q));
            });
        }
        (bytes, numbers)
    }

    #[test]
    fn blocks_are_read_from_anywhere() {
        let (bytes, numbers) = q8_0(8);
        let view = View::dense(DType::Q8_0, &[4, 64], &bytes).unwrap();
        for start in 0..numbers.len() {
            for n in [0, 1, 31, 32, 33, 64, 97].into_iter().filter(|n| start + n <= numbers.len()) {
                let mut out = vec![f32::NAN; n];
                view.read_f32(start, &mut out).unwrap();
                assert_eq!(out, numbers[start..start + n], "{start} {n}");
            }
        }
        assert!(view.read_f32(numbers.len(), &mut [0.0]).is_err());
        let transposed = view.clone().transposed();
        let expected: Vec<f32> = (0..256).map(|i| numbers[i % 4 * 64 + i / 4]).collect();
        assert_eq!(transposed.to_f32().unwrap(), expected);
        let mut tail = [0.0; 5];
        transposed.read_f32(251, &mut tail).unwrap();
        assert_eq!(tail, expected[251..]);
        assert_eq!(view.reshaped(&[256]).unwrap().to_f32().unwrap(), numbers);
        assert_eq!(transposed.reshaped(&[64, 1, 4]).unwrap().to_f32().unwrap(), expected);
        assert!(view.dense_bytes().is_none(), "blocks are not plain numbers");
    }

    #[test]
    fn a_scale_is_applied_once_and_hides_the_bytes() {
        let bytes: Vec<u8> = [1.0f32, -2.0, 3.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let view = View::dense(DType::F32, &[2, 2], &bytes).unwrap();
        assert!(view.clone().scaled(1.0).dense_bytes().is_some());
        let view = view.scaled(4.0);
        assert!(view.dense_bytes().is_none() && view.is_scaled());
        assert_eq!(view.to_f32().unwrap(), [4.0, -8.0, 12.0, 16.0]);
        assert_eq!(view.reshaped(&[4, 1]).unwrap().to_f32().unwrap(), [4.0, -8.0, 12.0, 16.0]);
        assert_eq!(view.transposed().scaled(0.5).to_f32().unwrap(), [2.0, 6.0, -4.0, 8.0]);
    }
}
