// The weights of a tile, read from a row-major matrix: `[rows, k8]` units of eight weights. Fills the shader slot `tile`.
// Slot stack: experts/stack, linear/stack
// Slot matrix: matrix/rows
import package::slot::stack::Segment;
import package::matrix::place::Place;
import package::slot::matrix::weight8;

// Width of a tile, in weights.
const DEPTH: u32 = 16u;
// Width of a tile, in units of eight weights.
const UNITS: u32 = DEPTH / 8u;

// Returns unit u of a tile: eight weights of one row. The tile has `rows` rows and begins at unit k of the width. The units of a row have
// consecutive indices u. Returns zeros outside the matrix.
fn tile_unit(s: Segment, rows: u32, k: u32, u: u32) -> mat2x4<f32> {
    let row = s.row + u / UNITS;
    let unit = k + u % UNITS;
    if u >= UNITS * rows || row >= s.rows || unit >= s.k8 { return mat2x4<f32>(); }
    return weight8(Place(s.codes, s.scales, s.k8, s.rows), row, unit);
}

// Returns the row and the channel of element e of unit u, both relative to the tile.
fn tile_place(rows: u32, u: u32, e: u32) -> vec2<u32> { return vec2(u / UNITS, 8u * (u % UNITS) + e); }
