// Matrix times many vectors:  y[t, row] = epilogue(sum over k of W[row, k] x[t, k])
// One workgroup per TILE_ROWS rows x TILE_TOKENS tokens. A workgroup takes DEPTH values of k at a time, and decodes their weights once, into
// workgroup memory. A lane keeps (4 x ROW_QUADS) x (4 x TOKEN_QUADS) sums. Each sum adds its products in ascending order of k.
// Slot stack: experts/stack, linear/stack
// Slot tile: linear/tile_columns, linear/tile_rows
// Slot weight: weight/*
import package::slot::stack::{segment_of, store};
import package::slot::tile::{DEPTH, UNITS, tile_place, tile_unit};
import package::linear::tile_inputs::tile_input;
import package::slot::weight::begin_weights;
import package::constants::{TILE_ROWS, TILE_TOKENS, ROW_QUADS, TOKEN_QUADS, W_LOADS, X_LOADS};

// The number of quads of rows in a tile. A quad is four rows or four tokens.
const W_QUADS: u32 = TILE_ROWS / 4u;
// The number of quads of tokens in a tile.
const X_QUADS: u32 = TILE_TOKENS / 4u;
// The number of lanes among which the rows of a tile are divided.
const W_LANES: u32 = W_QUADS / ROW_QUADS;
// The number of lanes among which the tokens of a tile are divided.
const X_LANES: u32 = X_QUADS / TOKEN_QUADS;
const LANES: u32 = W_LANES * X_LANES;

// The tiles are transposed, so that a lane reads four rows or four tokens at once.
var<workgroup> w_tile: array<vec4<f32>, DEPTH * W_QUADS>; // [DEPTH, TILE_ROWS / 4]
var<workgroup> x_tile: array<vec4<f32>, DEPTH * X_QUADS>; // [DEPTH, TILE_TOKENS / 4]

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let s = segment_of(group, TILE_ROWS, TILE_TOKENS);
    if s.row >= s.rows || s.t0 >= s.n { return; }

    begin_weights(lane);
    // Index i of the lane's first quad of rows, and index j of its first quad of tokens. The next quads have the indices i + W_LANES and j
    // + X_LANES.
    let i = lane % W_LANES;
    let j = lane / W_LANES;
    unroll q in ROW_QUADS { unroll p in TOKEN_QUADS { unroll c in 4 { var sums_$q_$p_$c = vec4(0.0); } } }
    // The next tile is loaded while the current tile is computed.
    unroll l in W_LOADS { var w_next_$l = tile_unit(s, TILE_ROWS, 0u, lane + $lu * LANES); }
    unroll l in X_LOADS { var x_next_$l = tile_input(s, TILE_TOKENS, 0u, lane + $lu * LANES); }
    for (var k = 0u; k < s.k8; k += UNITS) {
        workgroupBarrier();
        unroll l in W_LOADS { {
            let u = lane + $lu * LANES;
            if u < UNITS * TILE_ROWS {
                unroll e in 8 { {
                    let at = tile_place(TILE_ROWS, u, $eu);
                    w_tile[at.y * W_QUADS + at.x / 4u][at.x % 4u] = w_next_$l[$e / 4][$e % 4];
                } }
            }
        } }
        unroll l in X_LOADS { {
            let u = lane + $lu * LANES;
            let line = u / UNITS;
            if u < UNITS * TILE_TOKENS {
                unroll e in 8 { x_tile[(8u * (u % UNITS) + $eu) * X_QUADS + line / 4u][line % 4u] = x_next_$l[$e / 4][$e % 4]; }
            }
        } }
        workgroupBarrier();
        unroll l in W_LOADS { w_next_$l = tile_unit(s, TILE_ROWS, k + UNITS, lane + $lu * LANES); }
        unroll l in X_LOADS { x_next_$l = tile_input(s, TILE_TOKENS, k + UNITS, lane + $lu * LANES); }
        for (var d = 0u; d < DEPTH; d++) {
            unroll q in ROW_QUADS { let w_$q = w_tile[d * W_QUADS + i + $qu * W_LANES]; }
            unroll p in TOKEN_QUADS { let v_$p = x_tile[d * X_QUADS + j + $pu * X_LANES]; }
            unroll q in ROW_QUADS { unroll p in TOKEN_QUADS { unroll c in 4 { sums_$q_$p_$c += w_$q * v_$p[$c]; } } }
        }
    }
    // The sums are copied to an array, so that a loop can call the epilogue, whose code is then compiled only once.
    var sums: array<vec4<f32>, 4u * ROW_QUADS * TOKEN_QUADS>;
    unroll q in ROW_QUADS { unroll p in TOKEN_QUADS { unroll c in 4 { sums[4u * ($qu * TOKEN_QUADS + $pu) + $cu] = sums_$q_$p_$c; } } }
    for (var e = 0u; e < 16u * ROW_QUADS * TOKEN_QUADS; e++) {
        let quads = e / 16u;
        let row = s.row + 4u * (i + quads / TOKEN_QUADS * W_LANES) + e % 4u;
        let token = s.t0 + 4u * (j + quads % TOKEN_QUADS * X_LANES) + e / 4u % 4u;
        if row < s.rows && token < s.n { store(s, token, row, sums[e / 4u][e % 4u]); }
    }
}
