// Matrix product for software adapters:  y[t, row] = epilogue(sum over k of W[row, k] x[t, k])
// The kernel reads weights and inputs through uniform bindings. Software adapters read uniform bindings many times faster than storage bindings.
// One dispatch per block of rows and TOKENS tokens. The block is cut along its width into eight tiles. One lane per (4 x QUADS) rows, and no
// barriers. The order of a sum does not depend on TOKENS.
// Slot scale: scale/*
import package::linear::epilogue::{Epilogue, finish};
import package::lib::cursor::n_rows;
import package::matrix::place::Place;
import package::matrix::quads::{quad0};
import package::slot::scale::{BLOCK_UNITS, HAS_MINIMA, columns, dot4, minima, of_rows};
import package::constants::{QUADS, TOKENS};

struct Params {
    // Index of the first token of the dispatch.
    t0: u32,
    // The number of rows of the block.
    rows: u32,
    // The number of units of eight weights in a row.
    units: u32,
    // The number of units of eight weights in a row of one tile.
    tile_units: u32,
    // Offset of the first token's input in the binding x, in vectors of 4 floats.
    x_at: u32,
    // Stride of a row of x, in vectors of 4 floats.
    x_stride: u32,
    // 0 if rows are tokens, 1 if rows are outputs (tokens whose logits are requested).
    of_outputs: u32,
    @align(16) epilogue: Epilogue,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> x: array<vec4<f32>, 4096>; // [TOKENS, x_stride]

const LANES: u32 = 8u;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row0 = (group.x * LANES + lane) * 4u * QUADS;
    let n = n_rows(params.of_outputs);
    if params.t0 >= n { return; }

    // Surplus quads of rows repeat the last quad, and surplus tokens repeat the last token. Their results are not stored.
    unroll q in QUADS { let row_$q = min(row0 + 4u * $qu, (params.rows - 1u) / 4u * 4u); }
    unroll t in TOKENS { let x_at_$t = params.x_at + min($tu, n - 1u - params.t0) * params.x_stride; }
    unroll t in TOKENS { unroll q in QUADS { var sum_$q_$t = vec4(0.0); } }
    let tile = Place(0u, 0u, params.tile_units, params.rows);
    let scales = Place(0u, 0u, params.units, params.rows);
    let block = group.x * LANES * 4u * QUADS;
    unroll i in 8 { {
        let first = min($iu * params.tile_units, params.units);
        let end = min(first + params.tile_units, params.units);
        for (var k = first; k < end;) {
            let stop = min(end, (k / BLOCK_UNITS + 1u) * BLOCK_UNITS);
            unroll q in QUADS {
                let rows_$q = of_rows(scales, row_$q, k);
                let minima_$q = minima(scales, row_$q, k);
            }
            unroll t in TOKENS { unroll q in QUADS { var part_$q_$t = vec4(0.0); } }
            unroll t in TOKENS { var inputs_$t = 0.0; }
            for (; k < stop; k++) {
                unroll q in QUADS {
                    let w$q = quad$i(tile, row_$q, k - first);
                    let c$q = columns(scales, row_$q, block, k);
                }
                unroll t in TOKENS { {
                    let x8 = mat2x4<f32>(x[x_at_$t + 2u * k], x[x_at_$t + 2u * k + 1u]);
                    unroll q in QUADS { part_$q_$t += dot4(w$q, c$q, x8); }
                    if HAS_MINIMA { inputs_$t += dot(x8[0] + x8[1], vec4(1.0)); }
                } }
            }
            unroll t in TOKENS { unroll q in QUADS { sum_$q_$t += rows_$q * part_$q_$t; } }
            if HAS_MINIMA { unroll t in TOKENS { unroll q in QUADS { sum_$q_$t -= minima_$q * inputs_$t; } } }
        }
    } }
    unroll t in TOKENS { if params.t0 + $tu < n { unroll q in QUADS { unroll r in 4 {
        if row0 + 4u * $qu + $ru < params.rows { finish(params.epilogue, params.t0 + $tu, row0 + 4u * $qu + $ru, sum_$q_$t[$r]); }
    } } } }
}
