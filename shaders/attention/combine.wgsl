// Combines the partial results that attention/attend stored for a query:
//   o = sum over s of e^(m_s - m) o_s / sum over s of e^(m_s - m) l_s   m = max over s of m_s
// One workgroup per token, query head and tile of values; each lane takes some channels. For each workgroup s of attention/attend, o_s is the
// stored sum of p v, m_s the largest score and l_s the sum of p.
import package::lib::cursor::{n_tokens, row_at, run_at};
import package::constants::{LANES, VALUE_UNITS, BLOCK};

struct Params {
    // Stride of a row of splits, in floats: `y_stride` of attention/attend.
    split_stride: u32,
    // The next four fields match the fields of the same names in attention/attend.
    largest: u32,
    total: u32,
    split_blocks: u32,
    n_splits: u32,
    // Stride of a row of y, in floats.
    stride: u32,
    // 1: adds the result to y; 0: overwrites y.
    adds: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> splits: array<f32>; // [T, n_splits, split_stride]
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [T, stride]

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = group.x;
    if t >= n_tokens() { return; }
    let head = group.y;
    let run = run_at(row_at(t).run);
    let n = (run.position + t - run.first_row) / (BLOCK * params.split_blocks) + 1u;
    let at = t * params.n_splits * params.split_stride;
    var m = splits[at + params.largest + head];
    for (var s = 1u; s < n; s++) { m = max(m, splits[at + s * params.split_stride + params.largest + head]); }
    for (var c = lane; c < 8u * VALUE_UNITS; c += LANES) {
        var sum = 0.0;
        var total = 0.0;
        for (var s = 0u; s < n; s++) {
            let part = at + s * params.split_stride;
            let scale = exp(splits[part + params.largest + head] - m);
            sum += scale * splits[part + head * 8u * VALUE_UNITS + c];
            total += scale * splits[part + params.total + head];
        }
        let to = t * params.stride + head * 8u * VALUE_UNITS + c;
        y[to] = select(0.0, y[to], params.adds == 1u) + sum / total;
    }
}
