//! Caches of attention, which hold keys and values of every token in blocks; and the rotary position embedding. Slots may share a block
//! until one of the slots writes to it.

use crate::error::{Result, room};
use crate::quant::PAD;

/// The number of tokens in a block, the unit by which a slot's cache grows.
pub const TOKENS_PER_BLOCK: usize = 64;

/// The handle of the keys or of the values of all slots: `[blocks, n_heads, TOKENS_PER_BLOCK, head_size]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cache(pub(crate) usize);

/// The declaration of a cache.
#[derive(Debug, Clone)]
pub struct CacheSpec {
    /// The tensor name in state files.
    pub name: String,
    pub n_heads: usize,
    pub head_size: usize,
    /// Determines the layout of one head's part of a block on a device. `true`: `[head_size / PAD, tokens, PAD]`, because neighbouring lanes
    /// read the same channels of consecutive keys. `false`: `[tokens, head_size]`, because they read consecutive channels of one value.
    pub is_keys: bool,
}

impl CacheSpec {
    /// Returns how many numbers the cache holds per token.
    pub fn width(&self) -> usize {
        self.n_heads * self.head_size
    }

    /// Returns how many numbers a block holds.
    pub fn block_len(&self) -> usize {
        TOKENS_PER_BLOCK * self.width()
    }

    /// Returns the place, within a block on a device, of number `i` of the block's token `token`. `i` is an index in `[n_heads, head_size]`.
    pub fn place(&self, token: usize, i: usize) -> usize {
        let (head, channel) = (i / self.head_size, i % self.head_size);
        let head_at = head * TOKENS_PER_BLOCK * self.head_size;
        match self.is_keys {
            true => head_at + (channel / PAD * TOKENS_PER_BLOCK + token) * PAD + channel % PAD,
            false => head_at + token * self.head_size + channel,
        }
    }
}

/// The sizes for which an executor allocates memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// The number of pages of recurrent state.
    pub pages: usize,
    /// The number of blocks in the caches.
    pub blocks: usize,
    /// The largest number of blocks that all slots of a step list together. A shared block counts once per slot.
    pub listed: usize,
    /// The largest number of tokens of a slot.
    pub context: usize,
}

impl Room {
    /// Returns the room for a tape without caches.
    pub fn pages(pages: usize) -> Room {
        Room { pages, ..Room::default() }
    }
}

/// Rotary position embedding. It rotates pair i of a head by `position / base^(2 i / size)` radians.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rotary {
    /// R, the number of rotated channels of a head. It is even.
    pub size: usize,
    pub base: f64,
}

impl Rotary {
    /// Returns cos and sin for positions `0..n`, `[n, size / 2, 2]`. Frequencies and angles are rounded to f32 as in the official code. At
    /// position 131 071 an unrounded angle would differ by 8e-4. The host computes the table because sin and cos of shaders are not exact enough.
    ///
    /// # Errors
    /// `Memory` if the host has no room for the table.
    pub fn angles(&self, n: usize) -> Result<Vec<f32>> {
        let speed = |i: usize| (1.0 / self.base.powf(2.0 * i as f64 / self.size as f64)) as f32;
        let speeds: Vec<f32> = (0..self.size / 2).map(speed).collect();
        let mut table = room(n.saturating_mul(self.size), "angles")?;
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
        // The base is 10 000 times rope_ratio. The ratio does not scale positions. The exponent divides by R and not by the head size.
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
                (0..TOKENS_PER_BLOCK).flat_map(|t| (0..48).map(move |i| (t, i))).map(|(t, i)| spec.place(t, i)).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..spec.block_len()));
        }
    }
}
