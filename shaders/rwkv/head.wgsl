// The time mix of RWKV-5, 6 or 7 from projections to gated output, for few tokens (formulas: rwkv/wkv, rwkv/wkv_out). One workgroup per
// head and run; one lane per channel. A lane keeps the state row of its channel in registers. A module in the shader slot `head` prepares
// each token: rwkv/head6 or rwkv/head7.
// Slot reduce: lib/reduce, lib/reduce_subgroup
// Slot head: rwkv/head6, rwkv/head7
// Slot state: rwkv/state_f16, rwkv/state_f32
import package::lib::cursor::{n_runs, run_at};
import package::slot::reduce::{WG, reduce_sum};
import package::rwkv::head_params::{params, vectors, feed};
import package::slot::head::{Token, prepare};
import package::slot::state::{load4, store4, kept};
import package::constants::{HEAD, QUARTERS, DELTA};

@group(0) @binding(4) var<storage, read_write> y: array<f32>; // [T, stride]

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if group.y >= n_runs() { return; }
    let run = run_at(group.y);
    // Lanes after the last channel of the head repeat this channel. Their results are not used.
    let inside = lane < HEAD;
    let c = group.x * HEAD + min(lane, HEAD - 1u);

    let source = (run.page_in * params.width + c) * QUARTERS;
    unroll q in QUARTERS { var row_$q = load4(source + $qu); }

    let n = f32(HEAD);
    for (var t = run.first_row; t < run.first_row + run.len; t++) {
        let token = prepare(t, c, lane, inside);
        workgroupBarrier();
        var sums = vec4(0.0);
        unroll q in QUARTERS { sums += row_$q * feed[$qu]; }
        let s = dot(sums, vec4(1.0));
        var o = 0.0;
        if DELTA == 0u {
            unroll q in QUARTERS { row_$q = row_$q * feed[QUARTERS + $qu] + token.v * feed[2u * QUARTERS + $qu]; }
            o = s + token.bonus;
        } else {
            sums = vec4(0.0);
            unroll q in QUARTERS {
                row_$q = row_$q * feed[QUARTERS + $qu] - s * feed[2u * QUARTERS + $qu] + token.v * feed[3u * QUARTERS + $qu];
                sums += row_$q * feed[4u * QUARTERS + $qu];
            }
            o = dot(sums, vec4(1.0));
        }
        unroll q in QUARTERS { row_$q = kept(row_$q); }
        if params.is_normed == 1u {
            let mean = reduce_sum(vec4(select(0.0, o, inside)), lane).x / n;
            let d = select(0.0, o - mean, inside);
            let scale = 1.0 / sqrt(reduce_sum(vec4(d * d), lane).x / n + params.eps);
            o = d * scale * vectors[params.norm + c] + vectors[params.norm + params.stride + c];
        } else {
            // All lanes must have read `feed` before the next token overwrites it. With a norm, the barriers of `reduce_sum` ensure this.
            workgroupBarrier();
        }
        if DELTA == 1u { o += token.bonus; }
        if inside { y[t * params.stride + c] = o * token.gate; }
    }

    if !inside { return; }
    let to = (run.page_out * params.width + c) * QUARTERS;
    unroll q in QUARTERS { store4(to + $qu, row_$q); }
}
