// Codes that are the numbers.
import package::matrix::dots::{Quad, dots};
import package::matrix::place::Place;

// Units of the width whose sums `of_rows` multiplies together. Every module in the place of this one has these names.
const BLOCK_UNITS: u32 = 0x10000u;

struct Columns { unused: u32 }

// What belongs to the inputs of unit k, for rows row .. row + 3. `block` is any row of their block of 64, the same for all lanes of a
// workgroup where a kernel knows one: an index that lanes share is read once.
fn columns(p: Place, row: u32, block: u32, k: u32) -> Columns { return Columns(0u); }

// What four rows make of eight inputs, but for `of_rows`.
fn dot4(w: Quad, s: Columns, x: mat2x4<f32>) -> vec4<f32> { return dots(w, x); }

// What the sums of four rows are multiplied by, where they are of the same block as unit k.
fn of_rows(p: Place, row: u32, k: u32) -> vec4<f32> { return vec4(1.0); }

// Unit k of one row.
fn scaled(codes: mat2x4<f32>, p: Place, row: u32, k: u32) -> mat2x4<f32> { return codes; }
