// The weights of a tile, read from a column-major matrix: `[k, rows / 8]` units of eight weights. Fills the shader slot `tile`.
// Slot stack: linear/stack
import package::slot::stack::Segment;
import package::matrix::place::Place;
import package::matrix::columns::weight8;

// Width of a tile, in weights.
const DEPTH: u32 = 16u;
// Width of a tile, in units of eight weights.
const UNITS: u32 = DEPTH / 8u;

// Returns unit u of a tile: the weights of eight rows for one channel. The tile has `rows` rows and begins at channel 8 k. The units of a
// channel have consecutive indices u. Returns zeros outside the matrix.
fn tile_unit(s: Segment, rows: u32, k: u32, u: u32) -> mat2x4<f32> {
    let channel = 8u * k + u / (rows / 8u);
    let units = (s.rows + 7u) / 8u;
    let unit = s.row / 8u + u % (rows / 8u);
    if u >= UNITS * rows || channel >= s.k || unit >= units { return mat2x4<f32>(); }
    return weight8(Place(s.codes, s.scales, units, s.k), channel, unit);
}

// Returns the row and the channel of element e of unit u, both relative to the tile.
fn tile_place(rows: u32, u: u32, e: u32) -> vec2<u32> { return vec2(8u * (u % (rows / 8u)) + e, u / (rows / 8u)); }
