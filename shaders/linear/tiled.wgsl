// Matrix times many vectors: a workgroup computes 64 rows x 64 tokens, 16 of the width at a time. Weights are decoded once
// into workgroup memory; every lane keeps 4 x 4 sums.
import package::linear::stack::{params, segment_of};
import package::linear::input::x;
import package::linear::epilogue::finish;
import package::lib::cursor::n_rows;
import package::weight::f16::weight8;

const TILE: u32 = 64u;
const DEPTH: u32 = 16u;

// [DEPTH, TILE / 4], transposed so that a lane reads four rows or four tokens at once.
var<workgroup> w_tile: array<vec4<f32>, DEPTH * TILE / 4u>;
var<workgroup> x_tile: array<vec4<f32>, DEPTH * TILE / 4u>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let s = segment_of(group.x + group.y * params.fold, TILE);
    let n = n_rows(params.of_outputs);
    let t0 = group.z * TILE;
    if s.row >= s.rows || t0 >= n { return; }

    // For loading: lanes 0..127 take eight weights each, lanes 128..255 eight activations each.
    let line = lane % 64u;
    let eighth = (lane / 64u) % 2u;
    // For computing: four rows and four tokens.
    let i = lane % 16u;
    let j = lane / 16u;
    var sums = mat4x4<f32>();
    for (var k = 0u; k < s.k8; k += DEPTH / 8u) {
        workgroupBarrier();
        var eight = mat2x4<f32>();
        let inside = k + eighth < s.k8;
        if lane < 128u {
            if inside && s.row + line < s.rows { eight = weight8(s.unit + (s.row + line) * s.k8 + k + eighth); }
            for (var e = 0u; e < 8u; e++) { w_tile[(8u * eighth + e) * (TILE / 4u) + line / 4u][line % 4u] = eight[e / 4u][e % 4u]; }
        } else {
            if inside && t0 + line < n {
                let at = (t0 + line) * params.input.x_stride + s.x_at + 2u * (k + eighth);
                eight = mat2x4<f32>(x[at], x[at + 1u]);
            }
            for (var e = 0u; e < 8u; e++) { x_tile[(8u * eighth + e) * (TILE / 4u) + line / 4u][line % 4u] = eight[e / 4u][e % 4u]; }
        }
        workgroupBarrier();
        for (var d = 0u; d < DEPTH; d++) {
            let w = w_tile[d * (TILE / 4u) + i];
            let v = x_tile[d * (TILE / 4u) + j];
            sums[0] += w * v.x;
            sums[1] += w * v.y;
            sums[2] += w * v.z;
            sums[3] += w * v.w;
        }
    }
    for (var t = 0u; t < 4u; t++) {
        for (var r = 0u; r < 4u; r++) {
            let row = s.row + 4u * i + r;
            let token = t0 + 4u * j + t;
            if row < s.rows && token < n { finish(s.epilogue, token, row, sums[t][r]); }
        }
    }
}
