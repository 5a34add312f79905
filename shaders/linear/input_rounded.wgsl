// The input of a product, rounded by linear/round. Fills the shader slot `input` of linear/tiled_rounded.
import package::linear::stack::params;

struct Input {
    // Stride of a row of x, in 16-byte words.
    x_stride: u32,
}

@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>; // [T, x_stride]

// Returns where the input of token t begins, in words: at word `x_at` of row t of x.
fn input_at(x_at: u32, t: u32) -> u32 { return t * params.input.x_stride + x_at; }
