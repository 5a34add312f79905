//! Decodes ggml blocks of 256 elements x with one scale d, made for models with ternary weights. q is the integer code of an element: x = d (q - 1).
//! d is a little-endian f16.
//!
//! | type | bytes in this order | q |
//! |---|---|---|
//! | TQ1_0 | t[48] u[4] d | 0 to 2: five codes per byte of t, four codes per byte of u |
//! | TQ2_0 | n[64] d | 0 to 3: four codes of two bits per byte of n, in the order of Q2_K |
//!
//! In TQ1_0, the codes of a byte b are the first digits of the fraction b / 256 in base 3. A group of bytes holds the first digits of all its bytes,
//! then the second digits of all its bytes, and so on. The groups are t[0..32], t[32..48] and u.

use super::half;
use super::k::two_bits;

pub fn tq1_0(block: &[u8], x: &mut [f32]) {
    let d = half(block, 52);
    let (first, rest) = x.split_at_mut(5 * 32);
    let (second, third) = rest.split_at_mut(5 * 16);
    for (group, x) in [(&block[..32], first), (&block[32..48], second), (&block[48..52], third)] {
        for (x, power) in x.chunks_exact_mut(group.len()).zip([1u8, 3, 9, 27, 81]) {
            for (x, byte) in x.iter_mut().zip(group) {
                // The wrapping product drops the digits before the wanted digit. The next digit is then the whole part of three times the rest.
                let q = u16::from(byte.wrapping_mul(power)) * 3 / 256;
                *x = d * (f32::from(q) - 1.0);
            }
        }
    }
}

pub fn tq2_0(block: &[u8], x: &mut [f32]) {
    let d = half(block, 64);
    for (run, x) in x.chunks_exact_mut(32).enumerate() {
        for (l, x) in x.iter_mut().enumerate() {
            *x = d * (f32::from(two_bits(block, run, l)) - 1.0);
        }
    }
}
