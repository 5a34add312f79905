//! Decodes ggml blocks whose elements come from a table V of 16 unequally spaced values. An element x has a 4-bit code q, which is an index of V. In
//! the table below, d is a little-endian f16 scale, and n are bytes with two codes each: 16 bytes hold 32 codes, the first 16 in the low nibbles, the
//! next 16 in the high nibbles.
//!
//! | type | bytes in this order | x |
//! |---|---|---|
//! | IQ4_NL | d n[16] | d V[q], 32 elements |
//! | IQ4_XS | d h[2] l[4] n[128] | d (s[i] - 32) V[q], 8 sub-blocks of 32 |
//!
//! In IQ4_XS, s[i] is the integer scale of sub-block i. The low four bits of s[i] are nibble i of l, low nibbles first. The high two bits of s[i] are
//! bits 2 i and 2 i + 1 of h, little-endian.

use super::half;

/// The table V of values.
const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

pub fn iq4_nl(block: &[u8], x: &mut [f32]) {
    unpack(half(block, 0), &block[2..], x);
}

pub fn iq4_xs(block: &[u8], x: &mut [f32]) {
    let (d, h) = (half(block, 0), u16::from_le_bytes([block[2], block[3]]));
    for (i, (x, n)) in x.chunks_exact_mut(32).zip(block[8..].chunks_exact(16)).enumerate() {
        let (low, high) = (block[4 + i / 2] >> (i % 2 * 4) & 15, (h >> (2 * i) & 3) as u8);
        let s = (low | high << 4) as i8 - 32;
        unpack(d * f32::from(s), n, x);
    }
}

/// Computes 32 elements x = `scale` V[q].
fn unpack(scale: f32, n: &[u8], x: &mut [f32]) {
    let (low, high) = x.split_at_mut(16);
    for ((n, low), high) in n.iter().zip(low).zip(high) {
        *low = scale * f32::from(VALUES[usize::from(n & 15)]);
        *high = scale * f32::from(VALUES[usize::from(n >> 4)]);
    }
}
