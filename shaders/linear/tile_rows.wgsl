// The weights of a tile, from rows that lie one after another: `[rows, k8]`.
import package::linear::stack::Segment;
import package::matrix::place::Place;
import package::slot::matrix::weight8;

// How much of the width at a time, and units of eight along it.
const DEPTH: u32 = 16u;
const UNITS: u32 = DEPTH / 8u;

// Unit u of the tile of `rows` rows that begins at unit k of the width: eight of one row, of which neighbours share one. Zeros
// outside the matrix.
fn tile_unit(s: Segment, rows: u32, k: u32, u: u32) -> mat2x4<f32> {
    let row = s.row + u / UNITS;
    let unit = k + u % UNITS;
    if u >= UNITS * rows || row >= s.rows || unit >= s.k8 { return mat2x4<f32>(); }
    return weight8(Place(s.codes, s.scales, s.k8, s.rows), row, unit);
}

// Where element e of unit u belongs: row and depth within the tile.
fn tile_place(rows: u32, u: u32, e: u32) -> vec2<u32> { return vec2(u / UNITS, 8u * (u % UNITS) + e); }
