// A matrix by columns, in a storage buffer: what is a row here is an input channel, and units are eight outputs of it. Channels follow
// one another, so that neighbours read neighbours.
import package::matrix::place::Place;
import package::slot::scale::scaled;
import package::slot::weight::{SHARERS, WORDS, decode};

@group(1) @binding(0) var<storage, read> w0: array<vec4<u32>>;

fn scale_word(i: u32) -> vec4<u32> { return w0[i]; }

// Unit k of a channel, scaled.
fn weight8(p: Place, channel: u32, k: u32) -> mat2x4<f32> {
    let unit = channel * p.units + k;
    let at = p.codes + unit / SHARERS * WORDS;
    return scaled(decode(w0[at], w0[at + WORDS - 1u], unit % SHARERS), p, channel, k);
}
