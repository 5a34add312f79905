// Token shift, then layer norm, of three columns (ranges of channels) of each row:  y = LN(x + (p - x) mix)   p = x of the previous token
// One workgroup per token and column; each lane takes a part of the width. The first column of x is in `a`, the second and the third are in `b`.
// p comes from the row above or, in the first row of a run, from the state `shift`. x of a run's last row becomes the run's new state
// (`shift_out` in lib/cursor).
// Slot reduce: lib/reduce, lib/reduce_lanes, lib/reduce_subgroup
import package::lib::cursor::{n_tokens, row_at, run_at};
import package::slot::reduce::{WG, reduce_sum};

struct Params {
    // For each column, in floats: width, offset in a row of `a` or `b`, offset in a row of y and of the state, unused.
    columns: array<vec4<u32>, 3>,
    // Strides of a row of a, b, y and shift, in floats.
    a_stride: u32,
    b_stride: u32,
    y_stride: u32,
    state_stride: u32,
    // Stride of a row of vectors, in floats.
    stride: u32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> vectors: array<f32>; // [3, 3, stride]: g, b and mix of each column
@group(0) @binding(2) var<storage, read> a: array<f32>; // [T, a_stride]
@group(0) @binding(3) var<storage, read> b: array<f32>; // [T, b_stride]
@group(0) @binding(4) var<storage, read_write> shift: array<f32>; // [2 pages, state_stride]
@group(0) @binding(5) var<storage, read_write> y: array<f32>; // [T, y_stride]

// Returns element i of row t of the buffer that has the column: `a` or `b`.
fn value(column: u32, t: u32, i: u32) -> f32 {
    if column == 0u { return a[t * params.a_stride + i]; }
    return b[t * params.b_stride + i];
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = group.x;
    if t >= n_tokens() { return; }
    let row = row_at(t);
    let run = run_at(row.run);
    let column = group.y;
    let width = params.columns[column].x;
    let source = params.columns[column].y;
    let to = params.columns[column].z;
    let at = 3u * column * params.stride;
    let shift_in = run.shift_in * params.state_stride + to;
    let shift_out = run.shift_out * params.state_stride + to;
    let here = t * params.y_stride + to;

    var sum = 0.0;
    for (var i = lane; i < width; i += WG) {
        let x = value(column, t, source + i);
        var p = 0.0;
        if row.first == 1u { p = shift[shift_in + i]; } else { p = value(column, t - 1u, source + i); }
        let mixed = x + (p - x) * vectors[at + 2u * params.stride + i];
        // The later loops of a lane read only elements that the same lane wrote, so they need no barrier.
        y[here + i] = mixed;
        sum += mixed;
        if row.last == 1u { shift[shift_out + i] = x; }
    }
    let mean = reduce_sum(vec4(sum), lane).x / f32(width);
    var square = 0.0;
    for (var i = lane; i < width; i += WG) { let d = y[here + i] - mean; square += d * d; }
    let scale = 1.0 / sqrt(reduce_sum(vec4(square), lane).x / f32(width) + params.eps);
    for (var i = lane; i < width; i += WG) {
        y[here + i] = (y[here + i] - mean) * scale * vectors[at + i] + vectors[at + params.stride + i];
    }
}
