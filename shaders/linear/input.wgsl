// The input of a product: rows of x, unchanged. Fills the shader slot `input`; every module of this shader slot defines the same names.
import package::linear::stack::params;

struct Input {
    // Stride of a row of x, in vectors of 4 floats.
    x_stride: u32,
}

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>; // [T, x_stride]

// Returns where the input of token t begins, in vectors of 4 floats: at vector `x_at` of row t of x.
fn input_at(x_at: u32, t: u32) -> u32 { return t * params.input.x_stride + x_at; }

// The input of one token: the index in x at which the input begins.
struct Source { at: u32 }

// Returns the input of token t, as `input_at` does. Every lane calls `begin` once per token. `is_first` is true in the
// first workgroup of the grid, the only one that stores parts of the input.
fn begin(t: u32, x_at: u32, lane: u32, is_first: bool) -> Source { return Source(input_at(x_at, t)); }

// Returns elements 4 i ..= 4 i + 3 of a token's input.
fn input4(source: Source, i: u32) -> vec4<f32> { return x[source.at + i]; }
