//! Weight formats: how a row of a matrix is stored, on the host and on the device.
//!
//! One file a format here, one `shaders/weight/<name>.wgsl` that decodes the same bytes, one line in [`FORMATS`]. A format says what
//! a code stands for; what codes are multiplied by, [`Scaling`] says for all of them. Rows are padded with zeros to a multiple of
//! [`PAD`] elements. Knows nothing of models, tensors, files or devices.

mod affine;
mod coded;
mod codes;
mod encode;
mod f16;
mod f32;
mod float;
mod i4;
mod i8;
mod i8rc;
mod nf4;
mod nibbles;
pub mod product;
mod scales;

pub use affine::{Affine, Survey};
pub use coded::{Coded, Coding};
pub use codes::Loops;
pub use encode::{Encoded, encode_rows};
pub use float::Float;
pub use scales::{Axis, Scales, Scaling, WEIGHTS_PER_BLOCK};

use crate::error::{Error, Result};
use std::fmt;

/// Every row of a matrix, and every row of activations, is padded with zeros to a multiple of this many elements: a unit.
pub const PAD: usize = 8;

/// `n` rounded up to whole [`PAD`]s.
pub const fn padded(n: usize) -> usize {
    n.div_ceil(PAD) * PAD
}

/// How numbers of a matrix are stored.
pub trait Format: Send + Sync {
    /// Its name in options, in JSON and of `shaders/weight/<name>.wgsl`.
    fn name(&self) -> &'static str;

    /// Returns what help says of it, in a few words; empty if the name says it all.
    fn about(&self) -> &'static str {
        ""
    }

    /// Of a code.
    fn bits(&self) -> usize;

    /// What codes are multiplied by.
    fn scaling(&self) -> Scaling {
        Scaling::None
    }

    /// Bytes of `n` codes; `n` is a multiple of [`PAD`].
    fn size_bytes(&self, n: usize) -> usize {
        n * self.bits() / 8
    }

    /// The largest number that a code stands for.
    fn largest(&self) -> f32;

    /// The scale for numbers that share one.
    fn scale(&self, _numbers: &[f32]) -> f32 {
        1.0
    }

    /// Appends the codes nearest to numbers that are divided by their scales already. Fails where a finite number does not fit.
    fn encode(&self, row: &[f32], out: &mut Vec<u8>) -> Result<()>;

    /// What reads the codes.
    fn loops(&self) -> Loops;

    /// What the codes stand for, to the last bit what the shader computes.
    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        (self.loops().decode)(bytes, out);
    }

    /// Σ code·x, accumulated in f32, always in the same order for the same length.
    fn dot(&self, bytes: &[u8], x: &[f32]) -> f32 {
        (self.loops().dot)(bytes, x)
    }

    /// Σ over blocks of [`WEIGHTS_PER_BLOCK`] of scale · Σ code·x.
    fn dot_blocks(&self, bytes: &[u8], scales: &[f32], x: &[f32]) -> f32 {
        (self.loops().dot_blocks)(bytes, scales, x)
    }
}

impl fmt::Debug for dyn Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for dyn Format {
    fn eq(&self, other: &dyn Format) -> bool {
        self.name() == other.name()
    }
}

/// All formats. Parser, help, tests and benches walk this list.
pub static FORMATS: &[&dyn Format] = &[&f16::F16, &f32::F32, &i8::I8, &i4::I4, &nf4::Nf4, &i8rc::I8rc];

/// Formats that hold any activation as it is.
pub fn floats() -> impl Iterator<Item = &'static dyn Format> {
    FORMATS.iter().copied().filter(|f| f.scaling() == Scaling::None)
}

/// A row, with what does not fit as large as can be: keys and values, of which an infinite one would end all attention to come.
pub fn encode_within(format: &dyn Format, row: &[f32]) -> Vec<u8> {
    let largest = format.largest();
    let within: Vec<f32> = row.iter().map(|x| x.clamp(-largest, largest)).collect();
    let mut out = Vec::with_capacity(format.size_bytes(row.len()));
    format.encode(&within, &mut out).expect("all of these fit");
    out
}

/// The format of that name.
pub fn find(name: &str) -> Result<&'static dyn Format> {
    FORMATS.iter().copied().find(|f| f.name() == name).ok_or_else(|| {
        let known: Vec<_> = FORMATS.iter().map(|f| f.name()).collect();
        Error::usage(format!("unknown weight format {name:?}, expected one of {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests;
