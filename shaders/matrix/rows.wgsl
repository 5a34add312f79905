// A matrix by rows, in a storage buffer: codes as in matrix/quads, then scales.
import package::matrix::place::Place;
import package::slot::scale::scaled;
import package::slot::weight::{SHARERS, WORDS, decode};

@group(1) @binding(0) var<storage, read> w0: array<vec4<u32>>;

fn scale_word(i: u32) -> vec4<u32> { return w0[i]; }

// Unit k of a row, scaled.
fn weight8(p: Place, row: u32, k: u32) -> mat2x4<f32> {
    let at = p.codes + (row / SHARERS * p.units + k) * WORDS;
    return scaled(decode(w0[at], w0[at + WORDS - 1u], row % SHARERS), p, row, k);
}
