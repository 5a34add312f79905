//! Decodes ggml's quantised block types, in which the elements of a block share scales. Each file of this module decodes one family of types.
//!
//! This module converts bytes to f32, and does not know tensors or files.

mod k;
mod nonlinear;
mod small;
mod ternary;

use super::DType;
use ::half::f16;

/// The length of the longest block, in elements.
const MAX_LEN: usize = 256;

/// The size of a ggml block, and the function that decodes it.
pub struct BlockFormat {
    /// The number of elements in a block.
    pub len: usize,
    /// The number of bytes that a block takes.
    pub size_bytes: usize,
    decode: Decode,
}

/// A function that decodes one block. Its arguments are the bytes of the block, and a slice for all elements of the block.
type Decode = fn(&[u8], &mut [f32]);

/// Returns the description of the blocks of `dtype`, or `None` if this type has no blocks.
pub const fn of(dtype: DType) -> Option<BlockFormat> {
    let (len, size_bytes, decode): (usize, usize, Decode) = match dtype {
        DType::Q8_0 => (32, 34, small::q8_0),
        DType::Q4_0 => (32, 18, small::q4_0),
        DType::Q4_1 => (32, 20, small::q4_1),
        DType::Q5_0 => (32, 22, small::q5_0),
        DType::Q5_1 => (32, 24, small::q5_1),
        DType::Q4K => (MAX_LEN, 144, k::q4_k),
        DType::Q5K => (MAX_LEN, 176, k::q5_k),
        DType::Q6K => (MAX_LEN, 210, k::q6_k),
        DType::Q2K => (MAX_LEN, 84, k::q2_k),
        DType::Q3K => (MAX_LEN, 110, k::q3_k),
        DType::IQ4NL => (32, 18, nonlinear::iq4_nl),
        DType::IQ4XS => (MAX_LEN, 136, nonlinear::iq4_xs),
        DType::MXFP4 => (32, 17, nonlinear::mxfp4),
        DType::TQ1_0 => (MAX_LEN, 54, ternary::tq1_0),
        DType::TQ2_0 => (MAX_LEN, 66, ternary::tq2_0),
        _ => return None,
    };
    Some(BlockFormat { len, size_bytes, decode })
}

impl BlockFormat {
    /// Decodes `out.len()` elements of the consecutive blocks in `bytes`. `start` is the index of the first element to decode, counted from the
    /// first element of the first block.
    ///
    /// # Panics
    /// If `bytes` has too few blocks.
    pub fn read(&self, bytes: &[u8], start: usize, mut out: &mut [f32]) {
        let mut at = start;
        while !out.is_empty() {
            let skip = at % self.len;
            let n = (self.len - skip).min(out.len());
            let (now, rest) = out.split_at_mut(n);
            let block = &bytes[at / self.len * self.size_bytes..][..self.size_bytes];
            if n == self.len {
                (self.decode)(block, now);
            } else {
                let mut whole = [0.0; MAX_LEN];
                (self.decode)(block, &mut whole[..self.len]);
                now.copy_from_slice(&whole[skip..skip + n]);
            }
            (at, out) = (at + n, rest);
        }
    }
}

/// Returns the little-endian f16 at byte `at`, as f32.
fn half(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

#[cfg(test)]
mod golden;
