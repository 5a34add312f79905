// What the kernel of a whole head and the version's part of it share.
import package::matrix::place::Place;
import package::slot::matrix::weight8;
import package::constants::QUARTERS;

struct Params {
    // Rows of the state, all heads.
    width: u32,
    // Strides of a row of proj, of vectors, bias and y.
    proj_stride: u32,
    stride: u32,
    // Columns of proj: r, k, v, and the gate where there is one.
    r: u32,
    k: u32,
    v: u32,
    g: u32,
    is_gated: u32,
    // Where the norm's weight begins in vectors; its bias follows a stride later.
    norm: u32,
    eps: f32,
    // RWKV-7: 1 in layer 0. RWKV-5 and 6: where a decay that never changes begins in vectors, or 0.
    first_layer: u32,
    decay: u32,
    // Low-rank matrices: (first word of codes, units of a row, column of proj in units of 4, first word of scales)
    lora: array<vec4<u32>, 4>,
}

// A token's value, its bonus, and what multiplies the output.
struct Token {
    v: f32,
    bonus: f32,
    gate: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> vectors: array<f32>; // [.., stride]
@group(0) @binding(2) var<storage, read> bias: array<f32>; // [.., stride], of the low-rank products
@group(0) @binding(3) var<storage, read> proj: array<vec4<f32>>; // [T, proj_stride / 4]

// Vectors of the token that all lanes read: as in rwkv/wkv.
var<workgroup> feed: array<vec4<f32>, 5 * QUARTERS>;

fn projected(t: u32, column: u32, c: u32) -> f32 {
    let at = t * params.proj_stride + column + c;
    return proj[at / 4u][at % 4u];
}

// Row c of a low-rank matrix times its column of proj.
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

// Lane j's element of one of the vectors; what pads a head is zero.
fn put(vector: u32, lane: u32, value: f32, inside: bool) {
    if lane < 4u * QUARTERS { feed[vector * QUARTERS + lane / 4u][lane % 4u] = select(0.0, value, inside); }
}
