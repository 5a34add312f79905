// The weights of a tile, from a matrix by columns: `[k, rows / 8]`, the rows of one input channel contiguous.
import package::linear::stack::Segment;
import package::matrix::place::Place;
import package::matrix::columns::weight8;

// How much of the width at a time, and units of eight along it.
const DEPTH: u32 = 16u;
const UNITS: u32 = DEPTH / 8u;

// Unit u of the tile of `rows` rows that begins at channel 8 k: eight rows of one channel, of which neighbours share one. Zeros
// outside the matrix.
fn tile_unit(s: Segment, rows: u32, k: u32, u: u32) -> mat2x4<f32> {
    let channel = 8u * k + u / (rows / 8u);
    let units = (s.rows + 7u) / 8u;
    let unit = s.row / 8u + u % (rows / 8u);
    if u >= UNITS * rows || channel >= s.k || unit >= units { return mat2x4<f32>(); }
    return weight8(Place(s.codes, s.scales, units, s.k), channel, unit);
}

// Where element e of unit u belongs: row and depth within the tile.
fn tile_place(rows: u32, u: u32, e: u32) -> vec2<u32> { return vec2(8u * (u % (rows / 8u)) + e, u / (rows / 8u)); }
