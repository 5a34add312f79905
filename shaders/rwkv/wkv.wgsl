// The recurrence of RWKV-5, 6 and 7. Eagle and Finch paper, section 4; RWKV-7 paper, eq. 17. S[i, j] is the state of a head, i a channel of
// the value, j of the key:
//   v5, v6 (DELTA 0):  y[i] = sum over j of S[i, j] r[j] + bonus[i]   then  S[i, j] = S[i, j] w[j] + v[i] k[j]
//   v7 (DELTA 1):      s = S kappa   S[i, j] = S[i, j] w[j] - s b[j] + v[i] k[j]   y[i] = sum over j of S[i, j] r[j]
// One lane per row of the state (head, value index i) and run. The lane keeps the row in registers and takes the run's tokens in order. One
// dispatch takes tokens first_row .. first_row + n_rows of the step, and rows first .. end of the state. Row `first` must be the first row
// of a head. A run may begin in an earlier dispatch. The run's state is then read from the page that the run writes.
// After every token, the state is rounded to the format in which it is stored. So results do not depend on how a text is cut into steps.
import package::lib::cursor::{n_runs, run_at};
import package::slot::feed::feed;
import package::slot::state::{load4, store4, kept};
import package::constants::{HEAD, QUARTERS, VECTORS, DELTA};

struct Params {
    // Index of the first token of this dispatch.
    first_row: u32,
    // The number of tokens of this dispatch.
    n_rows: u32,
    // The number of rows of the state in all heads together.
    width: u32,
    // Index of the first row of the state that this dispatch updates.
    first: u32,
    // Index of the row after the last row of the state that this dispatch updates.
    end: u32,
    // Stride of a token in feed, in vectors of 4 floats.
    feed_stride: u32,
    // Stride of a token in values, in floats.
    values_stride: u32,
    // Stride of a token in y, in floats.
    stride: u32,
    // Offset of the column bonus in a row of values, in floats.
    bonus: u32,
    // Offset of this dispatch's first vector in feed, in vectors of 4 floats.
    feed_at: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> values: array<f32>; // [T, 2 (v, bonus)]
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // [T, stride]

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = params.first + id.x;
    if i >= params.end || id.y >= n_runs() { return; }
    let run = run_at(id.y);
    let begin = max(run.first_row, params.first_row);
    let end = min(run.first_row + run.len, params.first_row + params.n_rows);
    if begin >= end { return; }

    let source = (select(run.page_out, run.page_in, begin == run.first_row) * params.width + i) * QUARTERS;
    unroll q in QUARTERS { var row_$q = load4(source + $qu); }

    let head = params.feed_at + (i / HEAD - params.first / HEAD) * VECTORS * QUARTERS;
    for (var t = begin; t < end; t++) {
        // The vectors of a token in feed are r, w, k in v5 and v6, and kappa, w, b, k, r in v7.
        let at = head + (t - params.first_row) * params.feed_stride;
        let v = values[t * params.values_stride + i];
        var sums = vec4(0.0);
        unroll q in QUARTERS { sums += row_$q * feed[at + $qu]; }
        let s = dot(sums, vec4(1.0));
        if DELTA == 0u {
            unroll q in QUARTERS { row_$q = row_$q * feed[at + QUARTERS + $qu] + v * feed[at + 2u * QUARTERS + $qu]; }
            y[t * params.stride + i] = s + values[t * params.values_stride + params.bonus + i];
        } else {
            sums = vec4(0.0);
            unroll q in QUARTERS {
            row_$q = row_$q * feed[at + QUARTERS + $qu] - s * feed[at + 2u * QUARTERS + $qu] + v * feed[at + 3u * QUARTERS + $qu];
            sums += row_$q * feed[at + 4u * QUARTERS + $qu];
            }
            y[t * params.stride + i] = dot(sums, vec4(1.0));
        }
        unroll q in QUARTERS { row_$q = kept(row_$q); }
    }

    let to = (run.page_out * params.width + i) * QUARTERS;
    unroll q in QUARTERS { store4(to + $qu, row_$q); }
}
