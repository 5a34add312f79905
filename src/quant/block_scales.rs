//! The scales of blocks along rows: how formats store them, and their expansion to f32.
//!
//! A block is some consecutive weights of a row, a sub-block is a part of a block. The weights of a sub-block share a factor and, in some formats, a
//! minimum: w = factor · v − minimum, where v is the value of the weight's code. A block stores its scales as *items* of 16 bits: first one or two f16,
//! then small integers, two bytes per item.
//!
//! | type | items | factor | minimum |
//! |---|---|---|---|
//! | [`OneScale`] | d | d | |
//! | [`ScaleAndMinimum`] | d m | d | m |
//! | [`SignedBytes`] | d, then a signed byte s per sub-block | d s | |
//! | [`SixBits`] | d, then six bits s per sub-block: the low four bits of all s, then the high two bits of all s | d (s − 32) | |
//! | [`BytesAndMinima`] | d e, then an item per sub-block: s in its low byte, t in its high byte | d s | e t |
//! | [`NibblesAndMinima`] | d e, then a byte per sub-block: s in its low nibble, t in its high nibble | d s | e t |
//!
//! The products and differences are exact in f32 before the last rounding, so it does not matter whether an instruction is fused.

use super::isa::{Body, Isa, SimdVector, widened};
use bytemuck::{Pod, Zeroable};
use half::f16;
use std::marker::PhantomData;

/// The number of consecutive weights that share one scale in the formats of our own.
pub const WEIGHTS_PER_BLOCK: usize = 64;

/// The number of columns that are decoded at a time. The cuts are the same in every product, because they determine the order of additions and
/// so the rounding.
pub const DEPTH: usize = 1024;
/// The largest number of factors that a call of [`BlockLayout::expand`] requests.
pub const MOST: usize = 64;

/// A way to store the scales of blocks along rows.
pub trait BlockScales {
    /// The number of weights per block.
    const LEN: usize;
    /// The number of weights per sub-block.
    const SUB: usize = Self::LEN;
    /// The number of f16 at the start of a block's items.
    const FLOATS: usize = 1;
    /// The number of items per block.
    const ITEMS: usize = Self::FLOATS;
    /// True if sub-blocks have minima.
    const HAS_MINIMA: bool = false;

    /// Expands the first `n` sub-blocks of consecutive blocks, as [`BlockLayout::expand`] does.
    fn expand<V: SimdVector>(items: &[f16], n: usize, to: &mut Expanded);

    /// Expands the first `n` sub-blocks of consecutive blocks, for [`STRIP_ROWS`] rows at once. May also expand the other sub-blocks of the last block.
    /// An element of `items` has one item of all rows.
    #[inline(always)]
    fn expand_rows<V: SimdVector>(items: &[[f16; STRIP_ROWS]], n: usize, factors: &mut [PerRow], minima: &mut [PerRow]) {
        let used = n.div_ceil(Self::LEN / Self::SUB) * Self::ITEMS;
        let (mut own, mut expanded) = ([f16::ZERO; 2 * MOST], Expanded::default());
        for row in 0..STRIP_ROWS {
            own.iter_mut().zip(&items[..used]).for_each(|(own, items)| *own = items[row]);
            Self::expand::<V>(&own[..used], n, &mut expanded);
            factors[..n].iter_mut().zip(&expanded.factors).for_each(|(to, factor)| to.0[row] = *factor);
            minima[..n].iter_mut().zip(&expanded.minima).for_each(|(to, minimum)| to.0[row] = *minimum);
        }
    }
}

/// The number of rows whose scales are expanded together.
pub const STRIP_ROWS: usize = 16;

/// A number per row.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct PerRow(pub [f32; STRIP_ROWS]);

impl PerRow {
    #[inline(always)]
    fn loaded<V: SimdVector>(&self) -> V {
        // SAFETY: loops over vectors are called only if the CPU has the instructions of `V`.
        unsafe { V::load(&self.0) }
    }
}

/// Converts an item of all rows, which must be finite f16.
#[inline(always)]
fn floats<V: SimdVector>(items: &[f16; STRIP_ROWS]) -> PerRow {
    let mut floats = PerRow([0.0; STRIP_ROWS]);
    for (to, eight) in floats.0.as_chunks_mut().0.iter_mut().zip(items.as_chunks().0) {
        // SAFETY: loops over vectors are called only if the CPU has the instructions of `V`.
        *to = unsafe { V::widened(eight) };
    }
    floats
}

/// Writes, for each row, the product of its scale and a small integer in its item. `scales` is a vector, because the compiler does not always use vectors
/// for the product with an array.
#[inline(always)]
fn times_rows<V: SimdVector>(scales: V, items: &[f16; STRIP_ROWS], small: impl Fn(u16) -> f32, to: &mut PerRow) {
    let mut integers = [0.0; STRIP_ROWS];
    for i in 0..STRIP_ROWS {
        integers[i] = small(items[i].to_bits());
    }
    // SAFETY: as in `floats`.
    unsafe { scales.mul(V::load(&integers)).store(&mut to.0) };
}

/// The layout of a format's scales of blocks along rows: the constants and the function of a `BlockScales`.
#[derive(Debug, Clone, Copy)]
pub struct BlockLayout {
    /// The number of weights per block.
    pub len: usize,
    /// The number of weights per sub-block, which share a factor.
    pub sub: usize,
    /// The number of f16 at the start of a block's items.
    pub floats: usize,
    /// The number of items of 16 bits per block.
    pub items: usize,
    pub has_minima: bool,
    /// `(items, n, to)`: writes the factors of the first `n` sub-blocks of consecutive blocks and, if the format has minima, the minima. If the last block
    /// has more sub-blocks, their factors are written, too.
    pub expand: fn(&[f16], usize, &mut Expanded),
}

impl BlockLayout {
    pub(super) fn of<S: BlockScales>() -> BlockLayout {
        const {
            assert!(
                S::LEN.is_multiple_of(S::SUB)
                    && DEPTH.is_multiple_of(S::LEN)
                    && DEPTH / S::SUB <= MOST
                    && MOST.is_multiple_of(S::LEN / S::SUB)
            )
        };
        let expand = |items: &[f16], n: usize, to: &mut Expanded| Isa::best().with(Expansion::<S> { items, n, to, scales: PhantomData });
        BlockLayout { len: S::LEN, sub: S::SUB, floats: S::FLOATS, items: S::ITEMS, has_minima: S::HAS_MINIMA, expand }
    }

    /// Returns the first scale of consecutive blocks that is not finite.
    pub fn misfit(&self, items: &[f16]) -> Option<f16> {
        items.chunks(self.items).flat_map(|block| &block[..self.floats]).find(|x| !x.is_finite()).copied()
    }

    /// Returns the number of items of a row of `k` weights.
    pub fn per_row(&self, k: usize) -> usize {
        k.div_ceil(self.len) * self.items
    }
}

/// The arguments of [`BlockScales::expand`].
struct Expansion<'a, S> {
    items: &'a [f16],
    n: usize,
    to: &'a mut Expanded,
    scales: PhantomData<S>,
}

impl<S: BlockScales> Body for Expansion<'_, S> {
    #[inline(always)]
    unsafe fn call<V: SimdVector>(self) {
        S::expand::<V>(self.items, self.n, self.to);
    }
}

/// The factors of a part of a row, and the minima if the format has any.
pub struct Expanded {
    pub factors: [f32; MOST],
    pub minima: [f32; MOST],
}

impl Default for Expanded {
    fn default() -> Expanded {
        Expanded { factors: [0.0; MOST], minima: [0.0; MOST] }
    }
}

/// Returns the first `N` bytes of items, the lower byte of each item first.
#[inline(always)]
fn bytes<const N: usize>(items: &[f16]) -> [u8; N] {
    let mut bytes = [0; N];
    for (two, item) in bytes.as_chunks_mut().0.iter_mut().zip(&items[..N / 2]) {
        *two = item.to_le_bytes();
    }
    bytes
}

/// Converts the f16 at the start of a block's items. All of them must be finite.
#[inline(always)]
fn first<V: SimdVector>(items: &[f16]) -> [f32; 2] {
    let Some(eight) = items.first_chunk() else { return [widened(items[0]), widened(items[1])] };
    // SAFETY: loops over vectors are called only if the CPU has the instructions of `V`.
    let floats = unsafe { V::widened(eight) };
    [floats[0], floats[1]]
}

/// Writes the products of `scale` and the small integers of a block. Loops of a constant length use vectors.
#[inline(always)]
fn times<T: Copy, const N: usize>(scale: f32, integers: &[T; N], small: impl Fn(T) -> f32, to: &mut [f32; N]) {
    for i in 0..N {
        to[i] = scale * small(integers[i]);
    }
}

/// No scales: for formats without blocks along rows.
pub struct NoBlocks;

impl BlockScales for NoBlocks {
    const LEN: usize = WEIGHTS_PER_BLOCK;
    const FLOATS: usize = 0;

    #[inline(always)]
    fn expand<V: SimdVector>(_items: &[f16], _n: usize, _to: &mut Expanded) {}
}

/// One f16 scale per block of `N` weights.
pub struct OneScale<const N: usize>;

impl<const N: usize> BlockScales for OneScale<N> {
    const LEN: usize = N;

    #[inline(always)]
    fn expand<V: SimdVector>(items: &[f16], n: usize, to: &mut Expanded) {
        let (eights, rest) = items[..n].as_chunks();
        let (to, to_rest) = to.factors[..n].as_chunks_mut();
        for (to, eight) in to.iter_mut().zip(eights) {
            // SAFETY: loops over vectors are called only if the CPU has the instructions of `V`.
            *to = unsafe { V::widened(eight) };
        }
        to_rest.iter_mut().zip(rest).for_each(|(factor, d)| *factor = widened(*d));
    }

    #[inline(always)]
    fn expand_rows<V: SimdVector>(items: &[[f16; STRIP_ROWS]], n: usize, factors: &mut [PerRow], _minima: &mut [PerRow]) {
        factors[..n].iter_mut().zip(items).for_each(|(factors, items)| *factors = floats::<V>(items));
    }
}

/// An f16 scale and an f16 minimum per block of 32 weights: GGUF's Q4_1 and Q5_1.
pub struct ScaleAndMinimum;

impl BlockScales for ScaleAndMinimum {
    const LEN: usize = 32;
    const FLOATS: usize = 2;
    const HAS_MINIMA: bool = true;

    #[inline(always)]
    fn expand<V: SimdVector>(items: &[f16], n: usize, to: &mut Expanded) {
        for ((factor, minimum), [d, m]) in to.factors[..n].iter_mut().zip(&mut to.minima).zip(items.as_chunks().0) {
            (*factor, *minimum) = (widened(*d), widened(*m));
        }
    }

    #[inline(always)]
    fn expand_rows<V: SimdVector>(items: &[[f16; STRIP_ROWS]], n: usize, factors: &mut [PerRow], minima: &mut [PerRow]) {
        for ((factors, minima), [d, m]) in factors[..n].iter_mut().zip(minima).zip(items.as_chunks().0) {
            (*factors, *minima) = (floats::<V>(d), floats::<V>(m));
        }
    }
}

/// The number of weights in a block with scales on two levels.
const SUPER: usize = 256;

/// A block of 256 weights with `SUBS` sub-blocks, each with a signed byte: GGUF's Q6_K and IQ4_XS.
pub struct SignedBytes<const SUBS: usize>;

impl<const SUBS: usize> BlockScales for SignedBytes<SUBS> {
    const LEN: usize = SUPER;
    const SUB: usize = SUPER / SUBS;
    const ITEMS: usize = 1 + SUBS / 2;

    #[inline(always)]
    fn expand<V: SimdVector>(items: &[f16], n: usize, to: &mut Expanded) {
        let blocks = items.chunks_exact(Self::ITEMS).take(n.div_ceil(SUBS));
        for (factors, items) in to.factors.as_chunks_mut::<SUBS>().0.iter_mut().zip(blocks) {
            times(first::<V>(items)[0], &bytes::<SUBS>(&items[1..]), |s| f32::from(s as i8), factors);
        }
    }

    #[inline(always)]
    fn expand_rows<V: SimdVector>(items: &[[f16; STRIP_ROWS]], n: usize, factors: &mut [PerRow], _minima: &mut [PerRow]) {
        let blocks = items.chunks_exact(Self::ITEMS).take(n.div_ceil(SUBS));
        for (factors, items) in factors.chunks_exact_mut(SUBS).zip(blocks) {
            let d = floats::<V>(&items[0]).loaded::<V>();
            for ([low, high], items) in factors.as_chunks_mut().0.iter_mut().zip(&items[1..]) {
                times_rows(d, items, |item| f32::from(item as u8 as i8), low);
                times_rows(d, items, |item| f32::from((item >> 8) as i8), high);
            }
        }
    }
}

/// A block of 256 weights with six bits per sub-block of 16 weights: GGUF's Q3_K.
pub struct SixBits;

impl SixBits {
    /// Returns the items of the small scales `s`, each from −32 to 31.
    pub fn items(s: [i8; SUPER / 16]) -> impl Iterator<Item = f16> {
        let s = s.map(|s| (s + 32) as u8);
        let low = (0..8).map(move |i| s[2 * i] & 15 | s[2 * i + 1] << 4);
        let high = (0..4).map(move |i| (0..4).fold(0, |byte, j| byte | s[4 * i + j] >> 4 << (2 * j)));
        let bytes: Vec<u8> = low.chain(high).collect();
        (0..bytes.len() / 2).map(move |i| f16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]))
    }

    /// Returns the small scales in the items of a block that follow d. The inverse of [`items`](Self::items).
    #[inline(always)]
    pub fn scales(items: &[f16]) -> [i8; SUPER / 16] {
        let word = |i: usize| u32::from(items[i].to_bits()) | u32::from(items[i + 1].to_bits()) << 16;
        let (low, high) = ([word(0), word(2)], word(4));
        std::array::from_fn(|i| ((low[i / 8] >> (i % 8 * 4) & 15 | (high >> (i * 2) & 3) << 4) as i32 - 32) as i8)
    }
}

impl BlockScales for SixBits {
    const LEN: usize = SUPER;
    const SUB: usize = 16;
    const ITEMS: usize = 1 + SUPER / 16 * 6 / 16;

    #[inline(always)]
    fn expand<V: SimdVector>(items: &[f16], n: usize, to: &mut Expanded) {
        let blocks = items.chunks_exact(Self::ITEMS).take(n.div_ceil(SUPER / 16));
        for (factors, items) in to.factors.as_chunks_mut().0.iter_mut().zip(blocks) {
            times(first::<V>(items)[0], &Self::scales(&items[1..]), f32::from, factors);
        }
    }
}

/// A block of 256 weights with two bytes per sub-block of 32 weights: GGUF's Q4_K and Q5_K.
pub struct BytesAndMinima;

impl BlockScales for BytesAndMinima {
    const LEN: usize = SUPER;
    const SUB: usize = 32;
    const FLOATS: usize = 2;
    const ITEMS: usize = 2 + SUPER / 32;
    const HAS_MINIMA: bool = true;

    #[inline(always)]
    fn expand<V: SimdVector>(items: &[f16], n: usize, to: &mut Expanded) {
        let blocks = items.chunks_exact(Self::ITEMS).take(n.div_ceil(SUPER / 32));
        let to = to.factors.as_chunks_mut().0.iter_mut().zip(to.minima.as_chunks_mut().0);
        for ((factors, minima), items) in to.zip(blocks) {
            let own: &[f16; SUPER / 32] = items[2..].first_chunk().expect("a block has all its items");
            let [d, e] = first::<V>(items);
            times(d, own, |item| f32::from(item.to_bits() & 0xff), factors);
            times(e, own, |item| f32::from(item.to_bits() >> 8), minima);
        }
    }

    #[inline(always)]
    fn expand_rows<V: SimdVector>(items: &[[f16; STRIP_ROWS]], n: usize, factors: &mut [PerRow], minima: &mut [PerRow]) {
        let blocks = items.chunks_exact(Self::ITEMS).take(n.div_ceil(SUPER / 32));
        let to = factors.chunks_exact_mut(SUPER / 32).zip(minima.chunks_exact_mut(SUPER / 32));
        for ((factors, minima), items) in to.zip(blocks) {
            let d = floats::<V>(&items[0]).loaded::<V>();
            let e = floats::<V>(&items[1]).loaded::<V>();
            for ((factors, minima), items) in factors.iter_mut().zip(minima).zip(&items[2..]) {
                times_rows(d, items, |item| f32::from(item & 0xff), factors);
                times_rows(e, items, |item| f32::from(item >> 8), minima);
            }
        }
    }
}

/// A block of 256 weights with one byte per sub-block of 16 weights: GGUF's Q2_K.
pub struct NibblesAndMinima;

impl BlockScales for NibblesAndMinima {
    const LEN: usize = SUPER;
    const SUB: usize = 16;
    const FLOATS: usize = 2;
    const ITEMS: usize = 2 + SUPER / 16 / 2;
    const HAS_MINIMA: bool = true;

    #[inline(always)]
    fn expand<V: SimdVector>(items: &[f16], n: usize, to: &mut Expanded) {
        let blocks = items.chunks_exact(Self::ITEMS).take(n.div_ceil(SUPER / 16));
        let to = to.factors.as_chunks_mut().0.iter_mut().zip(to.minima.as_chunks_mut().0);
        for ((factors, minima), items) in to.zip(blocks) {
            let own = bytes::<16>(&items[2..]);
            let [d, e] = first::<V>(items);
            times(d, &own, |byte| f32::from(byte & 15), factors);
            times(e, &own, |byte| f32::from(byte >> 4), minima);
        }
    }
}
