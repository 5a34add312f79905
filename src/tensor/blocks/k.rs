//! Decodes ggml super-blocks of 256 elements x. A super-block, here called a block, is divided into sub-blocks. Sub-block i has a small integer scale
//! s[i]. The whole block has one f16 scale d. In Q2_K, Q4_K and Q5_K, sub-block i also has a small integer minimum m[i], and the block has dmin, the
//! f16 scale of the minima. q is the integer code of an element x.
//!
//! | type | bytes in this order | x of sub-block i |
//! |---|---|---|
//! | Q2_K | p[16] n[64] d dmin | d s[i] q - dmin m[i], 16 sub-blocks of 16 |
//! | Q3_K | h[32] n[64] p[12] d | d (s[i] - 32) q, 16 sub-blocks of 16 |
//! | Q4_K | d dmin p[12] n[128] | d s[i] q - dmin m[i], 8 sub-blocks of 32 |
//! | Q5_K | d dmin p[12] h[32] n[128] | as Q4_K, with the fifth bits of q in h |
//! | Q6_K | n[128] h[64] s[16] d | d s[i] (q - 32), 16 sub-blocks of 16 |
//!
//! p packs the scales s and the minima m. n has the low bits of each q, h the high bits: n has two bits in Q2_K and Q3_K, four in other types. In
//! Q2_K and Q3_K, 32 consecutive bytes of n hold 128 elements: the first 32 in the low two bits, the next 32 in the two bits above, and so on. In
//! Q4_K and Q5_K, 32 consecutive bytes of n hold 64 elements: the first 32 in the low nibbles, the next 32 in the high nibbles. In Q6_K, 64
//! consecutive bytes of n hold 128 elements: the first 64 in the low nibbles, the next 64 in the high nibbles. The scales s of Q6_K are signed bytes.

use super::half;

pub fn q2_k(block: &[u8], x: &mut [f32]) {
    let (p, n, d, dmin) = (&block[..16], &block[16..80], half(block, 80), half(block, 82));
    for (run, x) in x.chunks_exact_mut(32).enumerate() {
        for (l, x) in x.iter_mut().enumerate() {
            let packed = p[run * 2 + l / 16];
            *x = d * f32::from(packed & 15) * f32::from(two_bits(n, run, l)) - dmin * f32::from(packed >> 4);
        }
    }
}

/// Decodes a Q3_K block, which has 8 runs of 32 elements. Two bits of n give element l of run r a value from 0 to 3. This value is the code q if bit
/// r of `h[l]` is set. Otherwise, q is this value minus 4.
pub fn q3_k(block: &[u8], x: &mut [f32]) {
    let (h, n, p, d) = (&block[..32], &block[32..96], &block[96..108], half(block, 108));
    for (run, x) in x.chunks_exact_mut(32).enumerate() {
        for (l, x) in x.iter_mut().enumerate() {
            let q = two_bits(n, run, l) as i8 - if h[l] >> run & 1 == 0 { 4 } else { 0 };
            *x = d * f32::from(six_bits(p, run * 2 + l / 16)) * f32::from(q);
        }
    }
}

/// Returns the low two bits of the code of element `l` in run `run`. A run is 32 elements.
pub fn two_bits(n: &[u8], run: usize, l: usize) -> u8 {
    n[run / 4 * 32 + l] >> (run % 4 * 2) & 3
}

/// Returns s[i] - 32, where s[i] is the six-bit scale of sub-block i in a Q3_K block. The low four bits of s[0..8] are the low nibbles of bytes
/// 0..8 of `p`. The low four bits of s[8..16] are the high nibbles of these bytes. The high two bits of s[i] are bits 2 (i / 4) and 2 (i / 4) + 1
/// of byte 8 + i % 4.
fn six_bits(p: &[u8], i: usize) -> i8 {
    let (low, high) = (p[i % 8] >> (i / 8 * 4) & 15, p[8 + i % 4] >> (i / 4 * 2) & 3);
    (low | high << 4) as i8 - 32
}

pub fn q4_k(block: &[u8], x: &mut [f32]) {
    affine(block, None, &block[16..], x);
}

pub fn q5_k(block: &[u8], x: &mut [f32]) {
    affine(block, Some(&block[16..48]), &block[48..], x);
}

/// Computes x = d s[i] q - dmin m[i] for all sub-blocks i. `nibbles` has the low four bits of each q. If `h` is not `None`, bit i of h[l] is the
/// fifth bit of the q of element l in sub-block i.
fn affine(block: &[u8], h: Option<&[u8]>, nibbles: &[u8], x: &mut [f32]) {
    let (d, dmin, p) = (half(block, 0), half(block, 2), &block[4..16]);
    for (i, x) in x.chunks_exact_mut(32).enumerate() {
        let (s, m) = scale_and_min(p, i);
        let (d, m) = (d * f32::from(s), dmin * f32::from(m));
        let run = &nibbles[i / 2 * 32..][..32];
        for (l, x) in x.iter_mut().enumerate() {
            let fifth = h.map_or(0, |h| (h[l] >> i & 1) << 4);
            let q = run[l] >> (i % 2 * 4) & 15 | fifth;
            *x = d * f32::from(q) - m;
        }
    }
}

/// Returns the scale s[i] and the minimum m[i] of sub-block i, six bits each. The low six bits of bytes 0..4 of `p` are s[0..4]. The low
/// six bits of bytes 4..8 are m[0..4]. The low four bits of s[4..8] are the low nibbles of bytes 8..12. The high two bits of s[4..8] are
/// the high two bits of bytes 0..4. The low four bits of m[4..8] are the high nibbles of bytes 8..12. The high two bits of m[4..8] are the
/// high two bits of bytes 4..8.
fn scale_and_min(p: &[u8], i: usize) -> (u8, u8) {
    match i {
        0..4 => (p[i] & 63, p[i + 4] & 63),
        _ => (p[i + 4] & 15 | p[i - 4] >> 6 << 4, p[i + 4] >> 4 | p[i] >> 6 << 4),
    }
}

/// Decodes a Q6_K block, which has two halves of 128 elements. A half has 64 bytes of n, 32 bytes of h, and four runs of 32 elements. The low four
/// bits of the q of element l in run r are a nibble of `n[32 (r % 2) + l]`. The low nibble belongs to runs 0 and 1, the high nibble to runs 2 and 3.
/// The two high bits of the q are bits 2 r and 2 r + 1 of `h[l]`.
pub fn q6_k(block: &[u8], x: &mut [f32]) {
    let (n, h, s, d) = (&block[..128], &block[128..192], &block[192..208], half(block, 208));
    for (run, x) in x.chunks_exact_mut(32).enumerate() {
        let (part, r) = (run / 4, run % 4);
        for (l, x) in x.iter_mut().enumerate() {
            let low = n[part * 64 + r % 2 * 32 + l] >> (r / 2 * 4) & 15;
            let high = h[part * 32 + l] >> (2 * r) & 3;
            let q = i16::from(low | high << 4) - 32;
            *x = d * f32::from(s[run * 2 + l / 16] as i8) * f32::from(q);
        }
    }
}
