//! Types whose codes are indices of a table of unequally spaced values: IQ4_NL with a scale per block of 32 weights, and IQ4_XS with scales on two
//! levels.
//!
//! A block of IQ4_NL is a scale d and the codes. A block of IQ4_XS is d, the high two bits h of eight scales, the low four bits l of these scales, and
//! the codes. The scale of sub-block i is d (s − 32), where s is nibble i of l with the bits 2 i and 2 i + 1 of h above it.

use super::super::block_scales::{OneScale, SignedBytes};
use super::super::planes::Planes;
use super::super::whole::{Tabled, VALUES};
use super::{BlockType, half, item, pack_nibbles, search, unpack_nibbles};
use half::f16;

/// Half of the weights that share a scale.
const HALF: usize = 16;

/// GGUF's IQ4_NL.
pub struct Iq4Nl;

/// GGUF's IQ4_XS.
pub struct Iq4Xs;

fn value(code: u8) -> f32 {
    VALUES[usize::from(code)]
}

fn nearest(x: f32) -> u8 {
    let above = VALUES.partition_point(|value| *value < x).min(VALUES.len() - 1);
    let below = above.saturating_sub(1);
    (if x - VALUES[below] < VALUES[above] - x { below } else { above }) as u8
}

/// The magnitude of the table's values that a search maps the largest weight to.
const LARGE: f32 = 120.0;

impl BlockType for Iq4Nl {
    type Bits = Planes<4, 0>;
    type Codes = Tabled;
    type Scales = OneScale<32>;
    const NAME: &'static str = "iq4_nl";
    const ABOUT: &'static str = "GGUF's 4 bits with a table";
    const SHADER: &'static str = "iq4";
    const BYTES: usize = 18;
    const ZERO: i32 = -98;

    fn unpack(block: &[u8], codes: &mut [u8], items: &mut Vec<f16>) {
        items.push(half(block, 0));
        unpack_nibbles(&block[2..], HALF, codes);
    }

    fn pack(codes: &[u8], items: &[f16], out: &mut Vec<u8>) {
        out.extend(items[0].to_le_bytes());
        pack_nibbles(codes, HALF, out);
    }

    fn encode(x: &[f32], importance: &[f32], codes: &mut [u8], items: &mut Vec<f16>) {
        let scale = search::scale(x, importance, nearest, LARGE, &value);
        search::with_scale(x, f16::from_f32(scale), Self::nearest, codes, items);
    }

    fn nearest(x: f32) -> u8 {
        nearest(x)
    }
}

impl BlockType for Iq4Xs {
    type Bits = Planes<4, 0>;
    type Codes = Tabled;
    type Scales = SignedBytes<8>;
    const NAME: &'static str = "iq4_xs";
    const ABOUT: &'static str = "GGUF's 4 bits with a table and small scales";
    const SHADER: &'static str = "iq4";
    const BYTES: usize = 136;
    const ZERO: i32 = -98;

    fn unpack(block: &[u8], codes: &mut [u8], items: &mut Vec<f16>) {
        let high = u16::from_le_bytes([block[2], block[3]]);
        let scale = |i: usize| ((block[4 + i / 2] >> (i % 2 * 4) & 15 | ((high >> (2 * i) & 3) as u8) << 4) as i8 - 32) as u8;
        items.push(half(block, 0));
        items.extend((0..4).map(|i| item(scale(2 * i), scale(2 * i + 1))));
        unpack_nibbles(&block[8..], HALF, codes);
    }

    fn pack(codes: &[u8], items: &[f16], out: &mut Vec<u8>) {
        let scales: Vec<u8> = items[1..].iter().flat_map(|item| item.to_le_bytes()).map(|s| (s as i8 + 32) as u8).collect();
        let high = scales.iter().rev().fold(0u16, |high, s| high << 2 | u16::from(s >> 4));
        out.extend(items[0].to_le_bytes());
        out.extend(high.to_le_bytes());
        out.extend(scales.as_chunks().0.iter().map(|[a, b]| a & 15 | b << 4));
        pack_nibbles(codes, HALF, out);
    }

    fn encode(x: &[f32], importance: &[f32], codes: &mut [u8], items: &mut Vec<f16>) {
        let s = search::signed(x, importance, 32, 32.0, &search::Table { nearest, value: &value, large: LARGE }, codes, items);
        items.extend(search::pairs(&s));
    }

    fn nearest(x: f32) -> u8 {
        nearest(x)
    }
}
