// Matrix times up to 16 vectors:  y[t, row] = epilogue(sum over k of W[row, k] x[t, k])
// One workgroup per (4 x GROUPS) rows and (BLOCKS x TOKENS) tokens. Each lane multiplies a part of the width. Then one reduction adds up the
// sums of all lanes. The tokens of a workgroup form BLOCKS blocks of TOKENS tokens. A lane holds the inputs of one block in registers at a time.
// Only the first block reads the weights from memory: later blocks find them in registers or in the nearest cache. The products of a row and a
// token are added in the same order for all values of GROUPS, BLOCKS, TOKENS and EARLY, so these values do not change the result.
// Slot stack: experts/stack, linear/stack
// Slot input: experts/input, linear/input, linear/input_norm, linear/input_shift, linear/input_wkv4
// Slot reduce: lib/reduce, lib/reduce_lanes, lib/reduce_subgroup
// Slot sums: lib/sums, lib/sums_subgroup
// Slot scale: scale/*
// Slot weight: weight/*
import package::slot::stack::{segment_of, store};
import package::slot::input::{begin, input4};
import package::slot::reduce::WG;
import package::slot::sums::{add_up, total};
import package::matrix::place::Place;
import package::matrix::quads::{Words, quad, words0};
import package::slot::scale::{HAS_MINIMA, columns, dot4, minima, of_rows};
import package::slot::weight::{SHARERS, WORDS, begin_weights};
import package::constants::{GROUPS, BLOCKS, TOKENS, SUMS, EARLY};

// The number of quads (four rows) whose weights a lane loads early: the first words before it computes the input, the next words while it computes
// other sums. The loaded words take at most 32 registers. If EARLY is 0, no words are loaded early.
const AHEAD: u32 = EARLY * min(GROUPS, 2u * SHARERS / WORDS);

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let s = segment_of(group, 4u * GROUPS, BLOCKS * TOKENS);
    if s.row >= s.rows || s.t0 >= s.n { return; }

    let place = Place(s.codes, s.scales, s.k8, s.rows);
    // Surplus quads of rows repeat the last quad, and surplus tokens repeat the last token. Their results are not stored.
    unroll q in GROUPS {
        let row_$q = min(s.row + 4u * $qu, (s.rows - 1u) / 4u * 4u);
        var words_$q: Words;
        if $qu < AHEAD { words_$q = words0(place, row_$q, min(lane, s.k8 - 1u)); }
    }
    begin_weights(lane);
    unroll b in BLOCKS { unroll t in TOKENS {
        let source_$b_$t = begin(min(s.t0 + $bu * TOKENS + $tu, s.n - 1u), s.x_at, lane, group.x + group.y == 0u);
        unroll q in GROUPS { var sums_$q_$b_$t = vec4(0.0); }
    } }
    for (var k = lane; k < s.k8; k += WG) {
        unroll b in BLOCKS { {
            unroll t in TOKENS {
                let x_$t = mat2x4<f32>(input4(source_$b_$t, 2u * k), input4(source_$b_$t, 2u * k + 1u));
            }
            unroll q in GROUPS { {
                if $qu >= AHEAD { words_$q = words0(place, row_$q, k); }
                let w = quad(words_$q);
                let c = columns(place, row_$q, row_$q, k);
                let r = of_rows(place, row_$q, k);
                unroll t in TOKENS { sums_$q_$b_$t += r * dot4(w, c, x_$t); }
                if HAS_MINIMA {
                    let m = minima(place, row_$q, k);
                    unroll t in TOKENS { sums_$q_$b_$t -= m * dot(x_$t[0] + x_$t[1], vec4(1.0)); }
                }
                // Without a next unit, a lane loads the row's last unit again and does not use it.
                if $qu < AHEAD && $bu + 1u == BLOCKS { words_$q = words0(place, row_$q, min(k + WG, s.k8 - 1u)); }
            } }
        } }
    }
    var sums: array<vec4<f32>, SUMS>;
    unroll b in BLOCKS { unroll t in TOKENS { unroll q in GROUPS {
        sums[($b * TOKENS + $t) * GROUPS + $q] = sums_$q_$b_$t;
    } } }
    add_up(sums, lane);
    // Each of the first 4 * SUMS lanes stores one sum. A workgroup has at least 4 * SUMS lanes.
    let i = lane / 4u;
    let row = s.row + 4u * (i % GROUPS) + lane % 4u;
    let token = s.t0 + i / GROUPS;
    if i < SUMS && row < s.rows && token < s.n { store(s, token, row, total(i, lane % 4u)); }
}
