// Parameters, bindings and helpers that rwkv/head shares with the modules of its shader slot `head`.
// Slot matrix: matrix/rows
import package::matrix::place::Place;
import package::slot::matrix::weight8;
import package::constants::{QUARTERS, AHEAD};

struct Params {
    // The number of rows of the state in all heads together.
    width: u32,
    // Stride of a row of proj, in floats.
    proj_stride: u32,
    // Stride of a row of vectors, bias and y, in floats.
    stride: u32,
    // Offsets of the columns r, k, v and gate in a row of proj, in floats.
    r: u32,
    k: u32,
    v: u32,
    g: u32,
    // 1 if the output has a gate, otherwise 0.
    is_gated: u32,
    // 1 if heads are normalised, otherwise 0.
    is_normed: u32,
    // Offset of the norm's weight in the buffer `vectors`, in floats. The norm's bias is one stride further.
    norm: u32,
    eps: f32,
    // RWKV-7: 1 in layer 0, otherwise 0.
    first_layer: u32,
    // RWKV-5: offset of the constant decay in the buffer `vectors`, in floats. RWKV-6: 0, because the decay depends on the token.
    decay: u32,
    // The number of heads that share a head of keys and values. It is 1 in RWKV.
    group: u32,
    // QRWKV-6: the factor of the output, which reads the state after the token. 0 in RWKV.
    scale: f32,
    // One entry per low-rank matrix: (first word of its codes, units in a row, offset of its input in a row of proj in vectors of 4 floats,
    // first word of its scales).
    lora: array<vec4<u32>, 4>,
}

// The value, the bonus and the gate of one channel and token. The output is multiplied by the gate.
struct Token {
    v: f32,
    bonus: f32,
    gate: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> vectors: array<f32>; // [.., stride]
@group(0) @binding(2) var<storage, read> bias: array<f32>; // [.., stride], biases of the low-rank products
@group(0) @binding(3) var<storage, read> proj: array<vec4<f32>>; // [T, proj_stride / 4]

// The vectors of a token, [5, QUARTERS], in the order of `feed` in rwkv/wkv. All lanes read these vectors.
var<workgroup> feed: array<vec4<f32>, 5 * QUARTERS>;

// Returns channel c of the vector that begins at float `column` of token t's row of proj.
fn projected(t: u32, column: u32, c: u32) -> f32 {
    let at = t * params.proj_stride + column + c;
    return proj[at / 4u][at % 4u];
}

// Returns the dot products of row c of the first n low-rank matrices with their inputs in proj, for token t. A loop goes through
// the matrices, so that the compiled shader has the code once.
fn low_rank(n: u32, t: u32, c: u32) -> vec4<f32> {
    var products = vec4(0.0);
    for (var i = 0u; i < n; i++) {
        let m = params.lora[i];
        let place = Place(m.x, m.w, m.y, params.width);
        let at = t * params.proj_stride / 4u + m.z;
        var sum = vec4(0.0);
        // AHEAD units are loaded before the first of them is used, so that the lane waits for memory only once per AHEAD units.
        var u = 0u;
        for (; u + AHEAD <= m.y; u += AHEAD) {
            unroll a in AHEAD {
                let w_$a = weight8(place, c, u + $au);
                let x_$a = mat2x4(proj[at + 2u * (u + $au)], proj[at + 2u * (u + $au) + 1u]);
            }
            unroll a in AHEAD { sum += w_$a[0] * x_$a[0] + w_$a[1] * x_$a[1]; }
        }
        for (; u < m.y; u++) {
            let w = weight8(place, c, u);
            sum += w[0] * proj[at + 2u * u] + w[1] * proj[at + 2u * u + 1u];
        }
        products[i] = dot(sum, vec4(1.0));
    }
    return products;
}

// Writes the lane's element of a vector of `feed`. Elements after the last channel of the head are set to zero.
fn put(vector: u32, lane: u32, value: f32, inside: bool) {
    if lane < 4u * QUARTERS { feed[vector * QUARTERS + lane / 4u][lane % 4u] = select(0.0, value, inside); }
}
