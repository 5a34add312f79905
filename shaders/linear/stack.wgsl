// Parameters that every matrix-product kernel shares: a stack of segments, each with its own input, width, epilogue and output.
//   y[t, row] = epilogue(sum over k of W[row, k] x[t, k])
// A segment is some rows of one matrix. A workgroup works on one segment only.
import package::linear::epilogue::Epilogue;
import package::slot::input::Input;

struct Params {
    n_segments: u32,
    // Strides of a row of y and of the epilogue's side input.
    y_stride: u32,
    side_stride: u32,
    // Rows are tokens (0) or outputs (1).
    of_outputs: u32,
    // How the epilogue stores: linear/epilogue has the codes.
    store: u32,
    // Workgroups in a line of the grid: the block is x + y fold.
    fold: u32,
    @align(16) input: Input,
    // Three entries per segment: (first block, rows, width / 8, first word of codes), (offset or plane of the input, y offset,
    // bias offset, activation), (offsets of a and b in side, width, first word of scales)
    @align(16) segments: array<vec4<u32>, 24>,
}

@group(0) @binding(0) var<uniform> params: Params;

struct Segment {
    // This workgroup's first row within the segment.
    row: u32,
    rows: u32,
    // Width in units of eight and in weights; first words of codes and scales.
    k8: u32,
    k: u32,
    codes: u32,
    scales: u32,
    // Second argument of `begin` of the input.
    x_at: u32,
    epilogue: Epilogue,
}

// Returns the segment that a block of `block_rows` rows belongs to.
fn segment_of(block: u32, block_rows: u32) -> Segment {
    var at = 0u;
    for (var i = 1u; i < params.n_segments; i++) {
        if block >= params.segments[3u * i].x { at = i; }
    }
    let a = params.segments[3u * at];
    let b = params.segments[3u * at + 1u];
    let c = params.segments[3u * at + 2u];
    let epilogue = Epilogue(b.w, params.store, b.z, b.y, params.y_stride, c.x, c.y, params.side_stride);
    return Segment((block - a.x) * block_rows, a.y, a.z, c.z, a.w, c.w, b.x, epilogue);
}
