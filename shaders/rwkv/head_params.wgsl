// Parameters, bindings and helpers that rwkv/head shares with the modules of its slot `head`.
import package::matrix::place::Place;
import package::slot::matrix::weight8;
import package::constants::QUARTERS;

struct Params {
    // The number of rows of the state in all heads together.
    width: u32,
    // Strides: a row of proj; a row of vectors, bias and y.
    proj_stride: u32,
    stride: u32,
    // First floats of columns of proj: r, k, v, and the gate if is_gated is 1.
    r: u32,
    k: u32,
    v: u32,
    g: u32,
    is_gated: u32,
    // Offset of the norm's weight in vectors; its bias is one stride further.
    norm: u32,
    eps: f32,
    // RWKV-7: 1 in layer 0. RWKV-5: offset of the constant decay in vectors. RWKV-6: 0, the decay depends on the token.
    first_layer: u32,
    decay: u32,
    // Low-rank matrices: (first word of codes, units in a row, column of proj in units of 4, first word of scales)
    lora: array<vec4<u32>, 4>,
}

// For one channel and token: the value, the bonus, and the factor by which the output is multiplied.
struct Token {
    v: f32,
    bonus: f32,
    gate: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> vectors: array<f32>; // [.., stride]
@group(0) @binding(2) var<storage, read> bias: array<f32>; // [.., stride], biases of the low-rank products
@group(0) @binding(3) var<storage, read> proj: array<vec4<f32>>; // [T, proj_stride / 4]

// The vectors of a token that all lanes read, in the order of `feed` in rwkv/wkv. [5, QUARTERS]
var<workgroup> feed: array<vec4<f32>, 5 * QUARTERS>;

// Returns channel c of a column of proj.
fn projected(t: u32, column: u32, c: u32) -> f32 {
    let at = t * params.proj_stride + column + c;
    return proj[at / 4u][at % 4u];
}

// Returns row c of low-rank matrix i times its column of proj.
fn low_rank(i: u32, t: u32, c: u32) -> f32 {
    let m = params.lora[i];
    let place = Place(m.x, m.w, m.y, params.width);
    let at = t * params.proj_stride / 4u + m.z;
    var sum = vec4(0.0);
    for (var u = 0u; u < m.y; u++) {
        let w = weight8(place, c, u);
        sum += w[0] * proj[at + 2u * u] + w[1] * proj[at + 2u * u + 1u];
    }
    return dot(sum, vec4(1.0));
}

// Writes the lane's element of a vector of `feed`. The padding of a head is set to zero.
fn put(vector: u32, lane: u32, value: f32, inside: bool) {
    if lane < 4u * QUARTERS { feed[vector * QUARTERS + lane / 4u][lane % 4u] = select(0.0, value, inside); }
}
