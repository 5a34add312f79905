// Prepares the inputs of latent attention. One row of `latent` is c, the latent of one token, and after it the rotary channels of its key:
//   k = [rotary channels | RMS(c)]   q_h, first channels = the rotary channels of query head h
// RMS(c) = c / sqrt(mean of c^2 + eps) * g. The other channels of q are the result of a product. One workgroup per token.
// Slot reduce: lib/reduce, lib/reduce_lanes, lib/reduce_subgroup
import package::lib::cursor::n_tokens;
import package::slot::reduce::{WG, reduce_sum};

struct Params {
    n_heads: u32,
    // The number of channels of a head in `queries`; the last `rotary` of them are rotary.
    head: u32,
    rotary: u32,
    // The number of channels of c.
    width: u32,
    // Strides of a row of queries, latent and qk, in floats.
    queries_stride: u32,
    latent_stride: u32,
    stride: u32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> queries: array<f32>; // [T, queries_stride]
@group(0) @binding(2) var<storage, read> latent: array<f32>; // [T, latent_stride]: c, rotary channels of the key
@group(0) @binding(3) var<storage, read> norm: array<f32>; // [width]: g
@group(0) @binding(4) var<storage, read_write> qk: array<f32>; // [T, stride]: q [n_heads, rotary + width], k [rotary + width]

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = group.x + group.y * 32768u;
    if t >= n_tokens() { return; }
    let source = t * params.queries_stride + params.head - params.rotary;
    let to = t * params.stride;
    let size = params.rotary + params.width;
    for (var i = lane; i < params.n_heads * params.rotary; i += WG) {
        let head = i / params.rotary;
        let channel = i % params.rotary;
        qk[to + head * size + channel] = queries[source + head * params.head + channel];
    }
    let c = t * params.latent_stride;
    var square = 0.0;
    for (var i = lane; i < params.width; i += WG) { square += latent[c + i] * latent[c + i]; }
    let scale = 1.0 / sqrt(reduce_sum(vec4(square), lane).x / f32(params.width) + params.eps);
    let key = to + params.n_heads * size;
    for (var i = lane; i < params.rotary; i += WG) { qk[key + i] = latent[c + params.width + i]; }
    for (var i = lane; i < params.width; i += WG) { qk[key + params.rotary + i] = latent[c + i] * scale * norm[i]; }
}
