// Looks up embeddings and normalises them:  x[t] = LN0(E[token])
// One workgroup per token; each lane takes a part of the width. A large table has several pieces (rows that fit one binding), each with its own
// dispatch. Only the piece that has a token's row writes x[t].
// Slot reduce: lib/reduce, lib/reduce_lanes, lib/reduce_subgroup
// Slot matrix: matrix/rows
import package::lib::cursor::{n_tokens, row_at};
import package::slot::reduce::{WG, reduce_sum};
import package::matrix::place::Place;
import package::slot::matrix::weight8;

struct Params {
    width: u32,
    // Stride of a row of norm and x, in floats.
    stride: u32,
    // The number of units of eight weights in a row.
    units: u32,
    // Index of the first 16-byte word of the scales.
    scales: u32,
    // First row of this piece.
    first_row: u32,
    // The number of rows of this piece.
    rows: u32,
    // 1: the rows are normalised. 0: the rows are copied, because the file has no ln0.
    normalise: u32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> norm: array<f32>; // [2, stride]: g, b
@group(0) @binding(2) var<storage, read_write> x: array<f32>; // [T, stride]

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = group.x;
    if t >= n_tokens() { return; }
    let token = row_at(t).token;
    if token < params.first_row || token >= params.first_row + params.rows { return; }
    let place = Place(0u, params.scales, params.units, params.rows);
    let at = t * params.stride;
    let n = f32(params.width);

    // Elements after the width are padding and become zero. Later loops of a lane read only elements that the same lane wrote, so they need no
    // barrier.
    var sum = 0.0;
    for (var u = lane; u < params.units; u += WG) {
        let eight = weight8(place, token - params.first_row, u);
        for (var e = 0u; e < 8u; e++) {
            let value = select(0.0, eight[e / 4u][e % 4u], 8u * u + e < params.width);
            x[at + 8u * u + e] = value;
            sum += value;
        }
    }
    let mean = reduce_sum(vec4(sum), lane).x / n;
    var square = 0.0;
    for (var u = lane; u < params.units; u += WG) {
        for (var i = 8u * u; i < min(8u * u + 8u, params.width); i++) { let d = x[at + i] - mean; square += d * d; }
    }
    let scale = 1.0 / sqrt(reduce_sum(vec4(square), lane).x / n + params.eps);
    if params.normalise == 0u { return; }
    for (var u = lane; u < params.units; u += WG) {
        for (var i = 8u * u; i < min(8u * u + 8u, params.width); i++) {
            x[at + i] = (x[at + i] - mean) * scale * norm[i] + norm[params.stride + i];
        }
    }
}
