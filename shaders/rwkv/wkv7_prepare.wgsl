// Prepares the recurrence of RWKV-7:
//   kappa = k k_k / max(|k k_k|, 1e-12)   b = kappa a   k' = k (1 + (a - 1) k_a)
//   v' = v + (v_first - v) mix   (layer 0: v_first = v)   bonus = (sum over j of r[j] k'[j] r_k[j]) v'
// One workgroup per token and head; each lane takes some of the head's channels.
// Slot reduce: lib/reduce, lib/reduce_lanes, lib/reduce_subgroup
import package::lib::cursor::n_tokens;
import package::slot::reduce::{WG, reduce_sum};

struct Params {
    head_size: u32,
    // The length of a head's vector (kappa, w, b, k' or r) in feed, with padding, in floats.
    head_stride: u32,
    // Stride of a token in proj, in floats.
    proj_stride: u32,
    // Stride of a token in gates, in floats.
    gates_stride: u32,
    // Stride of a token in feed, in floats.
    feed_stride: u32,
    // Stride of a row of v_first and vectors, in floats.
    stride: u32,
    // Stride of a token in values, in floats.
    values_stride: u32,
    // Offsets of the columns r, k and v in a row of proj, in floats.
    r: u32,
    k: u32,
    v: u32,
    // Offsets of the columns decay w, rate a and value mix in a row of gates, in floats.
    w: u32,
    a: u32,
    mix: u32,
    // Offset of the column bonus in a row of values, in floats.
    bonus: u32,
    // 1 in layer 0, otherwise 0.
    first_layer: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> vectors: array<f32>; // [5, stride]: k_k, k_a, r_k, …
@group(0) @binding(2) var<storage, read> proj: array<f32>; // [T, proj_stride]
@group(0) @binding(3) var<storage, read> gates: array<f32>; // [T, gates_stride]
@group(0) @binding(4) var<storage, read_write> v_first: array<f32>; // [T, stride]
@group(0) @binding(5) var<storage, read_write> feed: array<f32>; // [T, H, 5 (kappa, w, b, k', r), head_stride]
@group(0) @binding(6) var<storage, read_write> values: array<f32>; // [T, 2 (v', bonus)]

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = group.y;
    if t >= n_tokens() { return; }
    let head = group.x * params.head_size;
    let at = t * params.proj_stride + head;
    let gate = t * params.gates_stride + head;

    var sums = vec4(0.0);
    for (var j = lane; j < params.head_size; j += WG) {
        let k = proj[at + params.k + j];
        let kk = k * vectors[head + j];
        let k_mod = k * (1.0 + (gates[gate + params.a + j] - 1.0) * vectors[params.stride + head + j]);
        sums += vec4(kk * kk, proj[at + params.r + j] * k_mod * vectors[2u * params.stride + head + j], 0.0, 0.0);
    }
    let total = reduce_sum(sums, lane);
    let scale = 1.0 / max(sqrt(total.x), 1e-12);
    let to = t * params.feed_stride + 5u * group.x * params.head_stride;
    for (var j = lane; j < params.head_size; j += WG) {
        let k = proj[at + params.k + j];
        let a = gates[gate + params.a + j];
        let kappa = k * vectors[head + j] * scale;
        feed[to + j] = kappa;
        feed[to + params.head_stride + j] = gates[gate + params.w + j];
        feed[to + 2u * params.head_stride + j] = kappa * a;
        feed[to + 3u * params.head_stride + j] = k * (1.0 + (a - 1.0) * vectors[params.stride + head + j]);
        feed[to + 4u * params.head_stride + j] = proj[at + params.r + j];

        var v = proj[at + params.v + j];
        let first = t * params.stride + head + j;
        if params.first_layer == 1u {
            v_first[first] = v;
        } else {
            v += (v_first[first] - v) * gates[gate + params.mix + j];
        }
        values[t * params.values_stride + head + j] = v;
        values[t * params.values_stride + params.bonus + head + j] = total.y * v;
    }
    // The recurrence reads four floats at a time, so the padding of a head is set to zero.
    for (var j = params.head_size + lane; j < params.head_stride; j += WG) {
        for (var c = 0u; c < 5u; c++) { feed[to + c * params.head_stride + j] = 0.0; }
    }
}
