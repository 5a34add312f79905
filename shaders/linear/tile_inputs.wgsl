// The activations of a tile of tokens: what every tiled product reads of x.
import package::linear::stack::{Segment, params};
import package::slot::input::x;
import package::slot::tile::UNITS;

// Unit u of the tile of `tokens` tokens that begins at token t0 of n and unit k of the width: eight of one token, of which neighbours
// share one. Zeros outside.
fn tile_input(s: Segment, tokens: u32, t0: u32, n: u32, k: u32, u: u32) -> mat2x4<f32> {
    let token = t0 + u / UNITS;
    let unit = k + u % UNITS;
    if u >= UNITS * tokens || token >= n || unit >= s.k8 { return mat2x4<f32>(); }
    let at = token * params.input.x_stride + s.x_at + 2u * unit;
    return mat2x4<f32>(x[at], x[at + 1u]);
}
