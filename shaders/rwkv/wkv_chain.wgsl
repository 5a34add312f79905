// The part of the recurrence of RWKV-5, 6 and 7 that needs the state: takes the spans of each run in order. The kernel rwkv/wkv_span has
// prepared every span (formulas and names: rwkv/wkv6_span, rwkv/wkv7_span). Per span, with the state S of a head, [value][key]:
//   v5, v6 (DELTA 0):  y[t] += S Q[t]                       S = S diag(P) + sum over t of v[t] (k D)[t]^T
//   v7 (DELTA 1):      y[t] += S Q[t]   s[t] = S W[t] + X[t]   S = S diag(P) - sum over t of s[t] (b D)[t]^T + sum over t of v[t] (k D)[t]^T
// One workgroup per ROWS rows of a head and run. P is P[SPAN], and (k D)[t] is k[t] D(t, SPAN). A lane keeps a tile of the state in registers:
// four rows from row 4 (lane / 16) on, four columns from column 4 (lane % 16) on. The lane also computes y and s of token lane % 16 for these
// four rows.
// After every span, the state is rounded to the format in which it is stored. The kernel rwkv/wkv rounds the state after every token.
// Slot state: rwkv/state_f16, rwkv/state_f32
import package::lib::cursor::{n_runs, run_at};
import package::rwkv::spans::SPAN;
import package::slot::state::{load4, store4, kept};
import package::constants::{HEAD, QUARTERS, VECTORS, DELTA, AHEAD};

const LANES: u32 = 64u;
const ROWS: u32 = 16u;
// The number of workgroups of a head.
const PARTS: u32 = (HEAD + ROWS - 1u) / ROWS;
// The number of vectors per token that a product reads: one in v5 and v6 (Q or k D), two in v7 (W and Q, or b D and k D).
const SIDES: u32 = 1u + DELTA;
// Stride of a staged row in vectors of 4 floats: one more than a row, so that rows begin in different banks of the memory.
const STRIDE: u32 = 17u;

struct Params {
    // The number of rows of the state in all heads together.
    width: u32,
    // Stride of a token in feed, in vectors of 4 floats.
    feed_stride: u32,
    // Strides of a token in values and y, in floats.
    values_stride: u32,
    stride: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> values: array<f32>; // [T, 2 (v, bonus)]
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // [T, stride]
@group(0) @binding(3) var<storage, read> feed: array<vec4<f32>>; // [T, H, VECTORS, QUARTERS]

// W and Q of the span's tokens, later b D and k D, [SIDES, SPAN, STRIDE]. v5 and v6 have only Q, later k D.
var<workgroup> staged: array<vec4<f32>, SIDES * SPAN * STRIDE>;
// The rows of the state, [ROWS, STRIDE].
var<workgroup> rows: array<vec4<f32>, ROWS * STRIDE>;
// -s and v of each token, [SIDES, SPAN, ROWS / 4]. v5 and v6 have only v.
var<workgroup> factors: array<vec4<f32>, SIDES * SPAN * ROWS / 4u>;
unroll j in 8 { var<private> next_$j: vec4<f32>; }

// Loads the lane's elements of the tokens `first` .. `end`, at most SPAN: elements of the vector with the index `one`, and in v7 also of the
// vector with the index `two`. `at` is the first element of the head. Beyond the end, loads repeat the last token or element, because branches
// would make loads wait for each other.
fn prefetch(first: u32, end: u32, at: u32, one: u32, two: u32, lane: u32) {
    unroll j in 8 {
        if $ju < 4u * SIDES {
            let t = min(first + lane / 16u + $ju % 4u * 4u, end - 1u);
            next_$j = feed[at + t * params.feed_stride + select(one, two, $ju >= 4u) * QUARTERS + min(lane % 16u, QUARTERS - 1u)];
        }
    }
}

// Writes the elements that `prefetch` has loaded to workgroup memory.
fn publish(lane: u32) {
    unroll j in 8 { if $ju < 4u * SIDES { staged[(lane / 16u + $ju * 4u) * STRIDE + lane % 16u] = next_$j; } }
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if group.y >= n_runs() { return; }
    let run = run_at(group.y);
    let end = run.first_row + run.len;
    let head = group.x / PARTS;
    let q = lane % 16u;
    let quarter = lane / 16u;
    let i = group.x % PARTS * ROWS + 4u * quarter; // The first of the lane's four rows in the head.
    let at = head * VECTORS * QUARTERS;
    let column = min(q, QUARTERS - 1u);
    unroll m in 4 {
        let row_$m = head * HEAD + min(i + $mu, HEAD - 1u);
        var tile_$m = load4((run.page_in * params.width + row_$m) * QUARTERS + column);
    }
    prefetch(run.first_row, end, at, 0u, 4u, lane);
    for (var first = run.first_row; first < end; first += SPAN) {
        workgroupBarrier();
        publish(lane);
        unroll m in 4 { rows[(4u * quarter + $mu) * STRIDE + q] = tile_$m; }
        workgroupBarrier();
        prefetch(first, end, at, 2u, 3u, lane);
        // The lane's token. Lanes after the last token repeat this token. Their results are not used.
        let t = min(first + q, end - 1u);
        unroll m in 4 {
            let v_$m = values[t * params.values_stride + row_$m];
            let o_$m = y[t * params.stride + row_$m];
        }
        var x = vec4(0.0);
        if DELTA == 1u { x = feed[at + t * params.feed_stride + QUARTERS + min(i / 4u, QUARTERS - 1u)] * select(1.0, 0.0, q == 0u); }
        let decay = feed[at + first * params.feed_stride + QUARTERS + column];

        unroll m in 4 { var removed_$m = 0.0; var read_$m = 0.0; }
        for (var j = 0u; j < QUARTERS; j += AHEAD) { unroll a in AHEAD { {
            let w_j = staged[q * STRIDE + j + $au];
            let q_j = staged[((SIDES - 1u) * SPAN + q) * STRIDE + j + $au];
            unroll m in 4 { {
                let row = rows[(4u * quarter + $mu) * STRIDE + j + $au];
                unroll c in 4 {
                    if DELTA == 1u { removed_$m += row[$c] * w_j[$c]; }
                    read_$m += row[$c] * q_j[$c];
                }
            } }
        } } }
        let is_token = first + q < end;
        if is_token { unroll m in 4 { if i + $mu < HEAD { y[t * params.stride + row_$m] = o_$m + read_$m; } } }
        if DELTA == 1u {
            x += vec4(removed_0, removed_1, removed_2, removed_3);
            factors[4u * q + quarter] = select(vec4(0.0), -x, is_token);
        }
        factors[4u * ((SIDES - 1u) * SPAN + q) + quarter] = select(vec4(0.0), vec4(v_0, v_1, v_2, v_3), is_token);
        workgroupBarrier();
        publish(lane);
        workgroupBarrier();
        prefetch(min(first + SPAN, end - 1u), end, at, 0u, 4u, lane);
        unroll m in 4 { tile_$m *= decay; }
        for (var u = 0u; u < SIDES * SPAN; u += 8u) { unroll a in 8 { {
            let key = staged[(u + $au) * STRIDE + q];
            let factor = factors[4u * (u + $au) + quarter];
            unroll m in 4 { tile_$m += factor[$m] * key; }
        } } }
        unroll m in 4 { tile_$m = kept(tile_$m); }
    }

    unroll m in 4 { if i + $mu < HEAD && q < QUARTERS { store4((run.page_out * params.width + row_$m) * QUARTERS + q, tile_$m); } }
}
