// Prepares the recurrence of RWKV-5 and 6: gathers r, w and k of each head in `feed`, copies v to `values`, and computes (u is a learnt vector)
//   bonus = (sum over j of r[j] u[j] k[j]) v
// In QRWKV-6, keys are k' = k (1 - w), and several heads share a head of keys and values. The output reads the state after the token, S' = S diag(w)
// + v k'^T: scale S' r = S (scale w r) + bonus, with u = scale. So `feed` has scale w r in place of r. One workgroup per token and head; each lane
// takes some of the head's channels.
// Slot reduce: lib/reduce, lib/reduce_lanes, lib/reduce_subgroup
import package::lib::cursor::n_tokens;
import package::slot::reduce::{WG, reduce_sum};

struct Params {
    head_size: u32,
    // The length of a head's vector (r, w or k) in feed, with padding, in floats.
    head_stride: u32,
    // Stride of a token in proj, in floats.
    proj_stride: u32,
    // Stride of a token in feed, in floats.
    feed_stride: u32,
    // Stride of a token in values, in floats.
    values_stride: u32,
    // Offsets of the columns r, k and v in a row of proj, in floats.
    r: u32,
    k: u32,
    v: u32,
    // Offset of the column bonus in a row of values, in floats.
    bonus: u32,
    // Offset of the decay of channel 0 in a row of `decay`, in floats.
    w: u32,
    // Stride of a token in `decay`, in floats: 0 in v5, whose decay is constant.
    decay_stride: u32,
    // The number of heads that share a head of keys and values. It is 1 in RWKV.
    group: u32,
    // QRWKV-6: the factor of the output. 0 in RWKV.
    scale: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> vectors: array<f32>; // [.., stride]: u, …
@group(0) @binding(2) var<storage, read> proj: array<f32>; // [T, proj_stride]
@group(0) @binding(3) var<storage, read> decay: array<f32>; // [T or 1, decay_stride]
@group(0) @binding(4) var<storage, read_write> feed: array<f32>; // [T, H, 3 (r, w, k), head_stride]
@group(0) @binding(5) var<storage, read_write> values: array<f32>; // [T, 2 (v, bonus)]

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = group.y;
    if t >= n_tokens() { return; }
    let head = group.x * params.head_size;
    let at = t * params.proj_stride + head;
    let of_keys = t * params.proj_stride + group.x / params.group * params.head_size;
    let to = t * params.feed_stride + 3u * group.x * params.head_stride;

    var sum = 0.0;
    for (var j = lane; j < params.head_size; j += WG) {
        var r = proj[at + params.r + j];
        var k = proj[of_keys + params.k + j];
        let w = decay[t * params.decay_stride + params.w + head + j];
        var u = params.scale;
        if u == 0.0 { u = vectors[head + j]; } else { k *= 1.0 - w; }
        sum += r * u * k;
        if params.scale != 0.0 { r *= w * params.scale; }
        feed[to + j] = r;
        feed[to + params.head_stride + j] = w;
        feed[to + 2u * params.head_stride + j] = k;
    }
    let ruk = reduce_sum(vec4(sum), lane).x;
    for (var j = lane; j < params.head_size; j += WG) {
        let v = proj[of_keys + params.v + j];
        values[t * params.values_stride + head + j] = v;
        values[t * params.values_stride + params.bonus + head + j] = ruk * v;
    }
    // The recurrence reads four floats at a time, so the padding of a head is set to zero.
    for (var j = params.head_size + lane; j < params.head_stride; j += WG) {
        for (var c = 0u; c < 3u; c++) { feed[to + c * params.head_stride + j] = 0.0; }
    }
}
