// Ends the time mix of RWKV-5, 6 and 7:  y = (GN(y) g_x + b_x + bonus) g
// GN is a layer norm of each head with biased variance, g_x its weight and b_x its bias. g is the gate. Only v7 adds the bonus here. v5.0 has no
// gate, and some relatives of RWKV have no norm. One workgroup per token and head; each lane takes some of the head's channels.
// Slot reduce: lib/reduce, lib/reduce_lanes, lib/reduce_subgroup
import package::lib::cursor::n_tokens;
import package::slot::reduce::{WG, reduce_sum};

struct Params {
    head_size: u32,
    // Offset of g_x in the buffer `vectors`, in floats. b_x is one stride further.
    norm: u32,
    // Stride of a token in values, in floats.
    values_stride: u32,
    // Stride of a token in gates, in floats.
    gates_stride: u32,
    // Stride of a row of vectors and y, in floats.
    stride: u32,
    // Offset of the column bonus in a row of values, in floats.
    bonus: u32,
    // Offset of the column g in a row of gates, in floats.
    g: u32,
    // 1 if the bonus is added here, otherwise 0.
    add_bonus: u32,
    // 1 if the output is multiplied by the gate g, otherwise 0.
    is_gated: u32,
    // 1 if heads are normalised, otherwise 0.
    is_normed: u32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> vectors: array<f32>; // [.., stride]: …, g_x, b_x
@group(0) @binding(2) var<storage, read> gates: array<f32>; // [T, gates_stride]
@group(0) @binding(3) var<storage, read> values: array<f32>; // [T, 2 (v, bonus)]
@group(0) @binding(4) var<storage, read_write> y: array<f32>; // [T, stride]

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = group.y;
    if t >= n_tokens() { return; }
    let head = group.x * params.head_size;
    let at = t * params.stride + head;
    let n = f32(params.head_size);

    var mean = 0.0;
    var scale = 1.0;
    if params.is_normed == 1u {
        var sum = 0.0;
        for (var j = lane; j < params.head_size; j += WG) { sum += y[at + j]; }
        mean = reduce_sum(vec4(sum), lane).x / n;
        var square = 0.0;
        for (var j = lane; j < params.head_size; j += WG) { let d = y[at + j] - mean; square += d * d; }
        scale = 1.0 / sqrt(reduce_sum(vec4(square), lane).x / n + params.eps);
    }
    for (var j = lane; j < params.head_size; j += WG) {
        var o = y[at + j];
        if params.is_normed == 1u {
            let norm = params.norm + head + j;
            o = (o - mean) * scale * vectors[norm] + vectors[norm + params.stride];
        }
        if params.add_bonus == 1u { o += values[t * params.values_stride + params.bonus + head + j]; }
        if params.is_gated == 1u { o *= gates[t * params.gates_stride + params.g + head + j]; }
        y[at + j] = o;
    }
}
