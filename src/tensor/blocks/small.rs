//! Decodes ggml blocks of 32 elements x[0..32] with a scale d. Blocks of Q4_1 and Q5_1 also have a minimum m. d and m are little-endian f16. q[j] is
//! the integer code of x[j]. In the table below, n are 16 bytes with two nibbles each, and h are 32 bits.
//!
//! | type | bytes in this order | x[j] | q[j] |
//! |---|---|---|---|
//! | Q8_0 | d q[32] | d q[j] | a signed byte |
//! | Q4_0 | d n[16] | d (q[j] - 8) | nibble j: first the low nibbles of n, then the high nibbles |
//! | Q4_1 | d m n[16] | d q[j] + m | as above |
//! | Q5_0 | d h[4] n[16] | d (q[j] - 16) | the low four bits are nibble j, the fifth bit is bit j of h |
//! | Q5_1 | d m h[4] n[16] | d q[j] + m | as above |

use super::half;

pub fn q8_0(block: &[u8], x: &mut [f32]) {
    let d = half(block, 0);
    for (x, &q) in x.iter_mut().zip(&block[2..]) {
        *x = d * f32::from(q as i8);
    }
}

pub fn q4_0(block: &[u8], x: &mut [f32]) {
    let d = half(block, 0);
    unpack(0, &block[2..], x, |q| d * (q - 8.0));
}

pub fn q4_1(block: &[u8], x: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    unpack(0, &block[4..], x, |q| d * q + m);
}

pub fn q5_0(block: &[u8], x: &mut [f32]) {
    let d = half(block, 0);
    unpack(fifth_bits(&block[2..]), &block[6..], x, |q| d * (q - 16.0));
}

pub fn q5_1(block: &[u8], x: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    unpack(fifth_bits(&block[4..]), &block[8..], x, |q| d * q + m);
}

fn fifth_bits(h: &[u8]) -> u32 {
    u32::from_le_bytes([h[0], h[1], h[2], h[3]])
}

/// Computes x[j] = f(q[j]). The low four bits of q[j] are nibble j, its fifth bit is bit j of `fifth`.
fn unpack(fifth: u32, nibbles: &[u8], x: &mut [f32], f: impl Fn(f32) -> f32) {
    let (low, high) = x.split_at_mut(16);
    for (j, &n) in nibbles.iter().enumerate() {
        let bit = |j: usize| ((fifth >> j & 1) << 4) as u8;
        low[j] = f(f32::from(n & 15 | bit(j)));
        high[j] = f(f32::from(n >> 4 | bit(j + 16)));
    }
}
