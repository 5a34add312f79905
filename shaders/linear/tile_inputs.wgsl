// Reads the inputs of a tile: some inputs of some tokens. Every tiled product uses this module.
// Slot input: linear/input
// Slot tile: linear/tile_columns, linear/tile_rows
import package::linear::stack::{Segment, params};
import package::slot::input::x;
import package::slot::tile::UNITS;

// Returns unit u of a tile: eight inputs of one token. The tile has the inputs of tokens t0 .. t0 + tokens, and begins at unit k of the width. x
// has n tokens. The units of a token have consecutive indices u. Returns zeros outside x.
fn tile_input(s: Segment, tokens: u32, t0: u32, n: u32, k: u32, u: u32) -> mat2x4<f32> {
    let token = t0 + u / UNITS;
    let unit = k + u % UNITS;
    if u >= UNITS * tokens || token >= n || unit >= s.k8 { return mat2x4<f32>(); }
    let at = token * params.input.x_stride + s.x_at + 2u * unit;
    return mat2x4<f32>(x[at], x[at + 1u]);
}
