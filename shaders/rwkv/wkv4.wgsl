// The recurrence of RWKV-4:  y = r wkv  (formulas: rwkv/wkv4_step)
// One lane per channel and run. The lane takes the run's tokens in order.
import package::lib::cursor::{n_runs, run_at};
import package::rwkv::wkv4_step::wkv4_step;

struct Params {
    width: u32,
    // Stride of a row of proj, in floats.
    proj_stride: u32,
    // Offsets of the columns r, k and v in a row of proj, in floats.
    r: u32,
    k: u32,
    v: u32,
    // Stride of a row of vectors and y, in floats.
    stride: u32,
    // Stride of a half page of the state, in floats.
    half_stride: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> vectors: array<f32>; // [2, stride]: w, u
@group(0) @binding(2) var<storage, read> proj: array<f32>; // [T, proj_stride]
@group(0) @binding(3) var<storage, read_write> state: array<f32>; // [2 pages, 3 (a, b, p), width]
@group(0) @binding(4) var<storage, read_write> y: array<f32>; // [T, stride]

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let c = id.x;
    if c >= params.width || id.y >= n_runs() { return; }
    let run = run_at(id.y);
    let w = vectors[c];
    let u = vectors[params.stride + c];
    let source = run.shift_in * params.half_stride + c;
    var s = vec3(state[source], state[source + params.width], state[source + 2u * params.width]);
    for (var t = run.first_row; t < run.first_row + run.len; t++) {
        let at = t * params.proj_stride + c;
        let next = wkv4_step(s, w, u, proj[at + params.k], proj[at + params.v]);
        y[t * params.stride + c] = proj[at + params.r] * next.w;
        s = next.xyz;
    }
    let to = run.shift_out * params.half_stride + c;
    state[to] = s.x;
    state[to + params.width] = s.y;
    state[to + 2u * params.width] = s.z;
}
