// What follows the RWKV-7 recurrence, a workgroup a token and head:
//   y = (GN(y) * g_x + b_x + (sum over j of r[j] k'[j] r_k[j]) v') * g      k', v' as in wkv7.wgsl; GN per head
import package::lib::cursor::n_tokens;
import package::lib::reduce::{WG, reduce_sum};

struct Params {
    head_size: u32,
    proj_stride: u32,
    gates_stride: u32,
    stride: u32,
    r: u32,
    k: u32,
    v: u32,
    a: u32,
    mix: u32,
    g: u32,
    first_layer: u32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> vectors: array<f32>; // [5, stride]: k_k, k_a, r_k, g_x, b_x
@group(0) @binding(2) var<storage, read> proj: array<f32>; // [T, proj_stride]
@group(0) @binding(3) var<storage, read> gates: array<f32>; // [T, gates_stride]
@group(0) @binding(4) var<storage, read> v_first: array<f32>; // [T, stride]
@group(0) @binding(5) var<storage, read_write> y: array<f32>; // [T, stride]

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = group.y;
    if t >= n_tokens() { return; }
    let head = group.x * params.head_size;
    let at = t * params.proj_stride + head;
    let gate = t * params.gates_stride + head;
    let out = t * params.stride + head;
    let n = f32(params.head_size);

    var sums = vec4(0.0);
    for (var j = lane; j < params.head_size; j += WG) {
        let a = gates[gate + params.a + j];
        let k_mod = proj[at + params.k + j] * (1.0 + (a - 1.0) * vectors[params.stride + head + j]);
        sums += vec4(y[out + j], proj[at + params.r + j] * k_mod * vectors[2u * params.stride + head + j], 0.0, 0.0);
    }
    let total = reduce_sum(sums, lane);
    let mean = total.x / n;
    var square = 0.0;
    for (var j = lane; j < params.head_size; j += WG) { let d = y[out + j] - mean; square += d * d; }
    let scale = 1.0 / sqrt(reduce_sum(vec4(square), lane).x / n + params.eps);
    for (var j = lane; j < params.head_size; j += WG) {
        var v = proj[at + params.v + j];
        if params.first_layer == 0u { v += (v_first[out + j] - v) * gates[gate + params.mix + j]; }
        let normed = (y[out + j] - mean) * scale * vectors[3u * params.stride + head + j] + vectors[4u * params.stride + head + j];
        y[out + j] = (normed + total.y * v) * gates[gate + params.g + j];
    }
}
