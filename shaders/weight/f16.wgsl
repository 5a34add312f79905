// Half-precision weights, eight in 16 bytes. No f16 arithmetic: the adapter need not have it.
@group(1) @binding(0) var<storage, read> weight: array<vec4<u32>>;

// Weights 8 i .. 8 i + 7 of this piece.
fn weight8(i: u32) -> mat2x4<f32> {
    let w = weight[i];
    return mat2x4<f32>(
        vec4(unpack2x16float(w.x), unpack2x16float(w.y)),
        vec4(unpack2x16float(w.z), unpack2x16float(w.w)),
    );
}
