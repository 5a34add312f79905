// One f16 scale per 64 weights of a column. A word of 16 bytes has the scales of eight columns: `[rows / 64, units]` words. Fills the shader
// slot `scale`; scale/none describes each function.
// Slot matrix: matrix/rows, matrix/windows_scaled
import package::lib::halves::halves;
import package::matrix::dots::{Quad, dots};
import package::matrix::place::Place;
import package::slot::matrix::scale_word;

const BLOCK_UNITS: u32 = 0x10000u;
const HAS_MINIMA: bool = false;

struct Columns { scale: mat2x4<f32> }

fn columns(p: Place, row: u32, block: u32, k: u32) -> Columns { return Columns(halves(scale_word(p.scales + block / 64u * p.units + k))); }

fn product(a: mat2x4<f32>, b: mat2x4<f32>) -> mat2x4<f32> { return mat2x4<f32>(a[0] * b[0], a[1] * b[1]); }

fn dot4(w: Quad, s: Columns, x: mat2x4<f32>) -> vec4<f32> { return dots(w, product(x, s.scale)); }

fn of_rows(p: Place, row: u32, k: u32) -> vec4<f32> { return vec4(1.0); }

fn minima(p: Place, row: u32, k: u32) -> vec4<f32> { return vec4(0.0); }

fn scaled(codes: mat2x4<f32>, p: Place, row: u32, k: u32) -> mat2x4<f32> { return product(codes, columns(p, row, row, k).scale); }
