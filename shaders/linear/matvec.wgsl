// Matrix times one vector a workgroup: four rows, the width shared by all lanes, then one reduction.
import package::linear::stack::{params, x, segment_of};
import package::linear::epilogue::finish;
import package::lib::cursor::n_rows;
import package::lib::reduce::{WG, reduce_sum};
import package::weight::f16::weight8;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let s = segment_of(group.x + group.y * params.fold, 4u);
    let t = group.z;
    if s.row >= s.rows || t >= n_rows(params.of_outputs) { return; }

    // Rows past the end repeat the last one and are not stored.
    let rows = min(vec4(s.row) + vec4(0u, 1u, 2u, 3u), vec4(s.rows - 1u));
    let w_at = s.unit + rows * s.k8;
    let x_at = t * params.x_stride + s.x_at;
    var sums = vec4(0.0);
    for (var k = lane; k < s.k8; k += WG) {
        let xa = x[x_at + 2u * k];
        let xb = x[x_at + 2u * k + 1u];
        for (var r = 0u; r < 4u; r++) {
            let w = weight8(w_at[r] + k);
            sums[r] += dot(w[0], xa) + dot(w[1], xb);
        }
    }
    let total = reduce_sum(sums, lane);
    if lane < 4u && s.row + lane < s.rows { finish(s.epilogue, t, s.row + lane, total[lane]); }
}
