// A matrix in a storage buffer: the codes of all rows, then all scales. matrix/quads describes the order of the codes. Fills the shader slot
// `matrix`.
// Slot scale: scale/*
// Slot weight: weight/*
import package::matrix::place::Place;
import package::slot::scale::scaled;
import package::slot::weight::{SHARERS, WORDS, decode};

@group(1) @binding(0) var<storage, read> w0: array<vec4<u32>>;

fn scale_word(i: u32) -> vec4<u32> { return w0[i]; }

// Returns unit k of row `row`: eight weights, scaled.
fn weight8(p: Place, row: u32, k: u32) -> mat2x4<f32> {
    let at = p.codes + (row / SHARERS * p.units + k) * WORDS;
    return scaled(decode(w0[at], w0[at + WORDS - 1u], row % SHARERS), p, row, k);
}
