// The input of a product, rounded by linear/round. Fills the shader slot `input` of linear/tiled_rounded.
struct Input {
    // Stride of a row of x, in 16-byte words.
    x_stride: u32,
}

@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>; // [T, x_stride]
