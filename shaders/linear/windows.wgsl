// Matrix product for adapters of type Cpu: weights and activations come through uniform bindings, which such an adapter reads
// many times faster than storage. A dispatch takes one block of rows, its width cut into eight tiles, and TOKENS tokens; a lane
// owns ROWS rows. No barriers, and an order of the sum that does not depend on TOKENS.
//   y[t, row] = epilogue(sum over k of W[row, k] x[t, k])
import package::linear::epilogue::{Epilogue, finish};
import package::lib::cursor::n_rows;
import package::weight::f16_windows::{tile0};
import package::constants::{ROWS, TOKENS};

struct Params {
    // First token of this dispatch; rows of this block.
    t0: u32,
    rows: u32,
    // Units of eight weights: in a row, and in a row of one tile.
    units: u32,
    tile_units: u32,
    // Where x begins in its window and how far its rows are apart, in units of 4.
    x_at: u32,
    x_stride: u32,
    // Rows are tokens (0) or outputs (1).
    of_outputs: u32,
    @align(16) epilogue: Epilogue,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> x: array<vec4<f32>, 4096>; // [TOKENS, x_stride]

const LANES: u32 = 8u;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row0 = (group.x * LANES + lane) * ROWS;
    let n = n_rows(params.of_outputs);
    if params.t0 >= n { return; }

    // Rows and tokens past the end repeat the last one and are not stored.
    unroll r in ROWS { let w_at_$r = min(row0 + $ru, params.rows - 1u) * params.tile_units; }
    unroll t in TOKENS { let x_at_$t = params.x_at + min($tu, n - 1u - params.t0) * params.x_stride; }
    unroll t in TOKENS { unroll r in ROWS { var sum_$r_$t = 0.0; } }
    unroll i in 8 {
    {
        let first = min($iu * params.tile_units, params.units);
        let end = min(first + params.tile_units, params.units);
        for (var k = first; k < end; k++) {
            unroll r in ROWS { let w$r = tile$i(w_at_$r + k - first); }
            unroll t in TOKENS { {
                let xa = x[x_at_$t + 2u * k];
                let xb = x[x_at_$t + 2u * k + 1u];
                unroll r in ROWS { sum_$r_$t += dot(w$r[0], xa) + dot(w$r[1], xb); }
            } }
        }
    }
    }
    unroll t in TOKENS { if params.t0 + $tu < n { unroll r in ROWS {
    if row0 + $ru < params.rows { finish(params.epilogue, params.t0 + $tu, row0 + $ru, sum_$r_$t); }
    } } }
}
