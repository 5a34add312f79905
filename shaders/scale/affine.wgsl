// An f16 scale and offset per row (rx, mx) and per column (ry, my). c is a weight's code. A word of 16 bytes has eight f16 values. The
// scales and offsets of rows are stored first, `[2, rows / 8]` words. The scales and offsets of columns follow, `[2, units]` words.
//   W[row, k] = c[row, k] rx[row] ry[k] + mx[row] + my[k]
//   sum over k of W[row, k] x[k] = rx[row] sum of c[row, k] ry[k] x[k] + mx[row] sum of x[k] + sum of my[k] x[k]
// Fills the shader slot `scale`; scale/none describes each function.
// Slot matrix: matrix/columns, matrix/rows, matrix/windows_scaled
import package::lib::halves::halves;
import package::matrix::dots::{Quad, dots};
import package::matrix::place::Place;
import package::slot::matrix::scale_word;

const BLOCK_UNITS: u32 = 0x10000u;
const HAS_MINIMA: bool = false;

struct Columns {
    // Scales of four rows.
    rx: vec4<f32>,
    // Offsets of four rows.
    mx: vec4<f32>,
    // Scales of eight columns.
    ry: mat2x4<f32>,
    // Offsets of eight columns.
    my: mat2x4<f32>,
}

fn columns(p: Place, row: u32, block: u32, k: u32) -> Columns {
    let groups = (p.rows + 7u) / 8u;
    let rx = halves(scale_word(p.scales + row / 8u));
    let mx = halves(scale_word(p.scales + groups + row / 8u));
    let at = p.scales + 2u * groups + k;
    let half = (row & 4u) != 0u;
    return Columns(select(rx[0], rx[1], half), select(mx[0], mx[1], half), halves(scale_word(at)), halves(scale_word(at + p.units)));
}

fn dot4(w: Quad, s: Columns, x: mat2x4<f32>) -> vec4<f32> {
    let sums = dots(w, mat2x4<f32>(x[0] * s.ry[0], x[1] * s.ry[1]));
    return sums * s.rx + s.mx * dot(x[0] + x[1], vec4(1.0)) + (dot(x[0], s.my[0]) + dot(x[1], s.my[1]));
}

fn of_rows(p: Place, row: u32, k: u32) -> vec4<f32> { return vec4(1.0); }

fn minima(p: Place, row: u32, k: u32) -> vec4<f32> { return vec4(0.0); }

fn scaled(codes: mat2x4<f32>, p: Place, row: u32, k: u32) -> mat2x4<f32> {
    let s = columns(p, row, row, k);
    let rx = s.rx[row & 3u];
    let mx = s.mx[row & 3u];
    return mat2x4<f32>(codes[0] * (s.ry[0] * rx) + (s.my[0] + mx), codes[1] * (s.ry[1] * rx) + (s.my[1] + mx));
}
