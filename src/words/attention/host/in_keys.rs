//! Attention whose values are the last channels of the keys.
//!
//! A block stores its keys channel by channel, with the tokens of a channel next to each other. So a channel of the output is the dot product of two
//! rows: the weights of the tokens, and the channel of the keys. The weights of all blocks of a chunk are computed first. Then the lanes of a sum are
//! added up only once per chunk.

use super::{AttentionSums, CHUNK, CachedSequence, MOST_ROWS, Queries, ROWS, Scores, scores, weigh};
use crate::quant::PAD;
use crate::quant::isa::{Body, LANES, SimdVector};
use crate::quant::units::Codes;
use crate::tape::TOKENS_PER_BLOCK;
use std::ops::Range;

/// The number of channels whose sums stay in registers.
const CHANNELS: usize = 4;

/// Adds the keys of at most [`CHUNK`] blocks to the sums of queries that have no sums yet.
pub struct AddBlocks<'a, C> {
    pub of: &'a CachedSequence<'a>,
    pub queries: &'a Queries,
    pub blocks: Range<usize>,
    pub sums: &'a mut AttentionSums,
    pub codes: std::marker::PhantomData<C>,
}

impl<C: Codes> Body for AddBlocks<'_, C> {
    #[inline(always)]
    unsafe fn call<V: SimdVector>(self) {
        let AddBlocks { of, queries, blocks, sums, .. } = self;
        let (size, width, n) = (of.of.of.head_size, of.width(), queries.n);
        let mut weights: [[Scores; MOST_ROWS]; CHUNK] = [[[[0.0; LANES]; TOKENS_PER_BLOCK / LANES]; MOST_ROWS]; CHUNK];
        let keys = |b: usize| of.keys.head(of.blocks[blocks.start + b], queries.head);
        for b in 0..blocks.len() {
            for row in (0..n).step_by(ROWS) {
                // SAFETY: the caller guarantees the CPU's instructions.
                unsafe { scores::<V, C>(keys(b), &queries.by_channel[row / ROWS * size..][..size], &mut weights[b][row..]) };
            }
            for row in 0..n {
                let n_keys = queries.n_keys[row].saturating_sub((blocks.start + b) * TOKENS_PER_BLOCK).min(TOKENS_PER_BLOCK);
                let factor = weigh(&mut weights[b][row], n_keys, of.of.limit, &mut sums.most[row], &mut sums.weights[row]);
                if factor != 1.0 {
                    weights[..b].iter_mut().flat_map(|block| block[row].as_flattened_mut()).for_each(|p| *p *= factor);
                }
            }
        }
        let most = queries.n_keys.iter().max().map_or(0, |most| most.saturating_sub(blocks.start * TOKENS_PER_BLOCK));
        for row in (0..n).step_by(ROWS) {
            for channel in (0..width).step_by(CHANNELS) {
                // SAFETY: the caller guarantees the CPU's instructions. The width is a multiple of CHANNELS, so all channels are within the keys.
                unsafe {
                    let mut added = [[V::splat(0.0); CHANNELS]; ROWS];
                    for (b, weights) in weights.iter().enumerate().take(blocks.len()) {
                        let n_read = most.saturating_sub(b * TOKENS_PER_BLOCK).min(TOKENS_PER_BLOCK);
                        let keys = &keys(b)[(size - width + channel) * TOKENS_PER_BLOCK * C::BYTES / PAD..];
                        add::<V, C>(keys, n_read, &weights[row..], &mut added);
                    }
                    for (row, added) in (row..n).zip(&added) {
                        let o = sums.values[row * width + channel..][..CHANNELS].iter_mut();
                        o.zip(added).for_each(|(o, sum)| *o = sum.total());
                    }
                }
            }
        }
    }
}

/// Adds the products of the weights of [`ROWS`] queries and [`CHANNELS`] channels, for the first `n` tokens of a block. `keys` begins with the codes
/// of the first channel, 64 per channel.
#[inline(always)]
unsafe fn add<V: SimdVector, C: Codes>(keys: &[u8], n: usize, weights: &[Scores], sums: &mut [[V; CHANNELS]; ROWS]) {
    let bytes = LANES * C::BYTES / PAD;
    for v in 0..n.div_ceil(LANES) {
        // SAFETY: the caller guarantees the CPU's instructions.
        unsafe {
            let k: [V; CHANNELS] = std::array::from_fn(|c| {
                let k = V::decode::<C>(keys[(c * (TOKENS_PER_BLOCK / LANES) + v) * bytes..][..bytes].as_ptr());
                if n - v * LANES >= LANES { k } else { first_lanes(k, n - v * LANES) }
            });
            for (sums, weights) in sums.iter_mut().zip(weights) {
                let p = V::load(&weights[v]);
                for (sum, k) in sums.iter_mut().zip(&k) {
                    *sum = p.mul_add(*k, *sum);
                }
            }
        }
    }
}

/// Returns a vector with zeros from lane `n` on. Memory after the last token may hold NaN, which a weight of 0 would not remove from a sum.
#[inline(always)]
unsafe fn first_lanes<V: SimdVector>(from: V, n: usize) -> V {
    let mut all = [0f32; LANES];
    // SAFETY: the caller guarantees the CPU's instructions.
    unsafe {
        from.store(&mut all);
        all[n..].fill(0.0);
        V::load(&all)
    }
}
