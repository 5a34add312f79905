// Adds the outputs of a token's experts:  x[t] += sum over j of w_j y[t, j], in the order of the choice. One workgroup per token.
import package::lib::cursor::n_tokens;

struct Params {
    // The number of experts of a token.
    used: u32,
    // The number of channels, in vectors of 4 floats.
    width: u32,
    // Stride of a row of chosen, in floats, and the offset of the weights in it.
    chosen_stride: u32,
    weights: u32,
    // Stride of a row of y, and the distance between the outputs of two experts in it, in vectors of 4 floats.
    y_stride: u32,
    y_slot: u32,
    // Stride of a row of x, in vectors of 4 floats.
    x_stride: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> y: array<vec4<f32>>; // [T, y_stride]
@group(0) @binding(2) var<storage, read> chosen: array<f32>; // [T, chosen_stride]: indices, weights
@group(0) @binding(3) var<storage, read_write> x: array<vec4<f32>>; // [T, x_stride]

const LANES: u32 = 64u;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = group.x + group.y * 32768u;
    if t >= n_tokens() { return; }
    for (var i = lane; i < params.width; i += LANES) {
        var sum = x[t * params.x_stride + i];
        for (var j = 0u; j < params.used; j++) {
            sum += chosen[t * params.chosen_stride + params.weights + j] * y[t * params.y_stride + j * params.y_slot + i];
        }
        x[t * params.x_stride + i] = sum;
    }
}
