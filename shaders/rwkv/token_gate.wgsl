// Multiplies a range of channels of each row by a vector of the row's token:  y[t, i] <- y[t, i] (S[token][i] + z[t, i])
// S is a table with one row per token of the vocabulary. One workgroup per token; each lane takes some units of eight channels. A large table
// has several pieces (rows that fit one binding), each with its own dispatch. Only the piece that has a token's row changes y[t].
// Slot reduce: lib/reduce, lib/reduce_lanes, lib/reduce_subgroup
// Slot matrix: matrix/rows
import package::lib::cursor::{n_tokens, row_at};
import package::slot::reduce::WG;
import package::matrix::place::Place;
import package::slot::matrix::weight8;

struct Params {
    // Offset of the first gated channel in a row of y, and the stride of a row of y, in floats.
    y_at: u32,
    y_stride: u32,
    // Offset of the first channel of the gate in a row of z, and the stride of a row of z, in floats.
    z_at: u32,
    z_stride: u32,
    // The number of units of eight weights in a row of the table.
    units: u32,
    // Index of the first 16-byte word of the scales.
    scales: u32,
    // First row of this piece.
    first_row: u32,
    // The number of rows of this piece.
    rows: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> z: array<f32>; // [T, z_stride]
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // [T, y_stride]

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = group.x;
    if t >= n_tokens() { return; }
    let token = row_at(t).token;
    if token < params.first_row || token >= params.first_row + params.rows { return; }
    let place = Place(0u, params.scales, params.units, params.rows);
    let y_at = t * params.y_stride + params.y_at;
    let z_at = t * params.z_stride + params.z_at;
    for (var u = lane; u < params.units; u += WG) {
        let eight = weight8(place, token - params.first_row, u);
        for (var e = 0u; e < 8u; e++) { y[y_at + 8u * u + e] *= eight[e / 4u][e % 4u] + z[z_at + 8u * u + e]; }
    }
}
