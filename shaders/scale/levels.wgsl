// Scales on two levels. A block is 32 units of a row, and a sub-block SCALE_UNITS units. A block has an f16 scale, and one small whole number per
// sub-block. The product of both is the factor of the sub-block. If MINIMUM_BITS is not 0, a block also has an f16 scale of minima, and one small
// whole number per sub-block for its minimum.
// The scales are `[rows / 8, blocks, ITEMS]` words of 16 bytes. A word has the f16 of eight rows, or two bytes of each of eight rows:
//   MINIMUM_BITS 8: the small scale and the small minimum of one sub-block
//   MINIMUM_BITS 4: one byte for each of two sub-blocks, with the small scale in its low bits and the small minimum in its high bits
//   MINIMUM_BITS 0: one byte for each of two sub-blocks, a signed small scale
// With SIX_BITS, small scales have six bits instead. A block has the low four bits of all its small scales, then the high two bits of all. 32 is
// subtracted from the six bits.
// Fills the shader slot `scale`; scale/none describes each function.
// Slot matrix: matrix/rows, matrix/windows_scaled
// Slot weight: weight/iq4, weight/s3, weight/s6, weight/u2, weight/u4, weight/u5
import package::lib::halves::four_halves;
import package::matrix::dots::{Quad, dots};
import package::matrix::place::Place;
import package::slot::matrix::scale_word;
import package::slot::weight::{MINIMUM_BITS, SCALE_UNITS, SIX_BITS};

const BLOCK_UNITS: u32 = SCALE_UNITS;
const HAS_MINIMA: bool = MINIMUM_BITS != 0u;
const LENGTH: u32 = 32u;
const FLOATS: u32 = select(1u, 2u, HAS_MINIMA);
const SUBS_PER_WORD: u32 = select(2u, 1u, MINIMUM_BITS == 8u);
const ITEMS: u32 = FLOATS + select(LENGTH / SCALE_UNITS / SUBS_PER_WORD, 6u, SIX_BITS);

struct Columns { unused: u32 }

fn columns(p: Place, row: u32, block: u32, k: u32) -> Columns { return Columns(0u); }

fn dot4(w: Quad, s: Columns, x: mat2x4<f32>) -> vec4<f32> { return dots(w, x); }

// Returns the index of the first word of the block of unit k.
fn first_word(p: Place, row: u32, k: u32) -> u32 {
    return p.scales + (row / 8u * ((p.units + LENGTH - 1u) / LENGTH) + k / LENGTH) * ITEMS;
}

// Returns one byte of each of rows row ..= row + 3: byte `second` of the items of unit k.
fn four_bytes(p: Place, row: u32, k: u32, second: u32) -> u32 {
    let sub = k % LENGTH / SCALE_UNITS;
    return scale_word(first_word(p, row, k) + FLOATS + sub / SUBS_PER_WORD)[2u * second + row / 4u % 2u];
}

// Returns the small scales of rows row ..= row + 3.
fn small_scales(p: Place, row: u32, k: u32) -> vec4<f32> {
    let places = vec4(0u, 8u, 16u, 24u);
    if SIX_BITS {
        let at = first_word(p, row, k) + FLOATS;
        let sub = k % LENGTH / SCALE_UNITS;
        let half = row / 4u % 2u;
        let low = (vec4(scale_word(at + sub / 4u)[2u * (sub / 2u % 2u) + half]) >> (places + 4u * (sub & 1u))) & vec4(0xfu);
        let high = (vec4(scale_word(at + 4u + sub / 8u)[2u * (sub / 4u % 2u) + half]) >> (places + 2u * (sub & 3u))) & vec4(3u);
        return vec4<f32>(low | (high << vec4(4u))) - 32.0;
    }
    if MINIMUM_BITS == 8u { return vec4<f32>((vec4(four_bytes(p, row, k, 0u)) >> places) & vec4(0xffu)); }
    let bytes = vec4(four_bytes(p, row, k, k % LENGTH / SCALE_UNITS % 2u));
    if MINIMUM_BITS == 4u { return vec4<f32>((bytes >> places) & vec4(0xfu)); }
    return vec4<f32>(bitcast<vec4<i32>>(bytes << (vec4(24u) - places)) >> vec4(24u));
}

fn of_rows(p: Place, row: u32, k: u32) -> vec4<f32> { return four_halves(scale_word(first_word(p, row, k)), row) * small_scales(p, row, k); }

fn minima(p: Place, row: u32, k: u32) -> vec4<f32> {
    let places = vec4(0u, 8u, 16u, 24u);
    let scales = four_halves(scale_word(first_word(p, row, k) + 1u), row);
    if MINIMUM_BITS == 8u { return scales * vec4<f32>((vec4(four_bytes(p, row, k, 1u)) >> places) & vec4(0xffu)); }
    let bytes = vec4(four_bytes(p, row, k, k % LENGTH / SCALE_UNITS % 2u));
    return scales * vec4<f32>((bytes >> (places + vec4(4u))) & vec4(0xfu));
}

fn scaled(codes: mat2x4<f32>, p: Place, row: u32, k: u32) -> mat2x4<f32> {
    let factor = of_rows(p, row, k)[row & 3u];
    if !HAS_MINIMA { return codes * factor; }
    let minimum = vec4(minima(p, row, k)[row & 3u]);
    return mat2x4<f32>(codes[0] * factor - minimum, codes[1] * factor - minimum);
}
