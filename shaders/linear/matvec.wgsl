// Matrix times one vector a workgroup: 4 GROUPS rows, the width shared by all lanes, then one reduction for every four.
import package::linear::stack::{params, segment_of};
import package::linear::input::{begin, input4};
import package::linear::epilogue::finish;
import package::lib::cursor::n_rows;
import package::lib::reduce::{WG, reduce_sum};
import package::weight::f16::weight8;
import package::constants::GROUPS;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let s = segment_of(group.x + group.y * params.fold, 4u * GROUPS);
    let t = group.z;
    if s.row >= s.rows || t >= n_rows(params.of_outputs) { return; }
    begin(t, s.x_at, lane, group.x + group.y == 0u);

    // Rows past the end repeat the last one and are not stored.
    unroll q in GROUPS {
    let w_at_$q = s.unit + min(vec4(s.row + 4u * $qu) + vec4(0u, 1u, 2u, 3u), vec4(s.rows - 1u)) * s.k8;
    var sums_$q = vec4(0.0);
    }
    for (var k = lane; k < s.k8; k += WG) {
        let xa = input4(2u * k);
        let xb = input4(2u * k + 1u);
        unroll q in GROUPS { unroll r in 4 {
        {
            let w = weight8(w_at_$q[$r] + k);
            sums_$q[$r] += dot(w[0], xa) + dot(w[1], xb);
        }
        } }
    }
    unroll q in GROUPS {
    {
        let total = reduce_sum(sums_$q, lane);
        let row = s.row + 4u * $qu + lane;
        if lane < 4u && row < s.rows { finish(s.epilogue, t, row, total[lane]); }
    }
    }
}
