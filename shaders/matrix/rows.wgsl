// A matrix in a storage buffer: the codes of all rows, then all scales. matrix/quads describes the order of the codes. Fills the shader slot
// `matrix`.
// Slot scale: scale/*
// Slot weight: weight/*
import package::matrix::cells::{HAS_FOUR, HAS_ONE, HAS_TWO, cell, one, parts, two};
import package::matrix::place::Place;
import package::slot::scale::scaled;
import package::slot::weight::{CELL_WORDS, SHARERS, WORDS, decode};

@group(1) @binding(0) var<storage, read> w0: array<vec4<u32>>;

fn scale_word(i: u32) -> vec4<u32> { return w0[i]; }

// Returns unit k of row `row`: eight weights, scaled.
fn weight8(p: Place, row: u32, k: u32) -> mat2x4<f32> {
    if CELL_WORDS != 0u {
        let c = cell(p, row, k);
        var low = vec4(0u);
        var pairs = vec4(0u);
        var bits = 0u;
        if HAS_FOUR { low = w0[c + k % 4u]; }
        if HAS_TWO { pairs = w0[two(c, k)]; }
        if HAS_ONE { bits = w0[one(c)][k % 4u]; }
        return scaled(decode(low, parts(pairs, bits, k), row % 4u), p, row, k);
    }
    let at = p.codes + (row / SHARERS * p.units + k) * WORDS;
    return scaled(decode(w0[at], w0[at + WORDS - 1u], row % SHARERS), p, row, k);
}
