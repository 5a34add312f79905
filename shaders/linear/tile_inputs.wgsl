// Reads the inputs of a tile: some inputs of some tokens. Every tiled product uses this module.
// Slot stack: experts/stack, linear/stack
// Slot input: experts/input, linear/input
// Slot tile: linear/tile_columns, linear/tile_rows
import package::slot::stack::Segment;
import package::slot::input::{input_at, x};
import package::slot::tile::UNITS;

// The place of a unit that is outside x.
const OUTSIDE: u32 = 0xffffffffu;

// Returns the place of unit u of a tile: the index in x at which the input of the unit's token begins. The tile has the inputs of `tokens` tokens
// from s.t0 on, each with UNITS consecutive units.
fn tile_source(s: Segment, tokens: u32, u: u32) -> u32 {
    let token = s.t0 + u / UNITS;
    if u >= UNITS * tokens || token >= s.n { return OUTSIDE; }
    return input_at(s.x_at, token);
}

// Returns unit u of the tile that begins at unit k of the width: eight inputs of one token. `place` is the place of unit u. Returns zeros outside x.
fn tile_input(s: Segment, place: u32, k: u32, u: u32) -> mat2x4<f32> {
    let unit = k + u % UNITS;
    if place == OUTSIDE || unit >= s.k8 { return mat2x4<f32>(); }
    return mat2x4<f32>(x[place + 2u * unit], x[place + 2u * unit + 1u]);
}
