// The inputs of a tile of tokens, for every tiled product.
import package::linear::stack::{Segment, params};
import package::slot::input::x;
import package::slot::tile::UNITS;

// Returns unit u of a tile of `tokens` tokens: eight inputs of one token. The tile begins at token t0 of the n tokens and at unit k of the
// width. Consecutive units have the same token. Returns zeros outside x.
fn tile_input(s: Segment, tokens: u32, t0: u32, n: u32, k: u32, u: u32) -> mat2x4<f32> {
    let token = t0 + u / UNITS;
    let unit = k + u % UNITS;
    if u >= UNITS * tokens || token >= n || unit >= s.k8 { return mat2x4<f32>(); }
    let at = token * params.input.x_stride + s.x_at + 2u * unit;
    return mat2x4<f32>(x[at], x[at + 1u]);
}
