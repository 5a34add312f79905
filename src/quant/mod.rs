//! Weight formats: how the elements of a matrix are stored, on the host and on the device.
//!
//! A format stores each weight as a *code* of a fixed number of bits, and defines the value of each code. Its [`Scaling`] defines the
//! scales and offsets that turn these values into weights. Rows are padded with zeros to a multiple of [`PAD`] elements. A format is one
//! file here, one shader `shaders/weight/<name>.wgsl` that decodes the same bytes, and one entry in [`FORMATS`]. This module knows no
//! models, tensors, files or devices.

mod activations;
mod affine;
mod block_scales;
mod coded;
mod codes;
mod encode;
mod f16;
mod f32;
mod few;
mod float;
mod gguf;
mod i4;
mod i8;
mod i8rc;
pub(crate) mod isa;
pub mod limit;
mod nf4;
mod nibbles;
mod planes;
pub mod product;
mod rounded;
mod scales;
mod tile;
pub(crate) mod units;
mod whole;

pub use activations::Activations;
pub use affine::{Affine, Survey};
pub use block_scales::{BlockLayout, WEIGHTS_PER_BLOCK};
pub use coded::{Coded, Coding};
pub use codes::Decode;
pub use encode::{EncodedRows, RowEncoder};
pub(crate) use f16::F16;
pub(crate) use f32::F32;
pub use float::Float;
pub use gguf::FileBlocks;
pub use scales::{Axis, Factors, RowFactors, Scales, Scaling, Subs};

use crate::error::{Error, Result};
use block_scales::BlockScales;
use gguf::Gguf;
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
    /// Multiplies rows of codes by the activations of a few tokens. `None` if products of the format always decode whole rows first.
    pub multiply: Option<few::Multiply>,
    /// Arranges rows of codes for products with rounded activations. `None` in a build for browsers, or if `is_whole` is false.
    pub interleave: Option<rounded::Interleave>,
    /// Multiplies striped codes by the rounded activations of a few tokens. `None` if products always arrange the codes first.
    pub multiply_striped: Option<rounded::MultiplyFew>,
    /// Writes striped codes. `None` if the format has none.
    pub stripe: Option<rounded::Stripe>,
    /// The scales of blocks along rows.
    pub blocks: BlockLayout,
    /// `true` if the values of the codes are whole numbers times a constant. Then products may round their activations to whole numbers, too.
    pub is_whole: bool,
}

impl Loops {
    /// Returns the loops of a format whose units `C` describes, with the scales `S` in blocks along rows.
    fn of<C: units::Codes, S: BlockScales>() -> Loops {
        let blocks = BlockLayout::of::<S>();
        debug_assert!(C::SUB == 0 || (blocks.sub, blocks.has_minima) == (C::SUB, C::HAS_MINIMA));
        let multiply = if C::HAS_FEW { Some(few::multiply_of::<C>()) } else { None };
        Loops {
            decode: codes::decode_of::<C>(),
            multiply,
            interleave: rounded::interleave_of::<C, S>(),
            multiply_striped: rounded::few_of::<C, S>(),
            stripe: rounded::stripe_of::<C>(),
            blocks,
            is_whole: C::IS_WHOLE,
        }
    }
}

/// A weight format: the encoding of a matrix's elements.
pub trait Format: Send + Sync {
    /// Returns the name in options and in JSON.
    fn name(&self) -> &'static str;

    /// Returns the name of the shader `shaders/weight/<shader>.wgsl`, which decodes the codes. Formats whose codes have the same values share a shader.
    fn shader(&self) -> &'static str {
        self.name()
    }

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

    /// Returns how many bytes a row of `k` weights takes with the scales of blocks along rows.
    fn bytes_per_row(&self, k: usize) -> usize {
        let items = if self.scaling() == Scaling::Blocks { self.blocks().per_row(padded(k)) } else { 0 };
        self.size_bytes(padded(k)) + 2 * items
    }

    /// Returns the largest unscaled value of a code.
    fn largest(&self) -> f32;

    /// Returns the layout of the scales of blocks along rows. Only formats with [`Scaling::Blocks`] use it.
    fn blocks(&self) -> BlockLayout {
        self.loops().blocks
    }

    /// Returns the number of weights in a block along rows. Only formats with [`Scaling::Blocks`] use it. Blocks along columns exist only in formats whose
    /// blocks have [`WEIGHTS_PER_BLOCK`] weights.
    fn block(&self) -> usize {
        self.blocks().len
    }

    /// Returns the functions that take over the blocks of the GGUF type with this format's name. The weights stay exactly the same. Returns `None` if no
    /// GGUF type has this name.
    fn file_blocks(&self) -> Option<&dyn FileBlocks> {
        None
    }

    /// Returns the scale of a block of weights. `_importance` has a factor for the squared error of each weight. Only formats with [`Scaling::Blocks`]
    /// and without [`file_blocks`](Self::file_blocks) have to implement this function.
    fn scale(&self, _numbers: &[f32], _importance: Option<&[f32]>) -> f32 {
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
#[rustfmt::skip]
pub static FORMATS: &[&dyn Format] = &[
    &f16::F16, &f32::F32, &i8::I8, &i4::I4, &nf4::Nf4, &i8rc::I8rc,
    &Gguf::<gguf::Q8_0>::FORMAT, &Gguf::<gguf::Q6K>::FORMAT, &Gguf::<gguf::Q5K>::FORMAT, &Gguf::<gguf::Q5_0>::FORMAT, &Gguf::<gguf::Q5_1>::FORMAT,
    &Gguf::<gguf::Q4K>::FORMAT, &Gguf::<gguf::Q4_0>::FORMAT, &Gguf::<gguf::Q4_1>::FORMAT, &Gguf::<gguf::Iq4Nl>::FORMAT, &Gguf::<gguf::Iq4Xs>::FORMAT,
    &Gguf::<gguf::Q3K>::FORMAT, &Gguf::<gguf::Q2K>::FORMAT,
];

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
