// Reads the inputs of a tile: some inputs of some tokens. Every tiled product uses this module.
// Slot stack: experts/stack, linear/stack
// Slot input: experts/input, linear/input
// Slot tile: linear/tile_columns, linear/tile_rows
import package::slot::stack::Segment;
import package::slot::input::{input_at, x};
import package::slot::tile::UNITS;

// Returns unit u of a tile: eight inputs of one token. The tile has the inputs of `tokens` tokens from s.t0 on, and begins at unit k of the width. The
// units of a token have consecutive indices u. Returns zeros outside x.
fn tile_input(s: Segment, tokens: u32, k: u32, u: u32) -> mat2x4<f32> {
    let token = s.t0 + u / UNITS;
    let unit = k + u % UNITS;
    if u >= UNITS * tokens || token >= s.n || unit >= s.k8 { return mat2x4<f32>(); }
    let at = input_at(s.x_at, token) + 2u * unit;
    return mat2x4<f32>(x[at], x[at + 1u]);
}
