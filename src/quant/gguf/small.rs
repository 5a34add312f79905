//! Types with blocks of 32 weights: Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1.
//!
//! A block of Q8_0 is a scale and 32 signed bytes. A block of the other types is a scale d, a minimum m (only Q4_1 and Q5_1), the fifth bits of all codes
//! (only Q5_0 and Q5_1), and the low four bits of all codes. A weight is d (q − zero) or d q + m.

use super::super::block_scales::{OneScale, ScaleAndMinimum};
use super::super::planes::{Byte, Planes};
use super::super::whole::Whole;
use super::{BlockType, half, pack_nibbles, search, unpack_nibbles};
use half::f16;

/// The number of weights per block.
const LEN: usize = 32;
/// Half of a block: the low nibbles of its bytes are the first codes.
const HALF: usize = LEN / 2;

/// GGUF's Q8_0.
pub struct Q8_0;

impl BlockType for Q8_0 {
    type Bits = Byte;
    type Codes = Whole<Byte, 128, LEN, false>;
    type Scales = OneScale<LEN>;
    const NAME: &'static str = "q8_0";
    const ABOUT: &'static str = "GGUF's 8 bits";
    const SHADER: &'static str = "q8_0";
    const BYTES: usize = 34;
    const ZERO: i32 = 128;

    fn unpack(block: &[u8], codes: &mut [u8], items: &mut Vec<f16>) {
        items.push(half(block, 0));
        codes.iter_mut().zip(&block[2..]).for_each(|(code, q)| *code = q ^ 0x80);
    }

    fn pack(codes: &[u8], items: &[f16], out: &mut Vec<u8>) {
        out.extend(items[0].to_le_bytes());
        out.extend(codes.iter().map(|code| code ^ 0x80));
    }

    fn encode(x: &[f32], _importance: &[f32], codes: &mut [u8], items: &mut Vec<f16>) {
        let most = x.iter().fold(0f32, |most, x| most.max(x.abs()));
        search::with_scale(x, f16::from_f32(most / 127.0), Self::nearest, codes, items);
    }
}

/// Implements a type with four or five bits and one scale.
macro_rules! scaled {
    ($type:ident, $name:literal, $about:literal, $shader:literal, $high:literal, $zero:literal, $bytes:literal) => {
        #[doc = concat!("GGUF's ", stringify!($type), ".")]
        pub struct $type;

        impl BlockType for $type {
            type Bits = Planes<4, $high>;
            type Codes = Whole<Planes<4, $high>, $zero, LEN, false>;
            type Scales = OneScale<LEN>;
            const NAME: &'static str = $name;
            const ABOUT: &'static str = $about;
            const SHADER: &'static str = $shader;
            const BYTES: usize = $bytes;
            const ZERO: i32 = $zero;

            fn unpack(block: &[u8], codes: &mut [u8], items: &mut Vec<f16>) {
                items.push(half(block, 0));
                unpack_codes::<$high>(&block[2..], codes);
            }

            fn pack(codes: &[u8], items: &[f16], out: &mut Vec<u8>) {
                out.extend(items[0].to_le_bytes());
                pack_codes::<$high>(codes, out);
            }

            fn encode(x: &[f32], importance: &[f32], codes: &mut [u8], items: &mut Vec<f16>) {
                let scale = search::scale(x, importance, Self::nearest, $zero as f32, &|code| f32::from(code) - $zero as f32);
                search::with_scale(x, f16::from_f32(scale), Self::nearest, codes, items);
            }
        }
    };
}

scaled!(Q4_0, "q4_0", "GGUF's 4 bits", "q4_0", 0, 8, 18);
scaled!(Q5_0, "q5_0", "GGUF's 5 bits", "s5", 1, 16, 22);

/// Implements a type with four or five bits, a scale and a minimum.
macro_rules! with_minimum {
    ($type:ident, $name:literal, $about:literal, $shader:literal, $high:literal, $bytes:literal) => {
        #[doc = concat!("GGUF's ", stringify!($type), ".")]
        pub struct $type;

        impl BlockType for $type {
            type Bits = Planes<4, $high>;
            type Codes = Whole<Planes<4, $high>, 0, LEN, true>;
            type Scales = ScaleAndMinimum;
            const NAME: &'static str = $name;
            const ABOUT: &'static str = $about;
            const SHADER: &'static str = $shader;
            const BYTES: usize = $bytes;
            const ZERO: i32 = 0;

            /// The file's minimum is added, ours is subtracted.
            fn unpack(block: &[u8], codes: &mut [u8], items: &mut Vec<f16>) {
                items.extend([half(block, 0), -half(block, 2)]);
                unpack_codes::<$high>(&block[4..], codes);
            }

            fn pack(codes: &[u8], items: &[f16], out: &mut Vec<u8>) {
                out.extend([items[0], -items[1]].into_iter().flat_map(f16::to_le_bytes));
                pack_codes::<$high>(codes, out);
            }

            fn encode(x: &[f32], importance: &[f32], codes: &mut [u8], items: &mut Vec<f16>) {
                let (scale, minimum) = search::scale_and_minimum(x, importance, Self::last(), f32::NEG_INFINITY);
                let (scale, minimum) = (f16::from_f32(scale), f16::from_f32(minimum));
                items.extend([scale, minimum]);
                search::codes(x, scale.to_f32(), minimum.to_f32(), Self::nearest, codes);
            }
        }
    };
}

with_minimum!(Q4_1, "q4_1", "GGUF's 4 bits with a minimum", "u4", 0, 20);
with_minimum!(Q5_1, "q5_1", "GGUF's 5 bits with a minimum", "u5", 1, 24);

/// Reads the codes of a block of 32 weights: the fifth bits of all codes (four bytes, only if `HIGH` is 1), then the low four bits of all codes.
fn unpack_codes<const HIGH: usize>(bytes: &[u8], codes: &mut [u8]) {
    let (fifth, nibbles) = bytes.split_at(4 * HIGH);
    unpack_nibbles(nibbles, HALF, codes);
    for (i, code) in codes.iter_mut().enumerate().take(LEN * HIGH) {
        *code |= (fifth[i / 8] >> (i % 8) & 1) << 4;
    }
}

/// The inverse of [`unpack_codes`].
fn pack_codes<const HIGH: usize>(codes: &[u8], out: &mut Vec<u8>) {
    for codes in codes.chunks_exact(8).take(4 * HIGH) {
        out.push(codes.iter().rev().fold(0, |byte, code| byte << 1 | code >> 4 & 1));
    }
    pack_nibbles(codes, HALF, out);
}
