// No scales: the codes are the weights. Fills the shader slot `scale`; every module of this shader slot defines the same names.
import package::matrix::dots::{Quad, dots};
import package::matrix::place::Place;

// The number of consecutive units of a row for which `of_rows` returns the same factors.
const BLOCK_UNITS: u32 = 0x10000u;
// True if blocks have a minimum, which `minima` returns and `dot4` leaves out.
const HAS_MINIMA: bool = false;

struct Columns { unused: u32 }

// Returns the scales and offsets of unit k of rows row ..= row + 3, for `dot4`. `block` is any row of the same block of 64 rows. Modules with one
// scale per block read `block` instead of `row`. Here the result is a placeholder.
fn columns(p: Place, row: u32, block: u32, k: u32) -> Columns { return Columns(0u); }

// Returns the dot products of four rows with eight inputs, not yet multiplied by the factors of `of_rows`.
fn dot4(w: Quad, s: Columns, x: mat2x4<f32>) -> vec4<f32> { return dots(w, x); }

// Returns a factor for each of rows row ..= row + 3. The results of `dot4` for units in the block of unit k are multiplied by these factors.
fn of_rows(p: Place, row: u32, k: u32) -> vec4<f32> { return vec4(1.0); }

// Returns the minima of rows row ..= row + 3, which are subtracted from all weights in the block of unit k. The result has a meaning only if
// HAS_MINIMA is true.
fn minima(p: Place, row: u32, k: u32) -> vec4<f32> { return vec4(0.0); }

// Returns the weights of unit k of row `row`, computed from the unit's codes.
fn scaled(codes: mat2x4<f32>, p: Place, row: u32, k: u32) -> mat2x4<f32> { return codes; }
