//! Attention on the CPU, with the CPU's vector instructions.
//!
//! The keys of a sequence are divided into chunks of 512. For a chunk and a query, the loops compute the largest score m, the sum of the weights e^(s
//! − m), and the sum of the values with these weights. Then the results of a query's chunks are combined in order. So a result does not depend on
//! other queries, on the number of threads, or on the instructions.

mod in_keys;

use super::Attend;
use crate::quant::isa::{Body, Isa, LANES, SimdVector};
use crate::quant::units::Codes;
use crate::quant::{F16, F32, PAD};
use crate::tape::{HostCache, TOKENS_PER_BLOCK};
use rayon::prelude::*;
use std::ops::Range;

/// The number of cache blocks per chunk.
const CHUNK: usize = 8;
/// The largest number of queries that read a key together.
const MOST_ROWS: usize = 16;
/// The number of queries whose sums stay in registers.
const ROWS: usize = 4;
/// The number of vectors of keys whose sums stay in registers. [`VALUE_VECTORS`] is the same for vectors of a value's channels.
const KEY_VECTORS: usize = 2;
const VALUE_VECTORS: usize = 2;

/// The keys and values of one sequence.
pub struct CachedSequence<'a> {
    pub of: &'a Attend,
    pub keys: &'a HostCache,
    /// `None` if the values are the last channels of the keys.
    pub values: Option<&'a HostCache>,
    /// The blocks of the caches, in the order of the tokens.
    pub blocks: &'a [u32],
    pub isa: Isa,
}

/// Queries that read the same head of keys.
struct Queries {
    /// The number of queries.
    n: usize,
    /// The queries, `[rows / ROWS][head_size][ROWS]`. Missing queries are zero.
    by_channel: Vec<[f32; ROWS]>,
    /// The number of keys that each query reads.
    n_keys: Vec<usize>,
    /// The index of the head of keys.
    head: usize,
}

/// The sums of a chunk for several queries.
struct AttentionSums {
    /// The largest score of each query; −∞ if the query has read no key.
    most: Vec<f32>,
    /// The sum of the weights of each query.
    weights: Vec<f32>,
    /// The sum of the weighted values of each query, `[rows, width]`.
    values: Vec<f32>,
}

impl CachedSequence<'_> {
    /// Computes the attention of `n` tokens. `q` returns the queries of a token, `[n_heads, head_size]`. Token i reads `before + i + 1` keys. Calls
    /// `put(i, head, o)` for each token and query head; o is `[width]`.
    pub fn attend<'q>(&self, n: usize, before: usize, q: impl Fn(usize) -> &'q [f32], mut put: impl FnMut(usize, usize, &[f32])) {
        let (size, heads) = (self.of.of.head_size, self.of.of.n_kv_heads);
        let group = self.of.of.n_heads / heads;
        // A tile has queries of a few tokens that read the same head of keys. A pair is a token and a query head.
        let mut tiles: Vec<(usize, Vec<(usize, usize)>)> = Vec::new();
        let tokens = (MOST_ROWS / group).max(1);
        for first in (0..n).step_by(tokens) {
            for (head, part) in (0..heads).flat_map(|head| (0..group).step_by(MOST_ROWS).map(move |part| (head, part))) {
                let of_token = head * group + part..head * group + group.min(part + MOST_ROWS);
                let places = (first..n.min(first + tokens)).flat_map(|i| of_token.clone().map(move |h| (i, h)));
                tiles.push((head, places.collect()));
            }
        }
        let queries: Vec<Queries> = tiles
            .iter()
            .map(|(head, places)| {
                let mut by_channel = vec![[0.0; ROWS]; places.len().div_ceil(ROWS) * size];
                for (row, &(i, h)) in places.iter().enumerate() {
                    let channels = by_channel[row / ROWS * size..].iter_mut();
                    channels.zip(&q(i)[h * size..][..size]).for_each(|(rows, x)| rows[row % ROWS] = *x);
                }
                Queries { n: places.len(), by_channel, n_keys: places.iter().map(|&(i, _)| before + i + 1).collect(), head: *head }
            })
            .collect();
        // The chunks are tasks of the thread pool, too, so that threads can share the work of a few queries.
        let chunks = |queries: &Queries| (0..self.n_chunks(queries)).into_par_iter().map(|c| self.chunk(queries, c)).collect();
        let found: Vec<Vec<f32>> = queries.par_iter().map(|queries| self.combined(queries, chunks(queries))).collect();
        let width = self.width();
        for ((_, places), found) in tiles.iter().zip(&found) {
            for (&(i, head), o) in places.iter().zip(found.chunks_exact(width)) {
                put(i, head, o);
            }
        }
    }

    /// Returns the number of channels of a value.
    fn width(&self) -> usize {
        self.of.tiles * self.of.value_size
    }

    fn n_chunks(&self, queries: &Queries) -> usize {
        queries.n_keys.iter().max().map_or(0, |n| n.div_ceil(CHUNK * TOKENS_PER_BLOCK))
    }

    /// Returns the outputs of the queries, `[rows, width]`, from the sums of all chunks.
    fn combined(&self, queries: &Queries, chunks: Vec<AttentionSums>) -> Vec<f32> {
        let width = self.width();
        let mut o = vec![0.0; queries.n * width];
        for (row, o) in o.chunks_exact_mut(width).enumerate() {
            let most = chunks.iter().map(|sums| sums.most[row]).fold(f32::NEG_INFINITY, f32::max);
            let mut total = 0.0;
            for sums in chunks.iter().filter(|sums| sums.most[row] > f32::NEG_INFINITY) {
                let factor = exp(sums.most[row] - most);
                total += factor * sums.weights[row];
                o.iter_mut().zip(&sums.values[row * width..][..width]).for_each(|(o, v)| *o += factor * v);
            }
            o.iter_mut().for_each(|o| *o /= total);
        }
        o
    }

    /// Reads the keys and values of chunk `c`.
    fn chunk(&self, queries: &Queries, c: usize) -> AttentionSums {
        let (n, width) = (queries.n, self.width());
        let mut sums = AttentionSums { most: vec![f32::NEG_INFINITY; n], weights: vec![0.0; n], values: vec![0.0; n * width] };
        let last = queries.n_keys.iter().max().map_or(0, |n| n.div_ceil(TOKENS_PER_BLOCK));
        let blocks = c * CHUNK..last.min((c + 1) * CHUNK);
        match self.keys.is_half() {
            true => self.add_blocks::<F16>(queries, blocks, &mut sums),
            false => self.add_blocks::<F32>(queries, blocks, &mut sums),
        }
        sums
    }

    fn add_blocks<C: Codes>(&self, queries: &Queries, blocks: Range<usize>, sums: &mut AttentionSums) {
        match self.values {
            Some(values) => self.isa.with(AddBlocks::<C> { of: self, values, queries, blocks, sums, codes: std::marker::PhantomData }),
            None => self.isa.with(in_keys::AddBlocks::<C> { of: self, queries, blocks, sums, codes: std::marker::PhantomData }),
        }
    }
}

/// Adds the keys and values of some blocks to the sums of queries.
struct AddBlocks<'a, C> {
    of: &'a CachedSequence<'a>,
    values: &'a HostCache,
    queries: &'a Queries,
    blocks: Range<usize>,
    sums: &'a mut AttentionSums,
    codes: std::marker::PhantomData<C>,
}

/// The scores of one query for the keys of a block. [`weigh`] replaces each score by the weight of its key.
type Scores = [[f32; LANES]; TOKENS_PER_BLOCK / LANES];

impl<C: Codes> Body for AddBlocks<'_, C> {
    #[inline(always)]
    unsafe fn call<V: SimdVector>(self) {
        let AddBlocks { of, values, queries, blocks, sums, .. } = self;
        let (size, width) = (of.of.of.head_size, of.width());
        let n = queries.n;
        let mut scores: [Scores; MOST_ROWS] = [[[0.0; LANES]; TOKENS_PER_BLOCK / LANES]; MOST_ROWS];
        for b in blocks {
            let first = b * TOKENS_PER_BLOCK;
            let keys = of.keys.head(of.blocks[b], queries.head);
            let values = values.rows_of(of.blocks[b]);
            for row in (0..n).step_by(ROWS) {
                // SAFETY: the caller guarantees the CPU's instructions.
                unsafe { self::scores::<V, C>(keys, &queries.by_channel[row / ROWS * size..][..size], &mut scores[row..]) };
            }
            let mut n_read = 0;
            for (row, scores) in scores.iter_mut().enumerate().take(n) {
                let n_keys = queries.n_keys[row].saturating_sub(first).min(TOKENS_PER_BLOCK);
                n_read = n_read.max(n_keys);
                let (most, weights) = (&mut sums.most[row], &mut sums.weights[row]);
                let factor = weigh(scores, n_keys, of.of.limit, most, weights);
                if factor != 1.0 {
                    sums.values[row * width..][..width].iter_mut().for_each(|o| *o *= factor);
                }
            }
            let stride = of.of.of.n_kv_heads * width;
            for row in (0..n).step_by(ROWS) {
                let rows = n.min(row + ROWS) - row;
                let o = &mut sums.values[row * width..][..rows * width];
                // SAFETY: as above.
                unsafe { add_values::<V, C>(values, queries.head * width, stride, n_read, &scores[row..row + rows], o, width) };
            }
        }
    }
}

/// Computes the scores of [`ROWS`] queries for all keys of a block. `keys` has the codes of one head, `[head_size, 64]`. `q` has the queries channel
/// by channel, `[head_size][ROWS]`.
#[inline(always)]
unsafe fn scores<V: SimdVector, C: Codes>(keys: &[u8], q: &[[f32; ROWS]], scores: &mut [Scores]) {
    let bytes = LANES * C::BYTES / PAD;
    for c in (0..TOKENS_PER_BLOCK / LANES).step_by(KEY_VECTORS) {
        // SAFETY: the caller guarantees the CPU's instructions, and a head has 64 codes for each channel.
        unsafe {
            let mut sums = [[V::splat(0.0); KEY_VECTORS]; ROWS];
            for (d, q) in q.iter().enumerate() {
                let of_channel = &keys[(d * (TOKENS_PER_BLOCK / LANES) + c) * bytes..][..KEY_VECTORS * bytes];
                let k: [V; KEY_VECTORS] = std::array::from_fn(|v| V::decode::<C>(of_channel[v * bytes..].as_ptr()));
                for (sums, q) in sums.iter_mut().zip(q) {
                    let q = V::splat(*q);
                    for (sum, k) in sums.iter_mut().zip(&k) {
                        *sum = q.mul_add(*k, *sum);
                    }
                }
            }
            for (sums, scores) in sums.iter().zip(scores.iter_mut()) {
                for (v, sum) in sums.iter().enumerate() {
                    sum.store(&mut scores[c + v]);
                }
            }
        }
    }
}

/// Turns the scores s of a query into weights e^(s − m). If `limit` is not 0, s is first replaced by `limit` · tanh(s). Updates `most`, the largest
/// score m so far, and `total`, the sum of all weights so far. Keys from `n_keys` on have the weight 0. Returns the factor by which the sums of
/// earlier blocks must be multiplied.
#[inline(always)]
fn weigh(scores: &mut Scores, n_keys: usize, limit: f32, most: &mut f32, total: &mut f32) -> f32 {
    if n_keys == 0 {
        *scores = [[0.0; LANES]; TOKENS_PER_BLOCK / LANES];
        return 1.0;
    }
    let all = scores.as_flattened_mut();
    if limit != 0.0 {
        all[..n_keys].iter_mut().for_each(|s| *s = limit * s.tanh());
    }
    all[n_keys..].fill(f32::NEG_INFINITY);
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for s in scores.iter() {
        (0..LANES).for_each(|l| lanes[l] = if s[l] > lanes[l] { s[l] } else { lanes[l] });
    }
    let m = lanes.into_iter().fold(*most, f32::max);
    let factor = if *most == f32::NEG_INFINITY { 1.0 } else { exp(*most - m) };
    let mut sums = [0f32; LANES];
    for s in scores.iter_mut() {
        (0..LANES).for_each(|l| s[l] = exp(s[l] - m));
        (0..LANES).for_each(|l| sums[l] += s[l]);
    }
    *total = *total * factor + sums.into_iter().sum::<f32>();
    *most = m;
    factor
}

/// Adds the values of the first `n` tokens of a block, with the weights of up to [`ROWS`] queries, to `o`, `[rows, width]`. `values` has `stride`
/// codes per token. The head's codes begin at code `at` of a token.
#[inline(always)]
unsafe fn add_values<V: SimdVector, C: Codes>(
    values: &[u8],
    at: usize,
    stride: usize,
    n: usize,
    weights: &[Scores],
    o: &mut [f32],
    width: usize,
) {
    let bytes = C::BYTES / PAD;
    // Transposes the weights to `[token][query]`, so that the loop over tokens reads the weights of all queries together.
    let mut by_token = [[0f32; ROWS]; TOKENS_PER_BLOCK];
    for (row, weights) in weights.iter().enumerate() {
        by_token.iter_mut().zip(weights.as_flattened()).for_each(|(rows, p)| rows[row] = *p);
    }
    let mut channel = 0;
    while channel < width {
        let vectors = ((width - channel) / LANES).min(VALUE_VECTORS);
        // SAFETY: the caller guarantees the CPU's instructions and whole rows of values.
        unsafe {
            match vectors {
                VALUE_VECTORS => add_channels::<V, C, VALUE_VECTORS>(values, (at + channel, stride), &by_token[..n], o, (channel, width)),
                1 => add_channels::<V, C, 1>(values, (at + channel, stride), &by_token[..n], o, (channel, width)),
                _ => {
                    add_tail::<V, C>(values, (at + channel) * bytes, stride * bytes, n, weights, o, (channel, width));
                    return;
                }
            }
        }
        channel += vectors * LANES;
    }
}

/// Adds `N` vectors of channels, beginning at `channel`, as [`add_values`] does.
#[inline(always)]
unsafe fn add_channels<V: SimdVector, C: Codes, const N: usize>(
    values: &[u8],
    (at, stride): (usize, usize),
    by_token: &[[f32; ROWS]],
    o: &mut [f32],
    (channel, width): (usize, usize),
) {
    let bytes = C::BYTES / PAD;
    let rows = o.len() / width;
    // SAFETY: as in `add_values`.
    unsafe {
        let mut sums = [[V::splat(0.0); N]; ROWS];
        for (row, sums) in sums.iter_mut().enumerate().take(rows) {
            for (v, sum) in sums.iter_mut().enumerate() {
                *sum = V::load(lanes(&o[row * width + channel + v * LANES..]));
            }
        }
        for (j, weights) in by_token.iter().enumerate() {
            let value = &values[(j * stride + at) * bytes..][..N * LANES * bytes];
            let read: [V; N] = std::array::from_fn(|v| V::decode::<C>(value[v * LANES * bytes..].as_ptr()));
            for (sums, p) in sums.iter_mut().zip(weights) {
                let p = V::splat(*p);
                for (sum, read) in sums.iter_mut().zip(&read) {
                    *sum = p.mul_add(*read, *sum);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate().take(rows) {
            for (v, sum) in sums.iter().enumerate() {
                sum.store(lanes_mut(&mut o[row * width + channel + v * LANES..]));
            }
        }
    }
}

/// Does what [`add_values`] does for the last channels, which do not fill a vector.
#[inline(always)]
unsafe fn add_tail<V: SimdVector, C: Codes>(
    values: &[u8],
    at: usize,
    stride: usize,
    n: usize,
    weights: &[Scores],
    o: &mut [f32],
    (channel, width): (usize, usize),
) {
    let rest = width - channel;
    for (row, weights) in weights.iter().enumerate() {
        let o = &mut o[row * width + channel..][..rest];
        let mut last = [0f32; LANES];
        last[..rest].copy_from_slice(o);
        // SAFETY: as in `add_values`. The codes are copied to a buffer of two whole units.
        unsafe {
            let mut sum = V::load(&last);
            for j in 0..n {
                let mut unit = [0u8; 4 * LANES];
                let codes = rest * C::BYTES / PAD;
                unit[..codes].copy_from_slice(&values[at + j * stride..][..codes]);
                sum = V::splat(weights[j / LANES][j % LANES]).mul_add(V::decode::<C>(unit.as_ptr()), sum);
            }
            sum.store(&mut last);
        }
        o.copy_from_slice(&last[..rest]);
    }
}

#[inline(always)]
fn lanes(from: &[f32]) -> &[f32; LANES] {
    from.first_chunk().expect("a whole vector")
}

#[inline(always)]
fn lanes_mut(from: &mut [f32]) -> &mut [f32; LANES] {
    from.first_chunk_mut().expect("a whole vector")
}

/// Returns e^x for x ≤ 0, 0 below −87, and NaN for NaN. The bits are the same on every CPU, because there are no fused products and no calls of
/// system functions. There is no branch, so the compiler can compute sixteen values at once.
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// Adding this number to a number and subtracting it again rounds the number to an integer.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts: products of the first with small integers are exact.
    const LN2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    let bounded = if x < -87.0 { -87.0 } else { x };
    let shifted = bounded * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = bounded - n * LN2[0] - n * LN2[1];
    // The Taylor polynomial of degree 6: r is at most 0.35.
    let p = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0 + r * (1.0 / 720.0))))));
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1f32.to_bits()));
    if x < -87.0 { 0.0 } else { p * power }
}

#[cfg(test)]
mod tests;
