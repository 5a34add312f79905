// RWKV-4 recurrence, one lane a channel, tokens in sequence; numerator a and denominator b carry the factor exp(-p), so that
// nothing overflows:
//   q = max(p, u + k)   y = r (exp(p - q) a + exp(u + k - q) v) / (exp(p - q) b + exp(u + k - q))
//   q = max(p + w, k)   a = exp(p + w - q) a + exp(k - q) v   b = exp(p + w - q) b + exp(k - q)   p = q
import package::lib::cursor::{n_runs, run_at};

struct Params {
    width: u32,
    proj_stride: u32,
    // Columns of proj.
    r: u32,
    k: u32,
    v: u32,
    // Of vectors and of y.
    stride: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> vectors: array<f32>; // [2, stride]: w, u
@group(0) @binding(2) var<storage, read> proj: array<f32>; // [T, proj_stride]
@group(0) @binding(3) var<storage, read_write> state: array<f32>; // [pages, 3 (a, b, p), width]
@group(0) @binding(4) var<storage, read_write> y: array<f32>; // [T, stride]

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = id.x;
    if c >= params.width || id.y >= n_runs() { return; }
    let run = run_at(id.y);
    let w = vectors[c];
    let u = vectors[params.stride + c];
    let source = run.page_in * 3u * params.width + c;
    var a = state[source];
    var b = state[source + params.width];
    var p = state[source + 2u * params.width];
    for (var t = run.first_row; t < run.first_row + run.len; t++) {
        let at = t * params.proj_stride + c;
        let k = proj[at + params.k];
        let v = proj[at + params.v];
        var q = max(p, u + k);
        var before = exp(p - q);
        var now = exp(u + k - q);
        y[t * params.stride + c] = proj[at + params.r] * (before * a + now * v) / (before * b + now);
        q = max(p + w, k);
        before = exp(p + w - q);
        now = exp(k - q);
        a = before * a + now * v;
        b = before * b + now;
        p = q;
    }
    let to = run.page_out * 3u * params.width + c;
    state[to] = a;
    state[to + params.width] = b;
    state[to + 2u * params.width] = p;
}
