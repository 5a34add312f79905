//! Tensors in files: element types, shapes, and strided views of borrowed bytes.
//!
//! This module holds plain data, does not open files and knows no devices.

mod blocks;
mod view;

pub use view::{View, Walk};

use crate::error::{Error, Result};
use std::fmt;

/// The element type of a tensor in a file.
///
/// In most types each element has its own bytes. In a ggml type (`Q8_0` to `TQ2_0`), a block of 32 or 256 consecutive elements of a row shares
/// scales. wingbeat reads these types but never writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DType {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    I16,
    I8,
    U8,
    Bool,
    Q8_0,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q4K,
    Q5K,
    Q6K,
    Q2K,
    Q3K,
    IQ4NL,
    IQ4XS,
    MXFP4,
    TQ1_0,
    TQ2_0,
    /// A matrix quantised in the format of [`quant`](crate::quant) with this name. The bytes are the codes of all rows, then the scales.
    Coded(&'static str),
}

impl DType {
    /// All types except `Coded`.
    #[rustfmt::skip]
    pub const ALL: [DType; 25] = [
        DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I16, DType::I8, DType::U8, DType::Bool,
        DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q4K, DType::Q5K, DType::Q6K, DType::Q2K, DType::Q3K,
        DType::IQ4NL, DType::IQ4XS, DType::MXFP4, DType::TQ1_0, DType::TQ2_0,
    ];

    /// Returns how many elements a block has and how many bytes the block takes: `(32, 34)` for Q8_0. In a type without blocks, every element
    /// counts as one block: `(1, 2)` for F16. Returns `None` for [`DType::Coded`].
    pub const fn block(self) -> Option<(usize, usize)> {
        let block = match self {
            DType::Coded(_) => return None,
            DType::F64 | DType::I64 => (1, 8),
            DType::F32 | DType::I32 => (1, 4),
            DType::F16 | DType::BF16 | DType::I16 => (1, 2),
            DType::I8 | DType::U8 | DType::Bool => (1, 1),
            _ => match blocks::of(self) {
                Some(block) => (block.len, block.size_bytes),
                None => panic!("every type is listed here or in blocks"),
            },
        };
        Some(block)
    }

    /// Returns how many bytes one element takes, or `None` for block types and [`DType::Coded`].
    pub const fn size_bytes(self) -> Option<usize> {
        match self.block() {
            Some((1, bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Returns how many bytes `n` elements take, in whole blocks. Returns `None` for [`DType::Coded`], or if the result overflows.
    pub const fn bytes_of(self, n: usize) -> Option<usize> {
        match self.block() {
            Some((len, bytes)) => n.div_ceil(len).checked_mul(bytes),
            None => None,
        }
    }

    /// Returns whether a tensor of this type can be read as weights.
    pub const fn is_weight(self) -> bool {
        self.is_writable() || self.size_bytes().is_none()
    }

    /// Checks that a tensor of this type can be read as weights.
    ///
    /// # Errors
    /// `Model` if a tensor of this type cannot be read as weights.
    pub fn check_weight(self) -> Result<()> {
        if self.is_weight() { Ok(()) } else { Err(Error::model(format!("expected F32, F16 or BF16 weights, found {self}"))) }
    }

    /// Returns whether wingbeat can write weights in this type.
    pub const fn is_writable(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16)
    }

    /// Returns the name of the type in safetensors or GGUF files, such as `F16` or `Q8_0`. For [`DType::Coded`], returns the format's name.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F64 => "F64",
            DType::F32 => "F32",
            DType::F16 => "F16",
            DType::BF16 => "BF16",
            DType::I64 => "I64",
            DType::I32 => "I32",
            DType::I16 => "I16",
            DType::I8 => "I8",
            DType::U8 => "U8",
            DType::Bool => "BOOL",
            DType::Q8_0 => "Q8_0",
            DType::Q4_0 => "Q4_0",
            DType::Q4_1 => "Q4_1",
            DType::Q5_0 => "Q5_0",
            DType::Q5_1 => "Q5_1",
            DType::Q4K => "Q4_K",
            DType::Q5K => "Q5_K",
            DType::Q6K => "Q6_K",
            DType::Q2K => "Q2_K",
            DType::Q3K => "Q3_K",
            DType::IQ4NL => "IQ4_NL",
            DType::IQ4XS => "IQ4_XS",
            DType::MXFP4 => "MXFP4",
            DType::TQ1_0 => "TQ1_0",
            DType::TQ2_0 => "TQ2_0",
            DType::Coded(name) => name,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the number of elements of a shape, or `None` if the product overflows.
pub fn n_elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

/// Returns the strides of a dense row-major tensor of this shape, in elements.
pub fn dense_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for i in (0..shape.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1].saturating_mul(shape[i + 1]);
    }
    strides
}
