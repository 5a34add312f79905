// What every matrix-product kernel shares: a stack of segments, each with its own input, width, epilogue and output.
//   y[t, row] = activation(bias[row] + sum over k of W[row, k] x[t, k]),  or  y[t, row] += the same
// A segment is rows of one matrix; a workgroup works on one segment only.
import package::lib::activation::activate;

struct Params {
    n_segments: u32,
    // Strides of a row of x and of y, in units of 4 and of 1.
    x_stride: u32,
    y_stride: u32,
    // Rows are tokens (0) or outputs (1).
    of_outputs: u32,
    // 1: add to what y holds.
    accumulate: u32,
    // Workgroups in x before the grid folds into y.
    fold: u32,
    // Two entries a segment: (first block, rows, width / 8, first unit of weights), (x offset / 4, y offset, bias offset, activation)
    segments: array<vec4<u32>, 16>,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>; // [T, x_stride]
@group(0) @binding(2) var<storage, read> bias: array<f32>; // [rows] where a segment has one
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [T, y_stride]

const NO_BIAS: u32 = 0xffffffffu;

struct Segment {
    // This workgroup's first row within the segment.
    row: u32,
    rows: u32,
    k8: u32,
    unit: u32,
    x_at: u32,
    y_at: u32,
    bias_at: u32,
    activation: u32,
}

// The segment of a block of `block_rows` rows.
fn segment_of(block: u32, block_rows: u32) -> Segment {
    var at = 0u;
    for (var i = 1u; i < params.n_segments; i++) {
        if block >= params.segments[2u * i].x { at = i; }
    }
    let a = params.segments[2u * at];
    let b = params.segments[2u * at + 1u];
    return Segment((block - a.x) * block_rows, a.y, a.z, a.w, b.x, b.y, b.z, b.w);
}

fn finish(s: Segment, t: u32, row: u32, sum: f32) {
    var z = sum;
    if s.bias_at != NO_BIAS { z += bias[s.bias_at + row]; }
    z = activate(s.activation, z);
    let at = t * params.y_stride + s.y_at + row;
    if params.accumulate == 1u { z += y[at]; }
    y[at] = z;
}
