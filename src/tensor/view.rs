//! A strided view: shape, strides and bytes. Reading widens to f32, in row-major order of the shape.

use super::{DType, dense_strides, n_elements};
use crate::error::{Error, Result};
use half::{bf16, f16, slice::HalfFloatSliceExt};

/// A tensor over borrowed little-endian bytes.
#[derive(Debug, Clone)]
pub struct View<'a> {
    dtype: DType,
    shape: Vec<usize>,
    /// In elements.
    strides: Vec<usize>,
    /// From the first element on.
    bytes: &'a [u8],
}

impl<'a> View<'a> {
    /// A row-major tensor.
    pub fn dense(dtype: DType, shape: &[usize], bytes: &'a [u8]) -> Result<Self> {
        n_elements(shape).ok_or_else(|| overflow(shape))?;
        Self::strided(dtype, shape, &dense_strides(shape), bytes)
    }

    /// Strides in elements. Every element must lie inside `bytes`.
    pub fn strided(dtype: DType, shape: &[usize], strides: &[usize], bytes: &'a [u8]) -> Result<Self> {
        if shape.len() != strides.len() {
            return Err(Error::file(format!("{} dimensions but {} strides", shape.len(), strides.len())));
        }
        let len = n_elements(shape).ok_or_else(|| overflow(shape))?;
        let last = shape.iter().zip(strides).try_fold(0usize, |at, (&d, &s)| at.checked_add(d.saturating_sub(1).checked_mul(s)?));
        let needed = if len == 0 { Some(0) } else { last.and_then(|l| l.checked_add(1)?.checked_mul(dtype.size_bytes())) };
        match needed {
            Some(n) if n <= bytes.len() => {}
            Some(n) => return Err(Error::file(format!("{dtype} tensor {shape:?} needs {n} bytes, {} are there", bytes.len()))),
            None => return Err(overflow(shape)),
        }
        Ok(View { dtype, shape: shape.to_vec(), strides: strides.to_vec(), bytes })
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same numbers under another shape of as many elements; only for dense tensors and added or dropped ones.
    pub fn reshaped(&self, shape: &[usize]) -> Option<View<'a>> {
        let strides = if self.dense_bytes().is_some() {
            (n_elements(shape)? == self.len()).then(|| dense_strides(shape))?
        } else {
            let mut kept = self.shape.iter().zip(&self.strides).filter(|(d, _)| **d != 1);
            let strides: Option<Vec<usize>> =
                shape.iter().map(|&d| if d == 1 { Some(1) } else { kept.next().filter(|(k, _)| **k == d).map(|(_, s)| *s) }).collect();
            kept.next().is_none().then_some(strides?)?
        };
        Some(View { shape: shape.to_vec(), strides, ..self.clone() })
    }

    /// The last two dimensions swapped; no byte moves.
    pub fn transposed(mut self) -> View<'a> {
        let n = self.shape.len();
        if n >= 2 {
            self.shape.swap(n - 1, n - 2);
            self.strides.swap(n - 1, n - 2);
        }
        self
    }

    /// The bytes where they are already row-major without gaps.
    pub fn dense_bytes(&self) -> Option<&'a [u8]> {
        let mut expected = 1;
        for (&d, &s) in self.shape.iter().zip(&self.strides).rev() {
            if d != 1 && s != expected {
                return None;
            }
            expected *= d;
        }
        Some(&self.bytes[..self.len() * self.dtype.size_bytes()])
    }

    /// Widens `out.len()` elements from row-major index `start` on to f32. Integers are refused.
    pub fn read_f32(&self, start: usize, out: &mut [f32]) -> Result<()> {
        let end = start.checked_add(out.len()).filter(|&e| e <= self.len());
        if end.is_none() {
            return Err(Error::input(format!("elements {start}..+{} of a tensor of {}", out.len(), self.len())));
        }
        if let Some(dense) = self.dense_bytes() {
            let size = self.dtype.size_bytes();
            return widen(self.dtype, &dense[start * size..(start + out.len()) * size], out);
        }
        for (slot, at) in out.iter_mut().zip(Walk::new(&self.shape, &self.strides, start)) {
            let from = at * self.dtype.size_bytes();
            widen(self.dtype, &self.bytes[from..from + self.dtype.size_bytes()], std::slice::from_mut(slot))?;
        }
        Ok(())
    }

    /// All elements, widened.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let mut out = vec![0.0; self.len()];
        self.read_f32(0, &mut out)?;
        Ok(out)
    }
}

fn overflow(shape: &[usize]) -> Error {
    Error::file(format!("the shape {shape:?} has more elements than an address holds"))
}

/// Storage indices in row-major order of a strided shape, from a row-major index on.
pub struct Walk<'s> {
    shape: &'s [usize],
    strides: &'s [usize],
    index: Vec<usize>,
    at: usize,
}

impl<'s> Walk<'s> {
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

/// Widens little-endian elements; `half` uses F16C and NEON where they are.
fn widen(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<()> {
    match dtype {
        DType::F32 => out.iter_mut().zip(bytes.chunks_exact(4)).for_each(|(o, b)| *o = f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        DType::F16 => match bytemuck::try_cast_slice::<u8, f16>(bytes) {
            Ok(halves) if cfg!(target_endian = "little") => halves.convert_to_f32_slice(out),
            _ => out.iter_mut().zip(bytes.chunks_exact(2)).for_each(|(o, b)| *o = f16::from_le_bytes([b[0], b[1]]).to_f32()),
        },
        DType::BF16 => out.iter_mut().zip(bytes.chunks_exact(2)).for_each(|(o, b)| *o = bf16::from_le_bytes([b[0], b[1]]).to_f32()),
        other => return Err(Error::model(format!("expected F32, F16 or BF16 weights, found {other}"))),
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
    fn a_view_never_reaches_past_its_bytes() {
        assert!(View::dense(DType::F16, &[4], &[0; 7]).is_err());
        assert!(View::dense(DType::F32, &[usize::MAX, 2], &[]).is_err());
        assert!(View::strided(DType::F32, &[2, 2], &[usize::MAX, 1], &[0; 64]).is_err());
        assert!(View::dense(DType::F32, &[0, 5], &[]).unwrap().is_empty());
    }
}
