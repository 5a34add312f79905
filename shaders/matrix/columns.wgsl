// A column-major matrix in a storage buffer: `[channels, rows / 8]` units. A unit has the weights of eight rows for one input channel. The
// units of a channel are adjacent, so adjacent lanes read adjacent 16-byte words. Fills the shader slot `matrix`.
// Slot scale: scale/affine, scale/none, scale/rows
// Slot weight: weight/f16, weight/f32, weight/i4, weight/i8, weight/i8rc, weight/nf4_table
import package::matrix::place::Place;
import package::slot::scale::scaled;
import package::slot::weight::{SHARERS, WORDS, decode};

@group(1) @binding(0) var<storage, read> w0: array<vec4<u32>>;

fn scale_word(i: u32) -> vec4<u32> { return w0[i]; }

// Returns unit k of channel `channel`: eight weights, scaled.
fn weight8(p: Place, channel: u32, k: u32) -> mat2x4<f32> {
    let unit = channel * p.units + k;
    let at = p.codes + unit / SHARERS * WORDS;
    return scaled(decode(w0[at], w0[at + WORDS - 1u], unit % SHARERS), p, channel, k);
}
