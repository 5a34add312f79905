// y[o] = LN(x[row of output o]) = (x - mean) / sqrt(var + eps) * g + b, biased variance, in two passes.
import package::lib::cursor::{n_outputs, output_row};
import package::lib::reduce::{WG, reduce_sum};

struct Params {
    width: u32,
    stride: u32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> norm: array<f32>; // [2, stride]: g, b
@group(0) @binding(2) var<storage, read> x: array<f32>; // [T, stride]
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [O, stride]

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let o = group.x + group.y * 32768u;
    if o >= n_outputs() { return; }
    let at = output_row(o) * params.stride;
    let n = f32(params.width);

    var sum = 0.0;
    for (var i = lane; i < params.width; i += WG) { sum += x[at + i]; }
    let mean = reduce_sum(vec4(sum), lane).x / n;
    var square = 0.0;
    for (var i = lane; i < params.width; i += WG) { let d = x[at + i] - mean; square += d * d; }
    let scale = 1.0 / sqrt(reduce_sum(vec4(square), lane).x / n + params.eps);
    for (var i = lane; i < params.width; i += WG) {
        y[o * params.stride + i] = (x[at + i] - mean) * scale * norm[i] + norm[params.stride + i];
    }
}
