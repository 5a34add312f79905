// One f16 scale per block of a row. The module of the format has the length of a block. A word of 16 bytes has the scales of eight rows: `[rows
// / 8, blocks]` words. Fills the shader slot `scale`; scale/none describes each function.
// Slot matrix: matrix/columns, matrix/rows, matrix/windows_scaled
// Slot weight: weight/i4, weight/i8, weight/iq4, weight/nf4, weight/nf4_table, weight/q4_0, weight/q8_0, weight/s5
import package::lib::halves::four_halves;
import package::matrix::dots::{Quad, dots};
import package::matrix::place::Place;
import package::slot::matrix::scale_word;
import package::slot::weight::SCALE_UNITS;

const BLOCK_UNITS: u32 = SCALE_UNITS;
const HAS_MINIMA: bool = false;

struct Columns { unused: u32 }

fn columns(p: Place, row: u32, block: u32, k: u32) -> Columns { return Columns(0u); }

fn dot4(w: Quad, s: Columns, x: mat2x4<f32>) -> vec4<f32> { return dots(w, x); }

fn of_rows(p: Place, row: u32, k: u32) -> vec4<f32> {
    let blocks = (p.units + BLOCK_UNITS - 1u) / BLOCK_UNITS;
    return four_halves(scale_word(p.scales + row / 8u * blocks + k / BLOCK_UNITS), row);
}

fn minima(p: Place, row: u32, k: u32) -> vec4<f32> { return vec4(0.0); }

fn scaled(codes: mat2x4<f32>, p: Place, row: u32, k: u32) -> mat2x4<f32> { return codes * of_rows(p, row, k)[row & 3u]; }
