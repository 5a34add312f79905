// The parameters that all kernels of matrix products share: a stack of segments, each with its own input, width, epilogue and output.
//   y[t, row] = epilogue(sum over k of W[row, k] x[t, k])
// A segment is a range of rows of one matrix. A workgroup works on one segment only. Fills the shader slot `stack`.
// Slot input: linear/input, linear/input_norm, linear/input_rounded, linear/input_shift, linear/input_wkv4
import package::lib::cursor::n_rows;
import package::linear::epilogue::{Epilogue, finish};
import package::slot::input::Input;

struct Params {
    n_segments: u32,
    // Stride of a row of y, in floats.
    y_stride: u32,
    // Stride of a row of the epilogue's `side`, in floats.
    side_stride: u32,
    // 0 if rows are tokens, 1 if rows are outputs (tokens whose logits are requested).
    of_outputs: u32,
    // The code that selects how the epilogue changes y (codes: linear/epilogue).
    store: u32,
    // The number of workgroups along x in the grid. Workgroup (x, y) computes the block of rows with the index x + y * fold.
    fold: u32,
    @align(16) input: Input,
    // Three entries per segment: (first block, rows, width / 8, first word of codes), (`x_at`, y offset, bias offset, activation), (offsets of a
    // and b in side, width, first word of scales)
    @align(16) segments: array<vec4<u32>, 24>,
}

@group(0) @binding(0) var<uniform> params: Params;

struct Segment {
    // Index of the workgroup's first row within the segment.
    row: u32,
    rows: u32,
    // Width in units of eight weights.
    k8: u32,
    // Width in weights.
    k: u32,
    // Index of the first 16-byte word of the codes.
    codes: u32,
    // Index of the first 16-byte word of the scales.
    scales: u32,
    // The second argument of `begin` in the shader slot `input`. In linear/input, the offset of the input in a row of x, in vectors of 4 floats.
    // In linear/input_shift, the index of the mix.
    x_at: u32,
    // Index of the workgroup's first token, and the number of tokens.
    t0: u32,
    n: u32,
    epilogue: Epilogue,
}

// Returns the segment and the tokens of a workgroup, which computes `rows` rows x `tokens` tokens. `group` is its index in the grid.
fn segment_of(group: vec3<u32>, rows: u32, tokens: u32) -> Segment {
    let block = group.x + group.y * params.fold;
    var at = 0u;
    for (var i = 1u; i < params.n_segments; i++) {
        if block >= params.segments[3u * i].x { at = i; }
    }
    let a = params.segments[3u * at];
    let b = params.segments[3u * at + 1u];
    let c = params.segments[3u * at + 2u];
    let epilogue = Epilogue(b.w, params.store, b.z, b.y, params.y_stride, c.x, c.y, params.side_stride);
    return Segment((block - a.x) * rows, a.y, a.z, c.z, a.w, c.w, b.x, group.z * tokens, n_rows(params.of_outputs), epilogue);
}

// Stores the sum of one row and token.
fn store(s: Segment, t: u32, row: u32, sum: f32) { finish(s.epilogue, t, row, sum); }
