// Rounds the inputs of a product to eight bits, in blocks of 32: x = d q, where d = max |x| / 127 and q are whole numbers. One lane per block of a
// row. A row consists of lines: a line has the input of one or more segments of linear/stack.
import package::lib::cursor::n_rows;
import package::constants::SPLIT;

struct Params {
    n_lines: u32,
    // Stride of a row of x, in vectors of 4 floats.
    x_stride: u32,
    // The number of blocks in a row.
    blocks: u32,
    // Stride of a row of `rounded`, in 16-byte words.
    stride: u32,
    // 0 if rows are tokens, 1 if rows are outputs (tokens whose logits are requested).
    of_outputs: u32,
    // One entry per line: (first block, offset in a row of x in vectors of 4 floats, width / 8)
    @align(16) lines: array<vec4<u32>, 32>,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>; // [T, x_stride]
// Three words per block. Two have the numbers q. The third has d, then d times the sums of the first half, the second half and all of q.
@group(0) @binding(2) var<storage, read_write> rounded: array<vec4<u32>>; // [T, stride]

const LANES: u32 = 64u;
// If no number of a block is larger, all its numbers are rounded to 0, because 127 divided by a smaller number could overflow.
const LEAST: f32 = 1e-30;
const EXPONENT: u32 = 0x7f800000u;
const NOT_A_NUMBER: u32 = 0x7fc00000u;

// Returns eight whole numbers as bytes. If SPLIT is 1, the first word has the numbers with even indices, the second word the numbers with odd
// indices.
fn packed(low: vec4<i32>, high: vec4<i32>) -> vec2<u32> {
    if SPLIT == 1u {
        return vec2(pack4xI8(vec4(low.xz, high.xz)), pack4xI8(vec4(low.yw, high.yw)));
    }
    return vec2(pack4xI8(low), pack4xI8(high));
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let block = group.x * LANES + lane;
    if block >= params.blocks || group.y >= n_rows(params.of_outputs) { return; }

    var line = params.lines[0];
    for (var i = 1u; i < params.n_lines; i++) {
        if block >= params.lines[i].x { line = params.lines[i]; }
    }
    let first = 4u * (block - line.x);
    let at = group.y * params.x_stride + line.y + 2u * first;
    var most = vec4(0.0);
    var exponents = vec4(0u);
    unroll u in 4 {
        var low_$u = vec4(0.0);
        var high_$u = vec4(0.0);
        if first + $uu < line.z {
            low_$u = x[at + 2u * $uu];
            high_$u = x[at + 2u * $uu + 1u];
        }
        most = max(most, max(abs(low_$u), abs(high_$u)));
        exponents = max(exponents, max(bitcast<vec4<u32>>(low_$u) & vec4(EXPONENT), bitcast<vec4<u32>>(high_$u) & vec4(EXPONENT)));
    }
    let largest = max(max(most.x, most.y), max(most.z, most.w));
    // A block with a number that is not finite has d = NaN, so that all its products are NaN.
    let is_finite = all(exponents < vec4(EXPONENT));
    var d = largest / 127.0;
    var inverse = 127.0 / largest;
    if !(largest >= LEAST) || !is_finite {
        d = 0.0;
        inverse = 0.0;
    }
    unroll u in 4 {
        let q_low_$u = vec4<i32>(round(low_$u * inverse));
        let q_high_$u = vec4<i32>(round(high_$u * inverse));
        let bytes_$u = packed(q_low_$u, q_high_$u);
    }
    let a = q_low_0 + q_high_0 + q_low_1 + q_high_1;
    let b = q_low_2 + q_high_2 + q_low_3 + q_high_3;
    let halves = vec2(a.x + a.y + a.z + a.w, b.x + b.y + b.z + b.w);
    let sums = d * vec3<f32>(vec3(halves, halves.x + halves.y));
    let to = group.y * params.stride + 3u * block;
    rounded[to] = vec4(bytes_0, bytes_1);
    rounded[to + 1u] = vec4(bytes_2, bytes_3);
    rounded[to + 2u] = select(vec4(NOT_A_NUMBER), bitcast<vec4<u32>>(vec4(d, sums)), is_finite);
}
