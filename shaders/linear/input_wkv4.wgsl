// The input of RWKV-4's output matrix: r wkv of every channel (formulas: rwkv/wkv4_step). Fills the shader slot `input`. This module suits runs
// of few tokens. For each token t, every lane computes the recurrence of its channels again, from the state before the run up to token t. For
// the last token of a run, the first workgroup stores the run's new state (`shift_out` in lib/cursor).
// Slot reduce: lib/reduce, lib/reduce_subgroup
import package::lib::cursor::{row_at, run_at};
import package::slot::reduce::WG;
import package::linear::stack::params;
import package::rwkv::wkv4_step::wkv4_step;

struct Input {
    width: u32,
    // Stride of a row of proj, in floats.
    proj_stride: u32,
    // Stride of a row of vectors, in floats.
    stride: u32,
    // Stride of a half page of the state, in floats.
    half_stride: u32,
    // Offsets of the columns r, k and v in a row of proj, in floats.
    r: u32,
    k: u32,
    v: u32,
    // 1 if this dispatch stores the state, otherwise 0.
    keeps: u32,
}

@group(0) @binding(1) var<storage, read> proj: array<f32>; // [T, proj_stride]
@group(0) @binding(5) var<storage, read> vectors: array<f32>; // [2, stride]: w, u
@group(0) @binding(6) var<storage, read_write> state: array<f32>; // [2 pages, 3 (a, b, p), width]

// The steps of the recurrence to compute: the rows of the first and the last token, and the offset in `state` of the state before the first
// token.
struct Source {
    first: u32,
    last: u32,
    state_at: u32,
}

fn begin(t: u32, x_at: u32, lane: u32, is_first: bool) -> Source {
    let row = row_at(t);
    let run = run_at(row.run);
    let source = Source(run.first_row, t, run.shift_in * params.input.half_stride);
    if !is_first || params.input.keeps == 0u || row.last == 0u { return source; }
    for (var c = lane; c < params.input.width; c += WG) {
        let after = recur(source, c);
        let to = run.shift_out * params.input.half_stride + c;
        state[to] = after.x;
        state[to + params.input.width] = after.y;
        state[to + 2u * params.input.width] = after.z;
    }
    return source;
}

// Computes the recurrence of channel c. Returns its state a, b and p after the last token, and the product r · wkv of the last token.
fn recur(source: Source, c: u32) -> vec4<f32> {
    let w = vectors[c];
    let u = vectors[params.input.stride + c];
    let width = params.input.width;
    let origin = source.state_at + c;
    var s = vec3(state[origin], state[origin + width], state[origin + 2u * width]);
    var y = 0.0;
    for (var t = source.first; t <= source.last; t++) {
        let at = t * params.input.proj_stride + c;
        let next = wkv4_step(s, w, u, proj[at + params.input.k], proj[at + params.input.v]);
        y = proj[at + params.input.r] * next.w;
        s = next.xyz;
    }
    return vec4(s, y);
}

fn input4(source: Source, i: u32) -> vec4<f32> {
    var four = vec4(0.0);
    for (var e = 0u; e < 4u; e++) {
        if 4u * i + e < params.input.width { four[e] = recur(source, 4u * i + e).w; }
    }
    return four;
}
