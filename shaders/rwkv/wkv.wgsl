// The recurrence of RWKV-5, 6 and 7. Eagle and Finch paper, section 4; RWKV-7 paper, eq. 17. S[i, j] is the state of a head, i a channel of
// the value, j a channel of the key:
//   v5, v6 (DELTA 0):  y[i] = sum over j of S[i, j] r[j] + bonus[i]   then  S[i, j] = S[i, j] w[j] + v[i] k[j]
//   v7 (DELTA 1):      s = S kappa   S[i, j] = S[i, j] w[j] - s[i] b[j] + v[i] k[j]   y[i] = sum over j of S[i, j] r[j]
// rwkv/wkv6_prepare and rwkv/wkv7_prepare compute the vectors of a token. The vectors of a head are in `feed` in this order: r, w, k in v5 and
// v6; kappa, w, b, k, r in v7. One workgroup per LANES rows of a head and run, one lane per row of the state (head, value index i). The lane
// keeps the row in registers and takes the run's tokens in order. One dispatch takes tokens first_row .. first_row + n_rows of the step, and the
// rows of the state from row `first` on. Row `first` must be the first row of a head. If the run began in an earlier dispatch, its state is
// already in the page that it writes. After every token, the state is rounded to the format in which it is stored. So results do not depend on
// how a text is cut into steps.
// A row of v5 and v6 may be too long for the registers of a lane. Then several dispatches take some of the columns each. This is possible because the
// columns of these versions are independent, and y is the sum over all dispatches.
// Slot feed: rwkv/feed, rwkv/feed_window
// Slot state: rwkv/state_f16, rwkv/state_f32
import package::lib::cursor::{n_runs, run_at};
import package::slot::feed::{LANES, STAGE, fed, prefetch, publish};
import package::slot::state::{load4, store4, kept};
import package::constants::{HEAD, ROW, QUARTERS, VECTORS, DELTA};

// The number of workgroups of a head.
const PARTS: u32 = (HEAD + LANES - 1u) / LANES;

struct Params {
    // Index of the first token of this dispatch.
    first_row: u32,
    // The number of tokens of this dispatch.
    n_rows: u32,
    // The number of rows of the state in all heads together.
    width: u32,
    // Index of the first row of the state that this dispatch updates.
    first: u32,
    // Stride of a token in feed, in vectors of 4 floats.
    feed_stride: u32,
    // Stride of a token in values, in floats.
    values_stride: u32,
    // Stride of a token in y, in floats.
    stride: u32,
    // Offset of the column `bonus` in a row of values, in floats.
    bonus: u32,
    // Index in `feed` of the first element that this dispatch reads: the first vector of its first token and head.
    feed_at: u32,
    // The first column that this dispatch takes, in vectors of 4 floats. It takes QUARTERS of the ROW vectors of a row.
    column: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> values: array<f32>; // [T, 2 (v, bonus)]
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // [T, stride]

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if group.y >= n_runs() { return; }
    let run = run_at(group.y);
    let begin = max(run.first_row, params.first_row);
    let end = min(run.first_row + run.len, params.first_row + params.n_rows);
    if begin >= end { return; }

    // Lanes after the last row of the head repeat this row. Their results are not stored.
    let head = group.x / PARTS;
    let row = group.x % PARTS * LANES + lane;
    let inside = row < HEAD;
    let i = params.first + head * HEAD + min(row, HEAD - 1u);
    let source = (select(run.page_out, run.page_in, begin == run.first_row) * params.width + i) * ROW + params.column;
    unroll q in QUARTERS { var row_$q = load4(source + $qu); }

    let head_at = params.feed_at + head * VECTORS * ROW;
    prefetch(head_at + (begin - params.first_row) * params.feed_stride, params.feed_stride, end - begin, lane);
    // Loaded one token ahead, so that the lane does not wait for memory.
    var v_next = values[begin * params.values_stride + i];
    for (var first = begin; first < end; first += STAGE) {
        let at = head_at + (first - params.first_row) * params.feed_stride;
        publish(at, params.feed_stride, lane);
        let n = min(end - first, STAGE);
        prefetch(at + STAGE * params.feed_stride, params.feed_stride, end - first - n, lane);
        for (var j = 0u; j < n; j++) {
            // The vectors of a token are r, w, k in v5 and v6, and kappa, w, b, k, r in v7.
            let t = first + j;
            let v = v_next;
            v_next = values[min(t + 1u, end - 1u) * params.values_stride + i];
            var sums = vec4(0.0);
            unroll q in QUARTERS { sums += row_$q * fed(j, $qu); }
            let s = dot(sums, vec4(1.0));
            var o = 0.0;
            if DELTA == 0u {
                unroll q in QUARTERS { row_$q = row_$q * fed(j, QUARTERS + $qu) + v * fed(j, 2u * QUARTERS + $qu); }
                if params.column == 0u { o = s + values[t * params.values_stride + params.bonus + i]; } else { o = s + y[t * params.stride + i]; }
            } else {
                sums = vec4(0.0);
                unroll q in QUARTERS {
                    row_$q = row_$q * fed(j, QUARTERS + $qu) - s * fed(j, 2u * QUARTERS + $qu) + v * fed(j, 3u * QUARTERS + $qu);
                    sums += row_$q * fed(j, 4u * QUARTERS + $qu);
                }
                o = dot(sums, vec4(1.0));
            }
            if inside { y[t * params.stride + i] = o; }
            unroll q in QUARTERS { row_$q = kept(row_$q); }
        }
    }

    if !inside { return; }
    let to = (run.page_out * params.width + i) * ROW + params.column;
    unroll q in QUARTERS { store4(to + $qu, row_$q); }
}
