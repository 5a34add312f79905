// Matrix times up to 16 vectors:  y[t, row] = epilogue(sum over k of W[row, k] x[t, k])
// One workgroup per 4 GROUPS rows and BLOCKS x TOKENS tokens. Each lane multiplies a part of the width. One reduction adds up the sums of
// all lanes for four rows of a token. Weights are read once for all tokens. The inputs of TOKENS tokens are in registers at a time. For the
// next TOKENS tokens, the weights are still in registers or in the nearest cache. The order of a token's sum is the same for all values of
// GROUPS, BLOCKS and TOKENS.
import package::linear::stack::{params, segment_of};
import package::slot::input::{begin, input4};
import package::linear::epilogue::finish;
import package::lib::cursor::n_rows;
import package::slot::reduce::{WG, reduce_sum};
import package::matrix::place::Place;
import package::matrix::quads::quad0;
import package::slot::scale::{columns, dot4, of_rows};
import package::constants::{GROUPS, BLOCKS, TOKENS};

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let s = segment_of(group.x + group.y * params.fold, 4u * GROUPS);
    let n = n_rows(params.of_outputs);
    let t0 = group.z * BLOCKS * TOKENS;
    if s.row >= s.rows || t0 >= n { return; }

    let place = Place(s.codes, s.scales, s.k8, s.rows);
    // Surplus quads of rows repeat the last quad, and surplus tokens repeat the last token. Their results are not stored.
    unroll b in BLOCKS { unroll t in TOKENS {
    let source_$b_$t = begin(min(t0 + $bu * TOKENS + $tu, n - 1u), s.x_at, lane, group.x + group.y == 0u);
    unroll q in GROUPS { var sums_$q_$b_$t = vec4(0.0); }
    } }
    unroll q in GROUPS {
    let row_$q = min(s.row + 4u * $qu, (s.rows - 1u) / 4u * 4u);
    }
    for (var k = lane; k < s.k8; k += WG) {
        unroll b in BLOCKS {
        {
            unroll t in TOKENS {
            let x_$t = mat2x4<f32>(input4(source_$b_$t, 2u * k), input4(source_$b_$t, 2u * k + 1u));
            }
            unroll q in GROUPS {
            {
                let w = quad0(place, row_$q, k);
                let c = columns(place, row_$q, row_$q, k);
                let r = of_rows(place, row_$q, k);
                unroll t in TOKENS { sums_$q_$b_$t += r * dot4(w, c, x_$t); }
            }
            }
        }
        }
    }
    // The sums are copied to an array, so that a loop can call the reduction and the epilogue. The compiled shader then has their code
    // once.
    var sums: array<vec4<f32>, GROUPS * BLOCKS * TOKENS>;
    unroll b in BLOCKS { unroll t in TOKENS { unroll q in GROUPS {
    sums[($bu * TOKENS + $tu) * GROUPS + $qu] = sums_$q_$b_$t;
    } } }
    for (var i = 0u; i < GROUPS * BLOCKS * TOKENS; i++) {
        let total = reduce_sum(sums[i], lane);
        let row = s.row + 4u * (i % GROUPS) + lane;
        let token = t0 + i / GROUPS;
        if lane < 4u && row < s.rows && token < n { finish(s.epilogue, token, row, total[lane]); }
    }
}
