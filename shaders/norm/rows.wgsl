// Layer norm or RMS norm of each row:
//   y = (x - mean) / sqrt(var + eps) * g + b   biased variance, in two passes; in an RMS norm mean and b are zero
// One workgroup per row; each lane takes a part of the width. Rows are all tokens, or only the tokens whose logits are requested.
// Slot reduce: lib/reduce, lib/reduce_lanes, lib/reduce_subgroup
import package::lib::cursor::{n_rows, output_row};
import package::slot::reduce::{WG, reduce_sum};

struct Params {
    width: u32,
    // Stride of a row of norm and y, in floats.
    stride: u32,
    // Stride of a row of x, in floats.
    x_stride: u32,
    eps: f32,
    // 1: layer norm; 0: RMS norm.
    centred: u32,
    // 0 if rows are tokens, 1 if rows are the tokens whose logits are requested.
    of_outputs: u32,
    // 1: adds the result to y; 0: overwrites y.
    adds: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> norm: array<f32>; // [1 + centred, stride]: g, b
@group(0) @binding(2) var<storage, read> x: array<f32>; // [T, x_stride]
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [T or O, stride]

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.x + group.y * 32768u;
    if row >= n_rows(params.of_outputs) { return; }
    let at = select(row, output_row(row), params.of_outputs == 1u) * params.x_stride;
    let n = f32(params.width);

    var mean = 0.0;
    if params.centred == 1u {
        var sum = 0.0;
        for (var i = lane; i < params.width; i += WG) { sum += x[at + i]; }
        mean = reduce_sum(vec4(sum), lane).x / n;
    }
    var square = 0.0;
    for (var i = lane; i < params.width; i += WG) { let d = x[at + i] - mean; square += d * d; }
    let scale = 1.0 / sqrt(reduce_sum(vec4(square), lane).x / n + params.eps);
    for (var i = lane; i < params.width; i += WG) {
        let b = f32(params.centred) * norm[params.centred * params.stride + i];
        let to = row * params.stride + i;
        var z = (x[at + i] - mean) * scale * norm[i] + b;
        if params.adds == 1u { z += y[to]; }
        y[to] = z;
    }
}
