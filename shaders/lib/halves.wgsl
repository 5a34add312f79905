// Unpacks the eight f16 values of a 16-byte word.
fn halves(word: vec4<u32>) -> mat2x4<f32> {
    return mat2x4<f32>(
        vec4(unpack2x16float(word.x), unpack2x16float(word.y)),
        vec4(unpack2x16float(word.z), unpack2x16float(word.w)),
    );
}
