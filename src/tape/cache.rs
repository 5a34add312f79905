//! What attention remembers: keys and values of every token, in blocks that slots share until one of them writes; and the angles
//! that rotate with a token's position.

use crate::error::{Result, room};
use crate::quant::PAD;

/// Tokens of a block: what a slot's memory grows by.
pub const TOKENS_PER_BLOCK: usize = 64;

/// Keys or values of every token of the slots. `[blocks, n_heads, TOKENS_PER_BLOCK, head_size]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cache(pub(crate) usize);

#[derive(Debug, Clone)]
pub struct CacheSpec {
    /// Tensor name in state files.
    pub name: String,
    pub n_heads: usize,
    pub head_size: usize,
    /// On a device, [`PAD`] numbers of each token of a block lie beside one another, then their next ones: lanes read the same part
    /// of neighbouring keys. Else all numbers of a head and token lie together: lanes read parts of the same value.
    pub is_keys: bool,
}

impl CacheSpec {
    /// Numbers of a token.
    pub fn width(&self) -> usize {
        self.n_heads * self.head_size
    }

    /// Numbers of a block.
    pub fn block_len(&self) -> usize {
        TOKENS_PER_BLOCK * self.width()
    }

    /// Where number `i` of a token's `[n_heads, head_size]` lies in its block on a device.
    pub fn place(&self, token: usize, i: usize) -> usize {
        let (head, channel) = (i / self.head_size, i % self.head_size);
        let head_at = head * TOKENS_PER_BLOCK * self.head_size;
        match self.is_keys {
            true => head_at + (channel / PAD * TOKENS_PER_BLOCK + token) * PAD + channel % PAD,
            false => head_at + token * self.head_size + channel,
        }
    }
}

/// What an executor has memory for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// Pages of recurrent state.
    pub pages: usize,
    /// Blocks of the caches.
    pub blocks: usize,
    /// Blocks that the slots of a step have between them, one that several have counted for each.
    pub listed: usize,
    /// Tokens of a slot.
    pub context: usize,
}

impl Room {
    /// Of a tape without caches.
    pub fn pages(pages: usize) -> Room {
        Room { pages, ..Room::default() }
    }
}

/// Rotary position embedding: pair i of a head is rotated by `position / base^(2 i / size)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rotary {
    /// R, components that are rotated; even.
    pub size: usize,
    pub base: f64,
}

impl Rotary {
    /// cos and sin for positions `0..n`, `[n, size / 2, 2]`. Wave lengths and angles are rounded to f32 as in the official code,
    /// which matters: at position 131 071 an exact angle would be 8e-4 off. Functions of shaders are far too coarse for this.
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
    fn wave_lengths_are_those_of_the_official_code() {
        let first = |base: f64| {
            let angles = Rotary { size: 64, base }.angles(2).unwrap();
            [0, 1, 2, 16].map(|i| f64::from(angles[64 + 2 * i + 1]).asin())
        };
        // The base is 10 000 rope_ratio, and the exponent divides by R: the ratio neither scales positions nor is R the head.
        for (base, expected) in [(5e6, [1.0, 0.6175288, 0.3813418, 4.4721e-4]), (1e4, [1.0, 0.7498942, 0.5623413, 0.01])] {
            for (found, expected) in first(base).into_iter().zip(expected) {
                assert!((found - expected).abs() < 1e-6, "{base}: {found} {expected}");
            }
        }
    }

    #[test]
    fn every_number_of_a_block_has_a_place_of_its_own() {
        for is_keys in [false, true] {
            let spec = CacheSpec { name: "k".into(), n_heads: 3, head_size: 16, is_keys };
            let mut places: Vec<usize> =
                (0..TOKENS_PER_BLOCK).flat_map(|t| (0..48).map(move |i| (t, i))).map(|(t, i)| spec.place(t, i)).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..spec.block_len()));
        }
    }
}
