// Parameters, bindings and memory that rwkv/wkv_span shares with the modules of its shader slot `rule`. One lane per column of the state. Lane i
// has column i and row i.
// Slot rule: rwkv/wkv6_span, rwkv/wkv7_span
import package::rwkv::spans::{Span, SPAN};
import package::slot::rule::{Side};
import package::constants::{HEAD, QUARTERS, VECTORS};

// The number of floats of a vector in feed, with padding.
const WIDTH: u32 = 4u * QUARTERS;
const LANES: u32 = 64u;
// Stride of a row of `left` and `right`: one more than the lanes, so that rows begin in different banks of the memory.
const STRIDE: u32 = LANES + 1u;

struct Params {
    // Strides of a token in feed, values and y, in floats.
    feed_stride: u32,
    values_stride: u32,
    stride: u32,
    // Offset of the column bonus in a row of values, in floats.
    bonus: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> values: array<f32>; // [T, 2 (v, bonus)]
@group(0) @binding(2) var<storage, read_write> feed: array<f32>; // [T, H, VECTORS, WIDTH]
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [T, stride]

// The factors of the later tokens (`left`) and of the earlier tokens (`right`) in the sums of one level: rows of 64 columns, [8, STRIDE]. At the
// end, the sums of all pairs of tokens, [SPAN, SPAN].
var<workgroup> left: array<Side, 8u * STRIDE>;
var<workgroup> right: array<Side, 8u * STRIDE>;
// The decay of the lane's column, for each token of the span.
var<private> w: array<f32, SPAN>;

// The index in feed of the lane's column of the first vector, for the first token of the span. Lanes after the last column repeat this column.
var<private> column_at: u32;
// Stride of a token in feed, in floats.
var<private> feed_stride: u32;
// The index in y of the lane's row, for the first token of the span. Lanes after the last row repeat this row.
var<private> y_at: u32;
var<private> y_stride: u32;

fn begin(span: Span, head: u32, lane: u32) {
    feed_stride = params.feed_stride;
    y_stride = params.stride;
    column_at = span.first * feed_stride + head * VECTORS * WIDTH + min(lane, WIDTH - 1u);
    y_at = span.first * y_stride + head * HEAD + min(lane, HEAD - 1u);
}

// Loads the lane's column of a vector for token t of the span. Returns `missing` for missing tokens and columns. Has no branches, so that no load
// waits for another load.
fn loaded(n: u32, t: u32, vector: u32, lane: u32, missing: f32) -> f32 {
    let x = feed[column_at + min(t, n - 1u) * feed_stride + vector * WIDTH];
    return select(missing, x, t < n && (WIDTH == LANES || lane < WIDTH));
}

// Loads the lane's row of v or of the bonus for token t of the span. `at` is the offset of v or of the bonus in a row of `values`. Returns 0 for
// missing tokens and rows.
fn value(span: Span, t: u32, head: u32, lane: u32, at: u32) -> f32 {
    let x = values[(span.first + min(t, span.n - 1u)) * params.values_stride + at + head * HEAD + min(lane, HEAD - 1u)];
    return select(0.0, x, t < span.n && lane < HEAD);
}

fn store(t: u32, vector: u32, lane: u32, x: f32) {
    if WIDTH == LANES || lane < WIDTH { feed[column_at + t * feed_stride + vector * WIDTH] = x; }
}

fn store_y(t: u32, lane: u32, x: f32) {
    if HEAD == LANES || lane < HEAD { y[y_at + t * y_stride] = x; }
}
