//! Decodes ggml blocks whose elements come from a table of 16 unequally spaced values: V, or W in MXFP4. An element x has a 4-bit code q, which is
//! an index of the table. In the list below, d is a little-endian f16 scale, e is a byte, and n are bytes with two codes each: 16 bytes hold 32 codes,
//! the first 16 in the low nibbles, the next 16 in the high nibbles.
//!
//! | type | bytes in this order | x |
//! |---|---|---|
//! | IQ4_NL | d n[16] | d V[q], 32 elements |
//! | IQ4_XS | d h[2] l[4] n[128] | d (s[i] - 32) V[q], 8 sub-blocks of 32 |
//! | MXFP4 | e n[16] | 2^(e - 128) W[q], 32 elements |
//!
//! In IQ4_XS, s[i] is the integer scale of sub-block i. The low four bits of s[i] are nibble i of l, low nibbles first. The high two bits of s[i] are
//! bits 2 i and 2 i + 1 of h, little-endian.
//!
//! MXFP4 is a format of the Open Compute Project: q is a 4-bit float, e the exponent of the scale 2^(e - 127). W has twice the value of each float, so
//! that its values are whole numbers. The Open Compute Project defines e = 255 as NaN, but ggml decodes 255 as any other exponent.

use super::half;

/// The table V.
const V: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The table W. Code 8 is the float -0; ggml decodes it as 0.
const W: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

pub fn iq4_nl(block: &[u8], x: &mut [f32]) {
    unpack(&V, half(block, 0), &block[2..], x);
}

pub fn iq4_xs(block: &[u8], x: &mut [f32]) {
    let (d, h) = (half(block, 0), u16::from_le_bytes([block[2], block[3]]));
    for (i, (x, n)) in x.chunks_exact_mut(32).zip(block[8..].chunks_exact(16)).enumerate() {
        let (low, high) = (block[4 + i / 2] >> (i % 2 * 4) & 15, (h >> (2 * i) & 3) as u8);
        let s = (low | high << 4) as i8 - 32;
        unpack(&V, d * f32::from(s), n, x);
    }
}

pub fn mxfp4(block: &[u8], x: &mut [f32]) {
    // The two smallest scales are subnormal in f32. In f64, all scales have the same form: an exponent without a fraction.
    let scale = f64::from_bits((u64::from(block[0]) + 1023 - 128) << 52) as f32;
    unpack(&W, scale, &block[1..], x);
}

/// Computes 32 elements x = `scale` `values`[q].
fn unpack(values: &[i8; 16], scale: f32, n: &[u8], x: &mut [f32]) {
    let (low, high) = x.split_at_mut(16);
    for ((n, low), high) in n.iter().zip(low).zip(high) {
        *low = scale * f32::from(values[usize::from(n & 15)]);
        *high = scale * f32::from(values[usize::from(n >> 4)]);
    }
}
