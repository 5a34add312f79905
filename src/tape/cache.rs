//! Caches of attention, and the rotary position embedding.
//!
//! A cache holds the keys or the values of all tokens, in blocks of 64 tokens. Forked slots share a block until one of the slots writes to it.

use crate::error::{Result, try_alloc};
use crate::quant::PAD;

/// The number of tokens per block. A slot's cache grows one block at a time.
pub const TOKENS_PER_BLOCK: usize = 64;

/// The handle of a cache: the keys, or the values, of one layer for all slots. On a device, the memory of the cache is `[blocks, n_heads,
/// TOKENS_PER_BLOCK head_size]`, and [`CacheSpec::is_keys`] describes the order within a head. [`HostCache`](super::HostCache) has the layout on the
/// host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cache(pub(crate) usize);

/// The declaration of a cache of keys or of values.
#[derive(Debug, Clone)]
pub struct CacheSpec {
    /// The name of the tensor that holds the cache in a state file.
    pub name: String,
    pub n_heads: usize,
    pub head_size: usize,
    /// `true` for keys, `false` for values. This determines how a device stores the elements of one head in a block. Keys are `[head_size / PAD,
    /// tokens, PAD]`, because neighbouring lanes read the same channels of consecutive keys. Values are `[tokens, head_size]`, because
    /// neighbouring lanes read consecutive channels of one value.
    pub is_keys: bool,
}

impl CacheSpec {
    /// Returns how many elements the cache holds per token: `n_heads * head_size`.
    pub fn width(&self) -> usize {
        self.n_heads * self.head_size
    }

    /// Returns how many elements the cache holds per block.
    pub fn block_len(&self) -> usize {
        TOKENS_PER_BLOCK * self.width()
    }

    /// Returns the index within a device's block of element `i` of a key or value. `token` is the token's index in the block, `i` a row-major
    /// index into `[n_heads, head_size]`.
    pub fn offset(&self, token: usize, i: usize) -> usize {
        let (head, channel) = (i / self.head_size, i % self.head_size);
        let head_at = head * TOKENS_PER_BLOCK * self.head_size;
        match self.is_keys {
            true => head_at + (channel / PAD * TOKENS_PER_BLOCK + token) * PAD + channel % PAD,
            false => head_at + token * self.head_size + channel,
        }
    }
}

/// The amounts of pages, blocks and tokens for which an executor allocates memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capacity {
    /// The number of pages. A page holds the recurrent states of one slot.
    pub pages: usize,
    /// The number of blocks in every cache.
    pub blocks: usize,
    /// The largest length of [`Step::blocks`](super::Step::blocks). A block that several slots share is listed once per slot.
    pub listed: usize,
    /// The largest number of tokens that one slot can have.
    pub context: usize,
}

impl Capacity {
    /// Returns the room for a tape without caches: `pages` pages, and no blocks.
    pub fn pages(pages: usize) -> Capacity {
        Capacity { pages, ..Capacity::default() }
    }
}

/// Rotary position embedding: at position p, the channels 2 i and 2 i + 1 of every head are rotated by `p / base^(2 i / size)` radians, for each i
/// below `size / 2`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rotary {
    /// The number of channels of each head that are rotated, an even number.
    pub size: usize,
    pub base: f64,
}

impl Rotary {
    /// Returns cos and sin of the rotation angles, `[n, size / 2, 2]`: for each position in `0..n`, for each pair of channels.
    ///
    /// Frequencies and angles are rounded to f32, as in the official code. With size 64 and base 5e6, an unrounded angle at position 131 071 would
    /// differ from the official angle by up to 3e-3 radians. The host computes the table, because sin and cos are not exact enough in shaders.
    ///
    /// # Errors
    /// `Memory` if the host has no room for the table.
    pub fn angles(&self, n: usize) -> Result<Vec<f32>> {
        let speed = |i: usize| (1.0 / self.base.powf(2.0 * i as f64 / self.size as f64)) as f32;
        let speeds: Vec<f32> = (0..self.size / 2).map(speed).collect();
        let mut table = try_alloc(n.saturating_mul(self.size), "angles")?;
        for position in 0..n {
            for speed in &speeds {
                let angle = f64::from(position as f32 * speed);
                table.extend([angle.cos() as f32, angle.sin() as f32]);
            }
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_match_the_official_code() {
        let first = |base: f64| {
            let angles = Rotary { size: 64, base }.angles(2).unwrap();
            [0, 1, 2, 16].map(|i| f64::from(angles[64 + 2 * i + 1]).asin())
        };
        // In GLM-4, the base is 10 000 times `rope_ratio`; the ratio does not scale positions. The exponent divides by the number of rotated
        // channels, and not by the head size.
        for (base, expected) in [(5e6, [1.0, 0.6175288, 0.3813418, 4.4721e-4]), (1e4, [1.0, 0.7498942, 0.5623413, 0.01])] {
            for (found, expected) in first(base).into_iter().zip(expected) {
                assert!((found - expected).abs() < 1e-6, "{base}: {found} {expected}");
            }
        }
    }

    #[test]
    fn every_number_of_a_block_has_its_own_place() {
        for is_keys in [false, true] {
            let spec = CacheSpec { name: "k".into(), n_heads: 3, head_size: 16, is_keys };
            let mut places: Vec<usize> =
                (0..TOKENS_PER_BLOCK).flat_map(|t| (0..48).map(move |i| (t, i))).map(|(t, i)| spec.offset(t, i)).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..spec.block_len()));
        }
    }
}
