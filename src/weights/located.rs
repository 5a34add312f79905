//! One tensor as a file lists it: its name there, its type and shape, and which bytes of the file it may touch.
//!
//! Plain data with checked sizes. Knows neither formats nor the meaning of names.

use crate::error::{Error, Result, short};
use crate::quant::{Coded, Coding};
use crate::tensor::{DType, View};
use std::ops::Range;

/// More dimensions than any checkpoint has.
const MAX_RANK: usize = 8;

/// Bytes of a tensor's name. Real names have less than 150.
pub(super) const MAX_NAME_BYTES: usize = 512;

/// A tensor of a file.
#[derive(Debug, Clone)]
pub(super) struct Located {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<usize>,
    /// In elements.
    pub strides: Vec<usize>,
    /// From the first element on, in the whole file.
    pub bytes: Range<usize>,
    /// A power of two that undoes what a converter divided by.
    pub scale: f32,
    /// Which of the checkpoint's files.
    pub file: usize,
    /// How the bytes are coded, where they are no plain numbers.
    pub coding: Option<Coding>,
}

impl Located {
    pub fn view<'a>(&self, file: &'a [u8]) -> Result<View<'a>> {
        let bytes = file
            .get(self.bytes.clone())
            .ok_or_else(|| Error::file(format!("expected bytes {}..{}, the file has {}", self.bytes.start, self.bytes.end, file.len())))?;
        if let Some(coding) = self.coding {
            let (rows, k) = coding.sides(&self.shape);
            return View::coded(Coded::new(coding, rows, k, bytes)?, &self.shape);
        }
        Ok(View::strided(self.dtype, &self.shape, &self.strides, bytes)?.scaled(self.scale))
    }

    /// Some rows under a name of their own: the same bytes, from the first of theirs on. Rows of blocks are whole blocks. A `.pth` may
    /// claim any stride; what lies outside its storage is found out when all tensors are checked.
    pub fn rows(&self, name: String, rows: Range<usize>) -> Located {
        let skipped = self.strides.first().and_then(|stride| self.dtype.bytes_of(stride.checked_mul(rows.start)?));
        let mut shape = self.shape.clone();
        if let Some(n) = shape.first_mut() {
            *n = rows.len();
        }
        Located { name, shape, bytes: self.bytes.start.saturating_add(skipped.unwrap_or(usize::MAX))..self.bytes.end, ..self.clone() }
    }
}

/// Refuses names that no model has: every pass over the names of a file is linear in their length.
pub(super) fn check_name(name: &str) -> Result<()> {
    if name.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    let message = format!("expected a name of at most {MAX_NAME_BYTES} bytes, found {}", name.len());
    Err(Error::file(message).at(format!("tensor {}…", short(name, 40))).hint("the file is hostile or damaged"))
}

/// Refuses shapes that no address can hold, even where a zero hides it.
pub(super) fn check_shape(shape: &[usize]) -> Result<()> {
    if shape.len() > MAX_RANK {
        return Err(Error::file(format!("expected at most {MAX_RANK} dimensions, found {}", shape.len())));
    }
    let span = shape.iter().try_fold(8usize, |n, &d| n.checked_mul(d.max(1)));
    match span {
        Some(n) if n <= isize::MAX as usize => Ok(()),
        _ => Err(Error::file(format!("the shape {shape:?} has more elements than an address holds"))),
    }
}
