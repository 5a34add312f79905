// Single-precision weights, eight in 32 bytes.
@group(1) @binding(0) var<storage, read> weight: array<vec4<f32>>;

// Weights 8 i .. 8 i + 7 of this piece.
fn weight8(i: u32) -> mat2x4<f32> { return mat2x4<f32>(weight[2u * i], weight[2u * i + 1u]); }
