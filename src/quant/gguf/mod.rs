//! Weight formats that are block types of GGUF files. They hold the weights of their type exactly.
//!
//! A file stores codes and scales together, block by block. Here the codes are in units and the scales in a list of their own, so that kernels
//! load both in whole words.

mod iq4;
mod k;
pub(super) mod search;
mod small;

pub use iq4::{Iq4Nl, Iq4Xs};
pub use k::{Q2K, Q3K, Q4K, Q5K, Q6K};
pub use small::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};

use super::block_scales::{BlockLayout, BlockScales};
use super::planes::Bits;
use super::units::Codes;
use super::{EncodedRows, Format, Loops, PAD, Scaling};
use crate::error::{Error, Result};
use half::f16;
use std::marker::PhantomData;

/// The largest number of weights in a block.
const MOST: usize = 256;

/// A block type of GGUF files.
pub trait BlockType: Send + Sync {
    /// The bits of a code.
    type Bits: Bits;
    /// The values of the codes.
    type Codes: Codes;
    /// The scales of blocks.
    type Scales: BlockScales;
    /// The type's name in lower case.
    const NAME: &'static str;
    const ABOUT: &'static str;
    /// The shader that decodes the codes: `shaders/weight/<SHADER>.wgsl`. Types whose codes have the same values share a shader.
    const SHADER: &'static str;
    /// The number of bytes of a block in a file.
    const BYTES: usize;
    /// A code c has the value c − `ZERO`. If the values are in a table, this holds only for the last code.
    const ZERO: i32;

    /// Reads a block of a file: writes its codes, and appends the items of its scales.
    fn unpack(block: &[u8], codes: &mut [u8], items: &mut Vec<f16>);

    /// Appends a block of a file, which has these codes and items.
    fn pack(codes: &[u8], items: &[f16], out: &mut Vec<u8>);

    /// Encodes the weights `x` of a block. `importance` has a factor for the squared error of each weight. Writes codes and appends items, as
    /// [`unpack`](Self::unpack) does.
    fn encode(x: &[f32], importance: &[f32], codes: &mut [u8], items: &mut Vec<f16>);

    /// Returns the code whose value is nearest to `x`.
    fn nearest(x: f32) -> u8 {
        (x.round() + Self::ZERO as f32).clamp(0.0, Self::last()) as u8
    }

    /// Returns the largest code.
    fn last() -> f32 {
        ((1u32 << Self::Bits::BITS) - 1) as f32
    }
}

/// A block type of GGUF: reads the blocks of a file, and encodes rows as such blocks.
pub trait FileBlocks: Sync {
    /// Returns the number of bytes of a block in a file.
    fn block_bytes(&self) -> usize;

    /// Takes over a block of a file: appends its codes and its scales.
    fn repack(&self, block: &[u8], out: &mut EncodedRows);

    /// Appends the blocks of a file for encoded rows of whole blocks: their codes and items.
    fn pack(&self, codes: &[u8], items: &[f16], out: &mut Vec<u8>);

    /// Encodes a row of weights: appends its codes and scales. `importance` has one factor per column for squared errors: the mean square of the column's
    /// inputs. Published encoders multiply this factor by √(σ² + x²), for a weight x and the mean square σ² of its row. Without this multiplication, the
    /// loss of small models was lower in 11 of 12 comparisons.
    ///
    /// # Errors
    ///
    /// `Model` if a weight is not finite or too large for the format.
    fn encode_row(&self, row: &[f32], importance: Option<&[f32]>, out: &mut EncodedRows) -> Result<()>;
}

/// The weight format of a [`BlockType`].
pub struct Gguf<T>(PhantomData<T>);

impl<T: BlockType> Gguf<T> {
    pub const FORMAT: Gguf<T> = Gguf(PhantomData);
}

/// [`BlockType::encode`].
type Encode = fn(&[f32], &[f32], &mut [u8], &mut Vec<f16>);

/// The functions of a [`BlockType`] as values, so that the loops over blocks are compiled once for all types.
struct Functions {
    name: &'static str,
    blocks: BlockLayout,
    bits: usize,
    unpack: fn(&[u8], &mut [u8], &mut Vec<f16>),
    pack: fn(&[u8], &[f16], &mut Vec<u8>),
    encode: Encode,
    nearest: fn(f32) -> u8,
    /// Reads a unit of codes.
    eight: fn(&[u8]) -> [u8; PAD],
    /// Appends a unit of codes.
    unit: fn(&[u8; PAD], &mut Vec<u8>),
}

impl<T: BlockType> Gguf<T> {
    fn functions() -> Functions {
        Functions {
            name: T::NAME,
            blocks: BlockLayout::of::<T::Scales>(),
            bits: T::Bits::BITS,
            unpack: T::unpack,
            pack: T::pack,
            encode: T::encode,
            nearest: T::nearest,
            eight: T::Bits::eight,
            unit: T::Bits::pack,
        }
    }
}

impl Functions {
    fn repack(&self, block: &[u8], out: &mut EncodedRows) {
        let mut codes = [0; MOST];
        let codes = &mut codes[..self.blocks.len];
        (self.unpack)(block, codes, &mut out.scales);
        codes.as_chunks().0.iter().for_each(|unit| (self.unit)(unit, &mut out.codes));
    }

    fn pack(&self, codes: &[u8], items: &[f16], out: &mut Vec<u8>) {
        let mut own = [0; MOST];
        for (codes, items) in codes.chunks_exact(self.blocks.len / PAD * self.bits).zip(items.chunks_exact(self.blocks.items)) {
            let units = own.as_chunks_mut::<PAD>().0.iter_mut().zip(codes.chunks_exact(self.bits));
            units.for_each(|(own, unit)| *own = (self.eight)(unit));
            (self.pack)(&own[..self.blocks.len], items, out);
        }
    }

    fn nearest(&self, values: &[f32], out: &mut Vec<u8>) {
        values.as_chunks::<PAD>().0.iter().for_each(|unit| (self.unit)(&unit.map(self.nearest), out));
    }

    fn encode_row(&self, row: &[f32], importance: Option<&[f32]>, out: &mut EncodedRows) -> Result<()> {
        if let Some(x) = row.iter().find(|x| !x.is_finite()) {
            return Err(Error::model(format!("the weight {x} cannot be stored in the format {}", self.name)).hint("leave out `quant`"));
        }
        let (len, first) = (self.blocks.len, out.scales.len());
        for (i, block) in row.chunks(len).enumerate() {
            // Zeros fill an incomplete block, with a small importance, so that they do not matter.
            let (mut x, mut weights, mut codes) = ([0.0; MOST], [1e-6; MOST], [0; MOST]);
            x[..block.len()].copy_from_slice(block);
            match importance {
                Some(importance) => weights[..block.len()].copy_from_slice(&importance[i * len..][..block.len()]),
                None => weights[..block.len()].fill(1.0),
            }
            (self.encode)(&x[..len], &weights[..len], &mut codes[..len], &mut out.scales);
            codes[..block.len()].as_chunks().0.iter().for_each(|unit| (self.unit)(unit, &mut out.codes));
        }
        if self.blocks.misfit(&out.scales[first..]).is_none() {
            return Ok(());
        }
        let most = row.iter().fold(0f32, |most, x| most.max(x.abs()));
        let text = format!("the weight {most} is too large for the scales of the format {}", self.name);
        Err(Error::model(text).hint("leave out `quant`"))
    }
}

impl<T: BlockType> FileBlocks for Gguf<T> {
    fn block_bytes(&self) -> usize {
        T::BYTES
    }

    fn repack(&self, block: &[u8], out: &mut EncodedRows) {
        Self::functions().repack(block, out);
    }

    fn pack(&self, codes: &[u8], items: &[f16], out: &mut Vec<u8>) {
        Self::functions().pack(codes, items, out);
    }

    fn encode_row(&self, row: &[f32], importance: Option<&[f32]>, out: &mut EncodedRows) -> Result<()> {
        Self::functions().encode_row(row, importance, out)
    }
}

impl<T: BlockType> Format for Gguf<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn about(&self) -> &'static str {
        T::ABOUT
    }

    fn shader(&self) -> &'static str {
        T::SHADER
    }

    fn bits(&self) -> usize {
        T::Bits::BITS
    }

    fn scaling(&self) -> Scaling {
        Scaling::Blocks
    }

    fn largest(&self) -> f32 {
        T::last() - T::ZERO as f32
    }

    fn file_blocks(&self) -> Option<&dyn FileBlocks> {
        Some(self)
    }

    fn encode(&self, row: &[f32], out: &mut Vec<u8>) -> Result<()> {
        Self::functions().nearest(row, out);
        Ok(())
    }

    fn loops(&self) -> Loops {
        Loops::of::<T::Codes, T::Scales>()
    }
}

/// Returns the little-endian f16 at byte `at` of a block.
fn half(block: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([block[at], block[at + 1]])
}

/// Returns an item of two bytes.
fn item(low: u8, high: u8) -> f16 {
    f16::from_le_bytes([low, high])
}

/// Writes codes that are stored as nibbles. `half` bytes hold a run of `2 * half` codes: first the low nibbles, then the high nibbles.
fn unpack_nibbles(bytes: &[u8], half: usize, codes: &mut [u8]) {
    for (bytes, codes) in bytes.chunks_exact(half).zip(codes.chunks_exact_mut(2 * half)) {
        let (low, high) = codes.split_at_mut(half);
        for ((n, low), high) in bytes.iter().zip(low).zip(high) {
            (*low, *high) = (n & 15, n >> 4);
        }
    }
}

/// The inverse of [`unpack_nibbles`]. Only the low four bits of each code are written.
fn pack_nibbles(codes: &[u8], half: usize, out: &mut Vec<u8>) {
    for codes in codes.chunks_exact(2 * half) {
        let (low, high) = codes.split_at(half);
        out.extend(low.iter().zip(high).map(|(low, high)| low & 15 | high << 4));
    }
}
