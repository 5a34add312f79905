// The parameters of products with the matrices of experts, whose tokens experts/sort has listed by expert. Fills the shader slot `stack`: a segment
// is the matrix of one expert. A token of the product is an entry of the list: a token and one of its experts.
//   MODE 0: y = silu(sum)   1: y = y * sum   2: y = sum
import package::lib::activation::sigmoid;
import package::experts::input::{Input, entries};
import package::constants::{EXPERTS, MODE};

struct Params {
    // Width of an expert's matrix in units of eight weights, and in weights.
    units: u32,
    k: u32,
    // Stride of a row of y, and the distance between the outputs of two experts of a token, in floats.
    y_stride: u32,
    y_slot: u32,
    @align(16) input: Input,
    // For each expert: the first words of its codes and of its scales in the piece, its first row there, and the number of rows there.
    @align(16) experts: array<vec4<u32>, EXPERTS>,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [T, y_stride]
@group(0) @binding(4) var<storage, read> starts: array<vec2<u32>>; // [EXPERTS + 1]: the first entry and the first tile of each expert

struct Segment {
    // Index of the workgroup's first row among the expert's rows in the piece.
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
    // Offset of the segment's input in the input of an entry, in vectors of 4 floats. It is always 0.
    x_at: u32,
    // Index in the expert's matrix of the first row in the piece.
    first_row: u32,
    // Index of the workgroup's first entry, and the end of the expert's entries.
    t0: u32,
    n: u32,
}

// Returns the expert and the entries of a workgroup, which computes `rows` rows x `tokens` entries. `group` is its index in the grid.
fn segment_of(group: vec3<u32>, rows: u32, tokens: u32) -> Segment {
    // The last expert whose first tile is at most the workgroup's tile. An expert without entries has the same first tile as the next expert. After
    // the last tile, t0 is at least n.
    var expert = 0u;
    var end = EXPERTS;
    while end - expert > 1u {
        let middle = (expert + end) / 2u;
        if starts[middle].y <= group.z { expert = middle; } else { end = middle; }
    }
    let first = starts[expert];
    let here = params.experts[expert];
    let n = starts[expert + 1u].x;
    return Segment(group.x * rows, here.w, params.units, params.k, here.x, here.y, 0u, here.z, first.x + (group.z - first.y) * tokens, n);
}

// Stores the sum of one row and entry.
fn store(s: Segment, i: u32, row: u32, sum: f32) {
    let entry = entries[i];
    let used = params.input.used;
    let at = entry / used * params.y_stride + entry % used * params.y_slot + s.first_row + row;
    if MODE == 0u { y[at] = sum * sigmoid(sum); }
    if MODE == 1u { y[at] *= sum; }
    if MODE == 2u { y[at] = sum; }
}
