//! ggml's block types: so many numbers lie together and share their scales. Decoding only; one file a family.
//!
//! Knows bytes and numbers. Of which tensor they are, and how it lies in a file, is decided above.

mod k;
mod small;

use super::DType;
use ::half::f16;

/// The most numbers that a block has.
const MAX_LEN: usize = 256;

/// What a block type is.
pub struct Block {
    /// Numbers.
    pub len: usize,
    pub size_bytes: usize,
    decode: Decode,
}

/// Takes exactly one block and exactly its numbers.
type Decode = fn(&[u8], &mut [f32]);

/// The block of a type; `None` where each number stands alone.
pub const fn of(dtype: DType) -> Option<Block> {
    let (len, size_bytes, decode): (usize, usize, Decode) = match dtype {
        DType::Q8_0 => (32, 34, small::q8_0),
        DType::Q4_0 => (32, 18, small::q4_0),
        DType::Q4_1 => (32, 20, small::q4_1),
        DType::Q5_0 => (32, 22, small::q5_0),
        DType::Q5_1 => (32, 24, small::q5_1),
        DType::Q4K => (MAX_LEN, 144, k::q4_k),
        DType::Q5K => (MAX_LEN, 176, k::q5_k),
        DType::Q6K => (MAX_LEN, 210, k::q6_k),
        _ => return None,
    };
    Some(Block { len, size_bytes, decode })
}

impl Block {
    /// Decodes `out.len()` numbers from number `start` of consecutive blocks on.
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

/// The f16 at a byte.
fn half(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

#[cfg(test)]
mod golden;
