// What a product reads: rows of x as they are.
import package::linear::stack::params;

struct Input {
    // Stride of a row of x, in units of 4.
    x_stride: u32,
}

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>; // [T, x_stride]

// Where a token's input comes from. Every module in the place of this one has such a struct and these two functions.
struct Source { at: u32 }

// Once a workgroup and token: row t, from x_at on.
fn begin(t: u32, x_at: u32, lane: u32, is_first: bool) -> Source { return Source(t * params.input.x_stride + x_at); }

// Elements 4 i .. 4 i + 3 of that row.
fn input4(source: Source, i: u32) -> vec4<f32> { return x[source.at + i]; }
