// Multiplies a row vector by a matrix that depends on the token:  y[t, j] = sum over i of q[t, i] (S[token][i, j] + z[t, i, j])
// S is a table. Its row `token` is the matrix [rank, rank] of this token, stored row by row. One workgroup per token, one lane per j. A large
// table has several pieces (rows that fit one binding), each with its own dispatch. Only the piece that has a token's row writes y[t].
// Slot reduce: lib/reduce, lib/reduce_lanes, lib/reduce_subgroup
// Slot matrix: matrix/rows
import package::lib::cursor::{n_tokens, row_at};
import package::slot::reduce::WG;
import package::matrix::place::Place;
import package::slot::matrix::weight8;

struct Params {
    rank: u32,
    // Offset of q in a row of the buffer q, and the stride of that buffer's rows, in floats.
    q_at: u32,
    q_stride: u32,
    // Stride of the rows of z, in floats.
    z_stride: u32,
    // Stride of the rows of y, in floats.
    y_stride: u32,
    // The number of units of eight weights in a row of the table.
    units: u32,
    // Offset of the scales in the piece, in words of 16 bytes.
    scales: u32,
    // First row of this piece.
    first_row: u32,
    // The number of rows of this piece.
    rows: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> q: array<f32>; // [T, q_stride]
@group(0) @binding(2) var<storage, read> z: array<f32>; // [T, z_stride]: rank x rank numbers per token
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [T, y_stride]

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = group.x;
    if t >= n_tokens() { return; }
    let token = row_at(t).token;
    if token < params.first_row || token >= params.first_row + params.rows { return; }
    let place = Place(0u, params.scales, params.units, params.rows);
    let q_at = t * params.q_stride + params.q_at;
    let z_at = t * params.z_stride;
    // Eight neighbouring lanes read the same unit of the table, so a workgroup reads every word of the row once from memory.
    for (var j = lane; j < params.rank; j += WG) {
        var sum = 0.0;
        for (var i = 0u; i < params.rank; i++) {
            let at = i * params.rank + j;
            let eight = weight8(place, token - params.first_row, at / 8u);
            sum += q[q_at + i] * (eight[at % 8u / 4u][at % 4u] + z[z_at + at]);
        }
        y[t * params.y_stride + j] = sum;
    }
}
