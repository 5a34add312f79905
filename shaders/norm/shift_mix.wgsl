// Norm, token shift and lerps:  x_hat = norm(x)   p = x_hat of the previous token   mixed[m] = x_hat + (p - x_hat) mix[m]
// One workgroup per token; each lane takes a part of the width. p comes from the row above or, in the first row of a run, from the state
// `shift`. Each workgroup also normalises the row above, which is cheaper than waiting for another workgroup. x_hat of a run's last row becomes
// the run's new state (`shift_out` in lib/cursor). If `with_inputs` is 1, x_hat and p are stored as two more planes of `mixed`.
// Slot reduce: lib/reduce, lib/reduce_lanes, lib/reduce_subgroup
import package::lib::cursor::{n_tokens, row_at, run_at};
import package::slot::reduce::{WG, reduce_sum};

struct Params {
    width: u32,
    // Stride of a row of x, vectors, shift and mixed, in floats.
    stride: u32,
    n_mixes: u32,
    // The number of rows in a plane of `mixed`.
    capacity: u32,
    // 1: planes n_mixes and n_mixes + 1 of `mixed` are x_hat and p.
    with_inputs: u32,
    eps: f32,
    // 1: layer norm; 0: RMS norm, whose bias b is zero.
    centred: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> vectors: array<f32>; // [2 + n_mixes, stride]: g, b, mixes
@group(0) @binding(2) var<storage, read> x: array<f32>; // [T, stride]
@group(0) @binding(3) var<storage, read_write> shift: array<f32>; // [2 pages, stride]
@group(0) @binding(4) var<storage, read_write> mixed: array<f32>; // [n_mixes (+ 2), capacity, stride]

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = group.x;
    if t >= n_tokens() { return; }
    let row = row_at(t);
    let run = run_at(row.run);
    let here = t * params.stride;
    // In the first row of a run, `above` is `here`, and its moments are not used.
    let above = select(here - params.stride, here, row.first == 1u);
    let n = f32(params.width);

    var sums = vec4(0.0);
    for (var i = lane; i < params.width; i += WG) { sums += vec4(x[here + i], x[above + i], 0.0, 0.0); }
    let mean = select(vec4(0.0), reduce_sum(sums, lane) / n, params.centred == 1u);
    var squares = vec4(0.0);
    for (var i = lane; i < params.width; i += WG) {
        let d = vec4(x[here + i], x[above + i], 0.0, 0.0) - mean;
        squares += d * d;
    }
    let scale = 1.0 / sqrt(reduce_sum(squares, lane) / n + params.eps);

    for (var i = lane; i < params.width; i += WG) {
        let g = vectors[i];
        let b = vectors[params.stride + i];
        let x_hat = (x[here + i] - mean.x) * scale.x * g + b;
        var p = (x[above + i] - mean.y) * scale.y * g + b;
        if row.first == 1u { p = shift[run.shift_in * params.stride + i]; }
        for (var m = 0u; m < params.n_mixes; m++) {
            mixed[(m * params.capacity + t) * params.stride + i] = x_hat + (p - x_hat) * vectors[(2u + m) * params.stride + i];
        }
        if params.with_inputs == 1u {
            mixed[(params.n_mixes * params.capacity + t) * params.stride + i] = x_hat;
            mixed[((params.n_mixes + 1u) * params.capacity + t) * params.stride + i] = p;
        }
        if row.last == 1u { shift[run.shift_out * params.stride + i] = x_hat; }
    }
}
