// RWKV-7 recurrence, one lane a row of the state (head h, value index i), tokens in sequence. RWKV-7 paper, eq. 17:
//   kappa = normalise(k * k_k)   b = kappa * a   k' = k (1 + (a - 1) k_a)   v' = v + (v_first - v) mix   (layer 0: v_first = v)
//   s = S kappa   S[i, j] = S[i, j] w[j] - s b[j] + v'[i] k'[j]   y[i] = sum over j of S[i, j] r[j]
import package::lib::cursor::{n_runs, run_at};
import package::constants::HEAD;

struct Params {
    // Values of a token, and strides of a token in proj, gates and of y and v_first.
    width: u32,
    proj_stride: u32,
    gates_stride: u32,
    stride: u32,
    // Columns of proj: r, k, v; of gates: decay w, rate a, value mix.
    r: u32,
    k: u32,
    v: u32,
    w: u32,
    a: u32,
    mix: u32,
    // 1 in layer 0.
    first_layer: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> vectors: array<f32>; // [3, stride]: k_k, k_a, r_k
@group(0) @binding(2) var<storage, read> proj: array<f32>; // [T, proj_stride]
@group(0) @binding(3) var<storage, read> gates: array<f32>; // [T, gates_stride]
@group(0) @binding(4) var<storage, read_write> v_first: array<f32>; // [T, stride]
@group(0) @binding(5) var<storage, read_write> state: array<f32>; // [pages, width, HEAD]
@group(0) @binding(6) var<storage, read_write> y: array<f32>; // [T, stride]

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if i >= params.width || id.y >= n_runs() { return; }
    let run = run_at(id.y);
    let head = i / HEAD * HEAD;

    var row: array<f32, HEAD>;
    for (var j = 0u; j < HEAD; j++) { row[j] = state[(run.page_in * params.width + i) * HEAD + j]; }
    for (var t = run.first_row; t < run.first_row + run.len; t++) {
        let at = t * params.proj_stride + head;
        let gate = t * params.gates_stride + head;

        var v = proj[t * params.proj_stride + params.v + i];
        if params.first_layer == 1u {
            v_first[t * params.stride + i] = v;
        } else {
            v += (v_first[t * params.stride + i] - v) * gates[t * params.gates_stride + params.mix + i];
        }

        var square = 0.0;
        var s = 0.0;
        for (var j = 0u; j < HEAD; j++) {
            let kk = proj[at + params.k + j] * vectors[head + j];
            square += kk * kk;
            s += row[j] * kk;
        }
        // kappa = kk * scale; s holds S kk, so that scale enters twice where b is multiplied in.
        let scale = 1.0 / max(sqrt(square), 1e-12);
        s *= scale;
        var sum = 0.0;
        for (var j = 0u; j < HEAD; j++) {
            let k = proj[at + params.k + j];
            let a = gates[gate + params.a + j];
            let b = k * vectors[head + j] * scale * a;
            let k_mod = k * (1.0 + (a - 1.0) * vectors[params.stride + head + j]);
            let next = row[j] * gates[gate + params.w + j] - s * b + v * k_mod;
            row[j] = next;
            sum += next * proj[at + params.r + j];
        }
        y[t * params.stride + i] = sum;
    }
    for (var j = 0u; j < HEAD; j++) { state[(run.page_out * params.width + i) * HEAD + j] = row[j]; }
}
