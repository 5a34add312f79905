// Matrix times many vectors on the GPU's matrix units. Inputs and decoded weights are rounded to f16, sums are f32.
//   y[t, row] = epilogue(sum over k of f16(W[row, k]) f16(x[t, k]))
// One workgroup per 128 rows x 64 tokens, which are four strips; one subgroup per strip of 64 rows x 32 tokens. The workgroup takes 16 values of
// k at a time. A workgroup with fewer than four subgroups needs several rounds, and loads its tiles again in each.
// Slot stack: experts/stack, linear/stack
// Slot tile: linear/tile_columns, linear/tile_rows
// Slot cooperative: lib/cooperative16, lib/cooperative8
// Slot weight: weight/f16, weight/i4, weight/i8, weight/i8rc, weight/iq4, weight/nf4_table, weight/q4_0, weight/q8_0, weight/s3, weight/s5, weight/s6, weight/u2, weight/u4, weight/u5
import package::slot::stack::{Segment, segment_of, store};
import package::slot::tile::{DEPTH, UNITS, tile_place, tile_unit};
import package::linear::tile_inputs::tile_input;
import package::slot::cooperative::{SIZE, Left, Right, Sum};
import package::slot::weight::begin_weights;
import package::constants::{ROW_BLOCKS, TOKEN_BLOCKS, DEPTH_BLOCKS};

const LANES: u32 = 128u;
const TILE_ROWS: u32 = 128u;
const TILE_TOKENS: u32 = 64u;
const STRIPS: u32 = 4u;
const STRIP_ROWS: u32 = SIZE * ROW_BLOCKS;
const STRIP_TOKENS: u32 = SIZE * TOKEN_BLOCKS;
// The stride of a tile's line, in f16 values. A line has the inputs of one token, or the weights of one row. Lines begin at multiples of 16
// bytes, and eight consecutive lines are in different memory banks.
const STRIDE: u32 = DEPTH + 8u;
const F16_MAX: f32 = 65504.0;

var<workgroup> w_tile: array<f16, TILE_ROWS * STRIDE>; // [TILE_ROWS, STRIDE]
var<workgroup> x_tile: array<f16, TILE_TOKENS * STRIDE>; // [TILE_TOKENS, STRIDE]
// The sums that the epilogue reads: one block of SIZE x SIZE sums per strip.
var<workgroup> sums: array<f32, STRIPS * SIZE * SIZE>; // [STRIPS, SIZE (token), SIZE (row)]
var<workgroup> has_work: u32;

// The units of the next tiles that a lane has loaded: UNITS * TILE_ROWS / LANES = 2 units of weights, UNITS * TILE_TOKENS / LANES = 1 unit
// of inputs.
unroll l in 2 { var<private> w_next_$l: mat2x4<f32>; }
var<private> x_next: mat2x4<f32>;

// Loads the lane's part of the tiles that begin at unit k of the width. Outside the matrix, the units are zeros.
fn fetch(s: Segment, k: u32, lane: u32) {
    unroll l in 2 { w_next_$l = tile_unit(s, TILE_ROWS, k, lane + $lu * LANES); }
    x_next = tile_input(s, TILE_TOKENS, k, lane);
}

// Writes the loaded units to workgroup memory, as f16.
fn put(lane: u32) {
    unroll l in 2 { unroll e in 8 { {
        let at = tile_place(TILE_ROWS, lane + $lu * LANES, $eu);
        w_tile[at.x * STRIDE + at.y] = f16(w_next_$l[$e / 4][$e % 4]);
    } } }
    let at = lane / UNITS * STRIDE + 8u * (lane % UNITS);
    unroll e in 8 { x_tile[at + $eu] = f16(clamp(x_next[$e / 4][$e % 4], -F16_MAX, F16_MAX)); }
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(num_subgroups) n_subgroups: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) subgroup_lanes: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
) {
    let s = segment_of(group, TILE_ROWS, TILE_TOKENS);
    // WGSL allows cooperative matrices in uniform control flow only. A value from workgroupUniformLoad counts as uniform.
    if lane == 0u { has_work = u32(s.row < s.rows && s.t0 < s.n); }
    if workgroupUniformLoad(&has_work) == 0u { return; }

    begin_weights(lane);
    for (var first = 0u; first < STRIPS; first += n_subgroups) {
        // Surplus subgroups compute a strip again and store nothing.
        let strip = (first + subgroup) % STRIPS;
        let row0 = strip / 2u * STRIP_ROWS;
        let token0 = strip % 2u * STRIP_TOKENS;
        for (var i = lane; i < STRIPS * SIZE * SIZE; i += LANES) { sums[i] = 0.0; }
        workgroupBarrier();
        unroll a in ROW_BLOCKS { unroll b in TOKEN_BLOCKS { var sum_$a_$b = coopLoad<Sum>(&sums[strip * SIZE * SIZE], SIZE); } }
        fetch(s, 0u, lane);
        for (var k = 0u; k < s.k8; k += UNITS) {
            workgroupBarrier();
            put(lane);
            workgroupBarrier();
            // The next tiles are loaded while the current tiles are multiplied.
            fetch(s, k + UNITS, lane);
            unroll d in DEPTH_BLOCKS { {
                // A token is a column of the right matrix. The inputs of a token are adjacent in memory.
                unroll b in TOKEN_BLOCKS { let v_$b = coopLoad<Right>(&x_tile[(token0 + $bu * SIZE) * STRIDE + $du * SIZE], STRIDE); }
                unroll a in ROW_BLOCKS { {
                    let w = coopLoadT<Left>(&w_tile[(row0 + $au * SIZE) * STRIDE + $du * SIZE], STRIDE);
                    unroll b in TOKEN_BLOCKS { sum_$a_$b = coopMultiplyAdd(w, v_$b, sum_$a_$b); }
                } }
            } }
        }
        unroll a in ROW_BLOCKS { unroll b in TOKEN_BLOCKS { {
            workgroupBarrier();
            coopStore(sum_$a_$b, &sums[strip * SIZE * SIZE], SIZE);
            workgroupBarrier();
            for (var i = subgroup_lane; i < SIZE * SIZE; i += subgroup_lanes) {
                let row = s.row + row0 + $au * SIZE + i % SIZE;
                let token = s.t0 + token0 + $bu * SIZE + i / SIZE;
                if first + subgroup < STRIPS && row < s.rows && token < s.n {
                    store(s, token, row, sums[strip * SIZE * SIZE + i]);
                }
            }
        } } }
        workgroupBarrier();
    }
}
