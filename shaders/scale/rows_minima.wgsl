// One f16 scale and one f16 minimum per block of a row: w = scale c - minimum. Two words of 16 bytes have the scales and the minima of eight rows:
// `[rows / 8, blocks, 2]` words. Fills the shader slot `scale`; scale/none describes each function.
// Slot matrix: matrix/rows, matrix/windows_scaled
// Slot weight: weight/u4, weight/u5
import package::lib::halves::four_halves;
import package::matrix::dots::{Quad, dots};
import package::matrix::place::Place;
import package::slot::matrix::scale_word;
import package::slot::weight::SCALE_UNITS;

const BLOCK_UNITS: u32 = SCALE_UNITS;
const HAS_MINIMA: bool = true;

struct Columns { unused: u32 }

fn columns(p: Place, row: u32, block: u32, k: u32) -> Columns { return Columns(0u); }

fn dot4(w: Quad, s: Columns, x: mat2x4<f32>) -> vec4<f32> { return dots(w, x); }

fn of_four(p: Place, row: u32, k: u32, item: u32) -> vec4<f32> {
    let blocks = (p.units + BLOCK_UNITS - 1u) / BLOCK_UNITS;
    return four_halves(scale_word(p.scales + 2u * (row / 8u * blocks + k / BLOCK_UNITS) + item), row);
}

fn of_rows(p: Place, row: u32, k: u32) -> vec4<f32> { return of_four(p, row, k, 0u); }

fn minima(p: Place, row: u32, k: u32) -> vec4<f32> { return of_four(p, row, k, 1u); }

fn scaled(codes: mat2x4<f32>, p: Place, row: u32, k: u32) -> mat2x4<f32> {
    let factor = of_rows(p, row, k)[row & 3u];
    let minimum = vec4(minima(p, row, k)[row & 3u]);
    return mat2x4<f32>(codes[0] * factor - minimum, codes[1] * factor - minimum);
}
