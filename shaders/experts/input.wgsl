// The input of a product of experts: rows of x, in the order of the list that experts/sort has written. Fills the shader slot `input`.
import package::experts::stack::params;

struct Input {
    // Stride of a row of x, and the distance between the inputs of two experts of a token, in vectors of 4 floats.
    x_stride: u32,
    x_slot: u32,
    // The number of experts of a token.
    used: u32,
}

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>; // [T, x_stride]
@group(0) @binding(2) var<storage, read> entries: array<u32>; // [T * used]: token * used + index of the expert among the token's experts

// Returns the index of an entry's input, in vectors of 4 floats. Entry i has a token and an expert, and `x_at` counts from the start of their input.
fn input_at(x_at: u32, i: u32) -> u32 {
    let input = params.input;
    return entries[i] / input.used * input.x_stride + entries[i] % input.used * input.x_slot + x_at;
}

// The input of one entry: the index in x at which the input begins.
struct Source { at: u32 }

// Returns the input of entry i, as `input_at` does.
fn begin(i: u32, x_at: u32, lane: u32, is_first: bool) -> Source { return Source(input_at(x_at, i)); }

// Returns elements 4 i ..= 4 i + 3 of an entry's input.
fn input4(source: Source, i: u32) -> vec4<f32> { return x[source.at + i]; }
