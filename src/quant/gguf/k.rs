//! Types with blocks of 256 weights and scales on two levels: Q2_K to Q6_K. Sub-block i has a small scale s[i] and, in Q2_K, Q4_K and Q5_K, a small
//! minimum t[i]. The block has the f16 scales d and e of these numbers.
//!
//! | type | bytes in this order | weight of code q in sub-block i |
//! |---|---|---|
//! | Q2_K | p[16] n[64] d e | d s[i] q − e t[i], 16 sub-blocks of 16 |
//! | Q3_K | h[32] n[64] p[12] d | d (s[i] − 32) (q − 4), 16 sub-blocks of 16 |
//! | Q4_K | d e p[12] n[128] | d s[i] q − e t[i], 8 sub-blocks of 32 |
//! | Q5_K | d e p[12] h[32] n[128] | as Q4_K |
//! | Q6_K | n[128] h[64] s[16] d | d s[i] (q − 32), 16 sub-blocks of 16 |
//!
//! p packs the small numbers. n has the low bits of each q, h the high bits.

use super::super::block_scales::{BytesAndMinima, NibblesAndMinima, SignedBytes, SixBits};
use super::super::planes::Planes;
use super::super::whole::Whole;
use super::{BlockType, half, item, pack_nibbles, search, unpack_nibbles};
use half::f16;

/// The number of weights per block.
const LEN: usize = 256;
/// The number of weights in a run. Runs share bytes: a byte has some bits of one code of each of several runs.
const RUN: usize = 32;

/// Adds a part of `bits` bits to each code, at bit `to`. A group has [`RUN`] bytes and `per_byte` runs. The part of weight l in run r is in byte l of
/// group `r / per_byte`, from bit `bits * (r % per_byte)` on.
fn unpack_runs(bytes: &[u8], bits: usize, per_byte: usize, to: usize, codes: &mut [u8]) {
    for (r, run) in codes.chunks_exact_mut(RUN).enumerate() {
        let own = &bytes[r / per_byte * RUN..][..RUN];
        run.iter_mut().zip(own).for_each(|(code, byte)| *code |= (byte >> (r % per_byte * bits) & ((1 << bits) - 1)) << to);
    }
}

/// The inverse of [`unpack_runs`].
fn pack_runs(codes: &[u8], bits: usize, per_byte: usize, from: usize, out: &mut Vec<u8>) {
    for group in codes.chunks_exact(RUN * per_byte) {
        out.extend(
            (0..RUN).map(|l| (0..per_byte).fold(0, |byte, r| byte | (group[r * RUN + l] >> from & ((1 << bits) - 1)) << (r * bits))),
        );
    }
}

/// GGUF's Q2_K.
pub struct Q2K;

impl BlockType for Q2K {
    type Bits = Planes<2, 0>;
    type Codes = Whole<Planes<2, 0>, 0, 16, true>;
    type Scales = NibblesAndMinima;
    const NAME: &'static str = "q2_k";
    const ABOUT: &'static str = "GGUF's 2.6 bits";
    const SHADER: &'static str = "u2";
    const BYTES: usize = 84;
    const ZERO: i32 = 0;

    fn unpack(block: &[u8], codes: &mut [u8], items: &mut Vec<f16>) {
        items.extend([half(block, 80), half(block, 82)]);
        items.extend(block[..16].as_chunks().0.iter().map(|&[a, b]| item(a, b)));
        codes.fill(0);
        unpack_runs(&block[16..80], 2, 4, 0, codes);
    }

    fn pack(codes: &[u8], items: &[f16], out: &mut Vec<u8>) {
        out.extend(items[2..].iter().flat_map(|item| item.to_le_bytes()));
        pack_runs(codes, 2, 4, 0, out);
        out.extend(items[..2].iter().flat_map(|item| item.to_le_bytes()));
    }

    fn encode(x: &[f32], importance: &[f32], codes: &mut [u8], items: &mut Vec<f16>) {
        let small = search::with_minima(x, importance, 16, Self::last(), 15.0, codes, items);
        items.extend(small.as_chunks().0.iter().map(|[(s, t), (u, v)]| item(s | t << 4, u | v << 4)));
    }
}

/// GGUF's Q3_K. A set bit of h is the third bit of q, whose value is 4.
pub struct Q3K;

impl BlockType for Q3K {
    type Bits = Planes<2, 1>;
    type Codes = Whole<Planes<2, 1>, 4, 16, false>;
    type Scales = SixBits;
    const NAME: &'static str = "q3_k";
    const ABOUT: &'static str = "GGUF's 3.4 bits";
    const SHADER: &'static str = "s3";
    const BYTES: usize = 110;
    const ZERO: i32 = 4;

    /// The low four bits of s[0..8] are the low nibbles of the first eight bytes of p, those of s[8..16] the high nibbles. The high two bits of s[i] are
    /// the bits from 2 (i / 4) on of byte 8 + i % 4.
    fn unpack(block: &[u8], codes: &mut [u8], items: &mut Vec<f16>) {
        let p = &block[96..108];
        let scale = |i: usize| (p[i % 8] >> (i / 8 * 4) & 15 | (p[8 + i % 4] >> (i / 4 * 2) & 3) << 4) as i8 - 32;
        items.push(half(block, 108));
        items.extend(SixBits::items(std::array::from_fn(scale)));
        codes.fill(0);
        unpack_runs(&block[32..96], 2, 4, 0, codes);
        unpack_runs(&block[..32], 1, 8, 2, codes);
    }

    fn pack(codes: &[u8], items: &[f16], out: &mut Vec<u8>) {
        let s = SixBits::scales(&items[1..]).map(|s| (s + 32) as u8);
        pack_runs(codes, 1, 8, 2, out);
        pack_runs(codes, 2, 4, 0, out);
        out.extend((0..8).map(|i| s[i] & 15 | s[8 + i] << 4));
        out.extend((0..4).map(|i| (0..4).fold(0, |byte, j| byte | s[4 * j + i] >> 4 << (2 * j))));
        out.extend(items[0].to_le_bytes());
    }

    fn encode(x: &[f32], importance: &[f32], codes: &mut [u8], items: &mut Vec<f16>) {
        let s = search::signed(x, importance, 16, 32.0, &search::Table::whole::<Self>(), codes, items);
        items.extend(SixBits::items(std::array::from_fn(|i| s[i])));
    }
}

/// GGUF's Q4_K.
pub struct Q4K;

impl BlockType for Q4K {
    type Bits = Planes<4, 0>;
    type Codes = Whole<Planes<4, 0>, 0, 32, true>;
    type Scales = BytesAndMinima;
    const NAME: &'static str = "q4_k";
    const ABOUT: &'static str = "GGUF's 4.5 bits";
    const SHADER: &'static str = "u4";
    const BYTES: usize = 144;
    const ZERO: i32 = 0;

    fn unpack(block: &[u8], codes: &mut [u8], items: &mut Vec<f16>) {
        unpack_items(block, items);
        unpack_nibbles(&block[16..], RUN, codes);
    }

    fn pack(codes: &[u8], items: &[f16], out: &mut Vec<u8>) {
        pack_items(items, out);
        pack_nibbles(codes, RUN, out);
    }

    fn encode(x: &[f32], importance: &[f32], codes: &mut [u8], items: &mut Vec<f16>) {
        let small = search::with_minima(x, importance, 32, Self::last(), 63.0, codes, items);
        items.extend(small.iter().map(|&(s, t)| item(s, t)));
    }
}

/// GGUF's Q5_K.
pub struct Q5K;

impl BlockType for Q5K {
    type Bits = Planes<4, 1>;
    type Codes = Whole<Planes<4, 1>, 0, 32, true>;
    type Scales = BytesAndMinima;
    const NAME: &'static str = "q5_k";
    const ABOUT: &'static str = "GGUF's 5.5 bits";
    const SHADER: &'static str = "u5";
    const BYTES: usize = 176;
    const ZERO: i32 = 0;

    fn unpack(block: &[u8], codes: &mut [u8], items: &mut Vec<f16>) {
        unpack_items(block, items);
        unpack_nibbles(&block[48..], RUN, codes);
        unpack_runs(&block[16..48], 1, 8, 4, codes);
    }

    fn pack(codes: &[u8], items: &[f16], out: &mut Vec<u8>) {
        pack_items(items, out);
        pack_runs(codes, 1, 8, 4, out);
        pack_nibbles(codes, RUN, out);
    }

    fn encode(x: &[f32], importance: &[f32], codes: &mut [u8], items: &mut Vec<f16>) {
        let small = search::with_minima(x, importance, 32, Self::last(), 63.0, codes, items);
        items.extend(small.iter().map(|&(s, t)| item(s, t)));
    }
}

/// Reads d, e and the twelve bytes p of Q4_K and Q5_K. The low six bits of p[0..4] are s[0..4], those of p[4..8] are t[0..4]. s[4 + j] has its low four
/// bits in the low nibble of p[8 + j], and its high two bits in the high bits of p[j]. t[4 + j] has its low four bits in the high nibble of p[8 + j],
/// and its high two bits in the high bits of p[4 + j].
fn unpack_items(block: &[u8], items: &mut Vec<f16>) {
    let p = &block[4..16];
    items.extend([half(block, 0), half(block, 2)]);
    items.extend((0..4).map(|j| item(p[j] & 63, p[4 + j] & 63)));
    items.extend((0..4).map(|j| item(p[8 + j] & 15 | p[j] >> 6 << 4, p[8 + j] >> 4 | p[4 + j] >> 6 << 4)));
}

/// The inverse of [`unpack_items`].
fn pack_items(items: &[f16], out: &mut Vec<u8>) {
    let [s, t] = [0, 1].map(|byte| std::array::from_fn::<u8, 8, _>(|i| items[2 + i].to_le_bytes()[byte]));
    out.extend(items[..2].iter().flat_map(|item| item.to_le_bytes()));
    for own in [s, t] {
        out.extend((0..4).map(|j| own[j] | own[4 + j] >> 4 << 6));
    }
    out.extend((0..4).map(|j| s[4 + j] & 15 | t[4 + j] << 4));
}

/// GGUF's Q6_K.
pub struct Q6K;

impl BlockType for Q6K {
    type Bits = Planes<4, 2>;
    type Codes = Whole<Planes<4, 2>, 32, 16, false>;
    type Scales = SignedBytes<16>;
    const NAME: &'static str = "q6_k";
    const ABOUT: &'static str = "GGUF's 6.6 bits";
    const SHADER: &'static str = "s6";
    const BYTES: usize = 210;
    const ZERO: i32 = 32;

    fn unpack(block: &[u8], codes: &mut [u8], items: &mut Vec<f16>) {
        items.push(half(block, 208));
        items.extend(block[192..208].as_chunks().0.iter().map(|&[a, b]| item(a, b)));
        unpack_nibbles(&block[..128], 2 * RUN, codes);
        unpack_runs(&block[128..192], 2, 4, 4, codes);
    }

    fn pack(codes: &[u8], items: &[f16], out: &mut Vec<u8>) {
        pack_nibbles(codes, 2 * RUN, out);
        pack_runs(codes, 2, 4, 4, out);
        out.extend(items[1..].iter().flat_map(|item| item.to_le_bytes()));
        out.extend(items[0].to_le_bytes());
    }

    fn encode(x: &[f32], importance: &[f32], codes: &mut [u8], items: &mut Vec<f16>) {
        let s = search::signed(x, importance, 16, 128.0, &search::Table::whole::<Self>(), codes, items);
        items.extend(search::pairs(&s));
    }
}
const _: () = assert!(LEN == super::MOST);
