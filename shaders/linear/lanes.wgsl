// Matrix product without barriers: every lane owns ROWS rows for TOKENS tokens and walks the whole width.
// For adapters of type Cpu, where a barrier is a coroutine switch and a load of weights is the cost to share.
// The order of the sum does not depend on ROWS or TOKENS.
import package::linear::stack::{params, x, segment_of, finish};
import package::lib::cursor::n_rows;
import package::weight::f16::weight8;
import package::constants::{ROWS, TOKENS};

const LANES: u32 = 8u;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let s = segment_of(group.x + group.y * params.fold, LANES * ROWS);
    let n = n_rows(params.of_outputs);
    let t0 = group.z * TOKENS;
    let row0 = s.row + lane * ROWS;
    if row0 >= s.rows || t0 >= n { return; }

    // Rows and tokens past the end repeat the last one; only whole ones are stored.
    var w_at: array<u32, ROWS>;
    for (var r = 0u; r < ROWS; r++) { w_at[r] = s.unit + min(row0 + r, s.rows - 1u) * s.k8; }
    var x_at: array<u32, TOKENS>;
    for (var t = 0u; t < TOKENS; t++) { x_at[t] = min(t0 + t, n - 1u) * params.x_stride + s.x_at; }

    var sums: array<f32, ROWS * TOKENS>;
    for (var k = 0u; k < s.k8; k++) {
        var w: array<mat2x4<f32>, ROWS>;
        for (var r = 0u; r < ROWS; r++) { w[r] = weight8(w_at[r] + k); }
        for (var t = 0u; t < TOKENS; t++) {
            let xa = x[x_at[t] + 2u * k];
            let xb = x[x_at[t] + 2u * k + 1u];
            for (var r = 0u; r < ROWS; r++) {
                sums[r * TOKENS + t] += dot(w[r][0], xa) + dot(w[r][1], xb);
            }
        }
    }
    for (var t = 0u; t < min(TOKENS, n - t0); t++) {
        for (var r = 0u; r < min(ROWS, s.rows - row0); r++) {
            finish(s, t0 + t, row0 + r, sums[r * TOKENS + t]);
        }
    }
}
