//! A tensor in a file: name, type, shape and byte range.
//!
//! A located tensor is plain data with checked sizes. This module knows neither file formats nor the meaning of names.

use crate::error::{Error, Result, short};
use crate::quant::{Coded, Coding};
use crate::tensor::{DType, View};
use std::ops::Range;

/// The largest number of dimensions of a tensor.
const MAX_RANK: usize = 8;

/// The maximum length of a tensor name, in bytes. Real names have fewer than 150 bytes.
pub(super) const MAX_NAME_BYTES: usize = 512;

/// A tensor of a file: its name, type, shape and place, without its data.
#[derive(Debug, Clone)]
pub(super) struct LocatedTensor {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<usize>,
    /// The strides, in elements.
    pub strides: Vec<usize>,
    /// The byte range in the file. The range begins with the tensor's first element.
    pub bytes: Range<usize>,
    /// A power of two by which all elements are multiplied, to undo a converter's rescaling.
    pub scale: f32,
    /// The index of the tensor's file in the list of the checkpoint's files.
    pub file: usize,
    /// The encoding of a quantised matrix, or `None` for plain elements and GGUF blocks.
    pub coding: Option<Coding>,
}

impl LocatedTensor {
    /// Returns a view of the tensor's elements. `file` has all bytes of the tensor's file.
    ///
    /// # Errors
    ///
    /// `File` or `Model` if shape, strides and byte range contradict each other.
    pub fn view<'a>(&self, file: &'a [u8]) -> Result<View<'a>> {
        self.check_inside(file.len() as u64)?;
        self.view_of(&file[self.bytes.clone()])
    }

    /// Checks that the tensor is inside its file of `size` bytes.
    ///
    /// # Errors
    ///
    /// `File` if the file ends before the tensor.
    pub fn check_inside(&self, size: u64) -> Result<()> {
        match self.bytes.start <= self.bytes.end && self.bytes.end as u64 <= size {
            true => Ok(()),
            false => Err(Error::file(format!(
                "the tensor is at bytes {} to {}, but the file has {size} bytes",
                self.bytes.start, self.bytes.end
            ))),
        }
    }

    /// Returns the type of the tensor's elements.
    pub fn dtype(&self) -> DType {
        self.coding.map_or(self.dtype, |coding| DType::Coded(coding.format.name()))
    }

    /// Returns a view of the tensor's elements. `bytes` must be the content of the tensor's byte range in the file.
    ///
    /// # Errors
    ///
    /// `File` or `Model` if shape, strides and byte range contradict each other.
    pub fn view_of<'a>(&self, bytes: &'a [u8]) -> Result<View<'a>> {
        if let Some(coding) = self.coding {
            let (rows, k) = coding.sides(&self.shape);
            return View::coded(Coded::new(coding, rows, k, bytes)?, &self.shape);
        }
        Ok(View::strided(self.dtype, &self.shape, &self.strides, bytes)?.scaled(self.scale))
    }

    /// Returns the rows `rows` of the matrix `index` in a stack of matrices, as a matrix called `name`. The tensor must have three dimensions.
    /// Unlike in [`rows`](Self::rows), the byte range ends with the last row: a file may have thousands of such matrices, and each is read and
    /// released alone.
    pub fn matrix(&self, name: String, index: usize, rows: Range<usize>) -> LocatedTensor {
        let mut stack = self.rows(String::new(), index..index + 1);
        stack.shape.remove(0);
        stack.strides.remove(0);
        stack.only_rows(name, rows)
    }

    /// Returns a range of rows as [`rows`](Self::rows) does. The byte range ends with the last row.
    pub fn only_rows(&self, name: String, rows: Range<usize>) -> LocatedTensor {
        let mut part = self.rows(name, rows);
        let last = part.shape.iter().zip(&part.strides).try_fold(0usize, |at, (n, s)| at.checked_add(n.saturating_sub(1).checked_mul(*s)?));
        let n_bytes = last.and_then(|last| part.dtype.bytes_of(last.checked_add(1)?));
        if let Some(end) = n_bytes.and_then(|n| part.bytes.start.checked_add(n)) {
            part.bytes.end = part.bytes.end.min(end);
        }
        part
    }

    /// Returns a range of rows as a tensor called `name`, over the same bytes of the file. In GGUF types, a row consists of whole blocks, so every
    /// range begins with a block. In a `.pth`, the strides are arbitrary: `view` refuses rows outside of the tensor's storage.
    pub fn rows(&self, name: String, rows: Range<usize>) -> LocatedTensor {
        let skipped = self.strides.first().and_then(|stride| self.dtype.bytes_of(stride.checked_mul(rows.start)?));
        let mut shape = self.shape.clone();
        if let Some(n) = shape.first_mut() {
            *n = rows.len();
        }
        LocatedTensor { name, shape, bytes: self.bytes.start.saturating_add(skipped.unwrap_or(usize::MAX))..self.bytes.end, ..self.clone() }
    }
}

/// Returns an error if a tensor's name is too long, because long names make every loop over the names slow.
pub(super) fn check_name(name: &str) -> Result<()> {
    if name.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    let message = format!("expected a tensor name of at most {MAX_NAME_BYTES} bytes, found {} bytes", name.len());
    Err(Error::file(message).at(format!("tensor {}", short(name, 40))).hint("the file is hostile or damaged: download the file again"))
}

/// Refuses a shape with too many dimensions, or with more elements of 8 bytes than fit in the address space. A dimension of 0 counts as 1, because a
/// product of 0 would hide the other dimensions.
pub(super) fn check_shape(shape: &[usize]) -> Result<()> {
    if shape.len() > MAX_RANK {
        return Err(Error::file(format!("expected a shape of at most {MAX_RANK} dimensions, found {} dimensions", shape.len())));
    }
    let span = shape.iter().try_fold(8usize, |n, &d| n.checked_mul(d.max(1)));
    match span {
        Some(n) if n <= isize::MAX as usize => Ok(()),
        _ => Err(Error::file(format!("the shape {shape:?} is too large for this machine"))),
    }
}
