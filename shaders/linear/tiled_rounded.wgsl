// Matrix times many vectors that linear/round has rounded to eight bits:  y[t, row] = epilogue(sum over k of W[row, k] x[t, k])
// A block has 32 values of k. The weights of a block, divided by their factor f, are whole numbers v; the inputs are d q. If the format has minima m,
//   sum over k of W[row, k] x[t, k] = sum over blocks of (f d (sum of v q) - m (d (sum of q)))
// Each half of a block has its own f and m if SCALE_UNITS is 2. Sums of v q are exact. A workgroup takes one block at a time, and decodes its weights
// once, into workgroup memory. A lane keeps (4 x ROW_QUADS) x (4 x TOKEN_QUADS) sums. Each sum adds its blocks in ascending order.
// Slot input: linear/input_rounded
// Slot scale: scale/levels, scale/rows, scale/rows_minima
// Slot weight: weight/i4, weight/i8, weight/iq4, weight/q4_0, weight/q8_0, weight/s3, weight/s5, weight/s6, weight/u2, weight/u4, weight/u5
import package::linear::stack::{segment_of, store};
import package::slot::input::{input_at, x};
import package::matrix::place::Place;
import package::matrix::quads::words0;
import package::matrix::bytes::{Bytes, bytes};
import package::slot::scale::{HAS_MINIMA, minima, of_rows};
import package::slot::weight::{SCALE_UNITS, CODE_STEP};
import package::constants::{TILE_ROWS, TILE_TOKENS, ROW_QUADS, TOKEN_QUADS, W_LOADS, X_LOADS};

// The number of units of eight weights in a block.
const UNITS: u32 = 4u;
// The number of words of four weights in a block.
const DEPTH: u32 = 2u * UNITS;
// The number of parts of a block with their own factor.
const PARTS: u32 = select(1u, 2u, SCALE_UNITS == 2u);
// The number of quads of rows in a tile. A quad is four rows or four tokens.
const W_QUADS: u32 = TILE_ROWS / 4u;
// The number of quads of tokens in a tile.
const X_QUADS: u32 = TILE_TOKENS / 4u;
// The number of lanes among which the rows of a tile are divided.
const W_LANES: u32 = W_QUADS / ROW_QUADS;
// The number of lanes among which the tokens of a tile are divided.
const X_LANES: u32 = X_QUADS / TOKEN_QUADS;
const LANES: u32 = W_LANES * X_LANES;

// A word has four weights of four rows, or four inputs of four tokens.
var<workgroup> w_tile: array<vec4<u32>, DEPTH * W_QUADS>; // [DEPTH, TILE_ROWS / 4]
var<workgroup> x_tile: array<vec4<u32>, DEPTH * X_QUADS>; // [DEPTH, TILE_TOKENS / 4]
var<workgroup> factors: array<vec4<f32>, PARTS * W_QUADS>; // [PARTS, TILE_ROWS / 4]: f
var<workgroup> offsets: array<vec4<f32>, PARTS * W_QUADS>; // [PARTS, TILE_ROWS / 4]: m
var<workgroup> x_scales: array<vec4<f32>, X_QUADS>; // [TILE_TOKENS / 4]: d
var<workgroup> x_sums: array<vec4<f32>, PARTS * X_QUADS>; // [PARTS, TILE_TOKENS / 4]: d times the sum of q

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let s = segment_of(group, TILE_ROWS, TILE_TOKENS);
    if s.row >= s.rows || s.t0 >= s.n { return; }

    let place = Place(s.codes, s.scales, s.k8, s.rows);
    // Index i of the lane's first quad of rows, and index j of its first quad of tokens. The next quads have the indices i + W_LANES and j
    // + X_LANES.
    let i = lane % W_LANES;
    let j = lane / W_LANES;
    unroll q in ROW_QUADS { unroll p in TOKEN_QUADS { unroll c in 4 { var sums_$q_$p_$c = vec4(0.0); } } }
    // Surplus rows repeat the last quad of rows, and surplus tokens the last token. Their results are not stored. Surplus units repeat the last unit;
    // their inputs are 0.
    unroll l in W_LOADS { let w_row_$l = min(s.row + 4u * ((lane + $lu * LANES) % W_QUADS), (s.rows - 1u) / 4u * 4u); }
    unroll l in X_LOADS { let x_at_$l = input_at(s.x_at, min(s.t0 + lane + $lu * LANES, s.n - 1u)); }
    for (var k = 0u; k < s.k8; k += UNITS) {
        // The next block is loaded while lanes still compute the block before.
        unroll l in W_LOADS {
            let w_unit_$l = min(k + (lane + $lu * LANES) / W_QUADS, s.k8 - 1u);
            let w_bytes_$l = bytes(words0(place, w_row_$l, w_unit_$l));
            let w_factors_$l = CODE_STEP * of_rows(place, w_row_$l, w_unit_$l);
            var w_minima_$l = vec4(0.0);
            if HAS_MINIMA { w_minima_$l = minima(place, w_row_$l, w_unit_$l); }
        }
        unroll l in X_LOADS {
            let x_low_$l = x[x_at_$l + 3u * (k / UNITS)];
            let x_high_$l = x[x_at_$l + 3u * (k / UNITS) + 1u];
            let x_scale_$l = bitcast<vec4<f32>>(x[x_at_$l + 3u * (k / UNITS) + 2u]);
        }
        workgroupBarrier();
        unroll l in W_LOADS { {
            let u = lane + $lu * LANES;
            let unit = u / W_QUADS;
            if unit < UNITS {
                w_tile[2u * unit * W_QUADS + u % W_QUADS] = w_bytes_$l.low;
                w_tile[(2u * unit + 1u) * W_QUADS + u % W_QUADS] = w_bytes_$l.high;
                if unit % (UNITS / PARTS) == 0u {
                    factors[unit / (UNITS / PARTS) * W_QUADS + u % W_QUADS] = w_factors_$l;
                    if HAS_MINIMA { offsets[unit / (UNITS / PARTS) * W_QUADS + u % W_QUADS] = w_minima_$l; }
                }
            }
        } }
        unroll l in X_LOADS { {
            let u = lane + $lu * LANES;
            if u < TILE_TOKENS {
                unroll e in 4 {
                    x_tile[$eu * X_QUADS + u / 4u][u % 4u] = x_low_$l[$e];
                    x_tile[($eu + 4u) * X_QUADS + u / 4u][u % 4u] = x_high_$l[$e];
                }
                x_scales[u / 4u][u % 4u] = x_scale_$l.x;
                if HAS_MINIMA {
                    x_sums[u / 4u][u % 4u] = select(x_scale_$l.w, x_scale_$l.y, PARTS == 2u);
                    if PARTS == 2u { x_sums[(PARTS - 1u) * X_QUADS + u / 4u][u % 4u] = x_scale_$l.z; }
                }
            }
        } }
        workgroupBarrier();
        for (var part = 0u; part < PARTS; part++) {
            unroll q in ROW_QUADS { unroll p in TOKEN_QUADS { unroll c in 4 { var whole_$q_$p_$c = vec4(0i); } } }
            for (var d = part * (DEPTH / PARTS); d < (part + 1u) * (DEPTH / PARTS); d++) {
                unroll q in ROW_QUADS { let w_$q = w_tile[d * W_QUADS + i + $qu * W_LANES]; }
                unroll p in TOKEN_QUADS { let v_$p = x_tile[d * X_QUADS + j + $pu * X_LANES]; }
                unroll q in ROW_QUADS { unroll p in TOKEN_QUADS { unroll c in 4 {
                    whole_$q_$p_$c += vec4(
                        dot4I8Packed(w_$q.x, v_$p[$c]),
                        dot4I8Packed(w_$q.y, v_$p[$c]),
                        dot4I8Packed(w_$q.z, v_$p[$c]),
                        dot4I8Packed(w_$q.w, v_$p[$c]),
                    );
                } } }
            }
            unroll q in ROW_QUADS { let f_$q = factors[part * W_QUADS + i + $qu * W_LANES]; }
            unroll p in TOKEN_QUADS { let d_$p = x_scales[j + $pu * X_LANES]; }
            unroll q in ROW_QUADS { unroll p in TOKEN_QUADS { unroll c in 4 {
                sums_$q_$p_$c += (f_$q * d_$p[$c]) * vec4<f32>(whole_$q_$p_$c);
            } } }
            if HAS_MINIMA {
                unroll q in ROW_QUADS { let m_$q = offsets[part * W_QUADS + i + $qu * W_LANES]; }
                unroll p in TOKEN_QUADS { let x_sum_$p = x_sums[part * X_QUADS + j + $pu * X_LANES]; }
                unroll q in ROW_QUADS { unroll p in TOKEN_QUADS { unroll c in 4 { sums_$q_$p_$c -= m_$q * x_sum_$p[$c]; } } }
            }
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
