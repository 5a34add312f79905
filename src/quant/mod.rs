//! Weight formats: how the elements of a matrix are stored, on the host and on the device.
//!
//! A format stores each weight as a *code* of a fixed number of bits, and defines the value of each code. Its [`Scaling`] defines the
//! scales and offsets that turn these values into weights. Rows are padded with zeros to a multiple of [`PAD`] elements. A format is one
//! file here, one shader `shaders/weight/<name>.wgsl` that decodes the same bytes, and one entry in [`FORMATS`]. This module knows no
//! models, tensors, files or devices.

mod affine;
mod coded;
mod codes;
mod encode;
mod f16;
mod f32;
mod few;
mod float;
mod i4;
mod i8;
mod i8rc;
pub(crate) mod isa;
mod nf4;
mod nibbles;
pub mod product;
mod q4_0;
mod q8_0;
mod scales;
mod tile;
pub(crate) mod units;

pub use affine::{Affine, Survey};
pub use coded::{Coded, Coding};
pub use codes::Decode;
pub use encode::{EncodedRows, encode_rows};
pub(crate) use f16::F16;
pub(crate) use f32::F32;
pub use float::Float;
pub use scales::{Axis, Factors, RowFactors, Scales, Scaling, WEIGHTS_PER_BLOCK};

use crate::error::{Error, Result};
use std::fmt;

/// The number of codes in a unit, the smallest group of consecutive codes that a kernel decodes. Every row of a matrix and every vector of
/// activations is padded with zeros to whole units.
pub const PAD: usize = 8;

/// Rounds `n` up to a multiple of [`PAD`].
pub const fn padded(n: usize) -> usize {
    n.div_ceil(PAD) * PAD
}

/// The functions that decode and multiply codes of one format on the CPU.
#[derive(Clone, Copy)]
pub struct Loops {
    /// Decodes a row of codes and multiplies the values by factors.
    pub decode: Decode,
    /// Multiplies rows of codes by the activations of 1 to 4 tokens.
    pub multiply: few::Multiply,
}

impl Loops {
    fn of<C: units::Codes>() -> Loops {
        Loops { decode: codes::decode_of::<C>(), multiply: few::multiply_of::<C>() }
    }
}

/// Takes over the blocks of a GGUF file.
#[derive(Clone, Copy)]
pub struct Repack {
    /// The number of bytes of a block in the file.
    pub block_bytes: usize,
    /// Appends the codes and the scale of one block.
    pub one: fn(&[u8], &mut EncodedRows),
}

/// Returns the little-endian f16 at the beginning of a block.
fn half(block: &[u8]) -> half::f16 {
    half::f16::from_le_bytes([block[0], block[1]])
}

/// A weight format: the encoding of a matrix's elements.
pub trait Format: Send + Sync {
    /// Returns the name in options and in JSON. The shader `shaders/weight/<name>.wgsl` has the same name.
    fn name(&self) -> &'static str;

    /// Returns a few words about the format for help texts, or an empty string if its name is enough.
    fn about(&self) -> &'static str {
        ""
    }

    /// Returns the number of bits of a code.
    fn bits(&self) -> usize;

    /// Returns the kind of scales that the format uses.
    fn scaling(&self) -> Scaling {
        Scaling::None
    }

    /// Returns how many bytes `n` codes take. `n` is a multiple of [`PAD`].
    fn size_bytes(&self, n: usize) -> usize {
        n * self.bits() / 8
    }

    /// Returns the largest unscaled value of a code.
    fn largest(&self) -> f32;

    /// Returns how many weights share a scale: [`WEIGHTS_PER_BLOCK`] or a smaller power of two. Only formats with [`Scaling::Blocks`] use this number.
    /// Smaller blocks are along rows only.
    fn block(&self) -> usize {
        WEIGHTS_PER_BLOCK
    }

    /// Returns how to take over the blocks of the GGUF type with this format's name. The weights stay exactly the same. Returns `None` if no GGUF type
    /// has this name.
    fn repack(&self) -> Option<Repack> {
        None
    }

    /// Returns the scale of a block of weights. Only formats with [`Scaling::Blocks`] have to implement this function.
    fn scale(&self, _numbers: &[f32]) -> f32 {
        1.0
    }

    /// Appends the nearest code of every element in `row` to `out`. The caller has already subtracted the offsets from the elements and divided them
    /// by their scales.
    ///
    /// # Errors
    ///
    /// `Model` if a finite element is too large for the format.
    fn encode(&self, row: &[f32], out: &mut Vec<u8>) -> Result<()>;

    /// Returns the inner loops for the codes of this format.
    fn loops(&self) -> Loops;

    /// Decodes codes to unscaled values. The shader of the format decodes to the same values, bit for bit.
    fn decode(&self, bytes: &[u8], out: &mut [f32]) {
        (self.loops().decode)(bytes, Factors::One, out, bytes);
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

/// All formats. The parser of options, help texts, tests and benchmarks use this list.
pub static FORMATS: &[&dyn Format] = &[&f16::F16, &f32::F32, &i8::I8, &i4::I4, &nf4::Nf4, &i8rc::I8rc, &q8_0::Q8_0, &q4_0::Q4_0];

/// Returns the formats without scales, in which caches and states can be stored.
pub fn floats() -> impl Iterator<Item = &'static dyn Format> {
    FORMATS.iter().copied().filter(|f| f.scaling() == Scaling::None)
}

/// Encodes a row of keys, values or states. Elements beyond the largest value of the format are clamped to this value, because one infinite key would
/// make the attention of all later tokens NaN.
///
/// `format` is one of [`floats`].
pub fn encode_within(format: &dyn Format, row: &[f32]) -> Vec<u8> {
    let largest = format.largest();
    let within: Vec<f32> = row.iter().map(|x| x.clamp(-largest, largest)).collect();
    let mut out = Vec::with_capacity(format.size_bytes(row.len()));
    format.encode(&within, &mut out).expect("clamped numbers fit");
    out
}

/// Finds a format by its name.
///
/// # Errors
///
/// `Usage` if no format has this name.
pub fn find(name: &str) -> Result<&'static dyn Format> {
    FORMATS.iter().copied().find(|f| f.name() == name).ok_or_else(|| {
        let known: Vec<_> = FORMATS.iter().map(|f| f.name()).collect();
        Error::usage(format!("unknown weight format {name:?}, expected one of {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests;
