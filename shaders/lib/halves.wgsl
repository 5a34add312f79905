// Unpacks the eight f16 values of a 16-byte word.
fn halves(word: vec4<u32>) -> mat2x4<f32> {
    return mat2x4<f32>(
        vec4(unpack2x16float(word.x), unpack2x16float(word.y)),
        vec4(unpack2x16float(word.z), unpack2x16float(word.w)),
    );
}

// Unpacks the values of rows row ..= row + 3 from a word with the values of eight rows. `row` is a multiple of four.
fn four_halves(word: vec4<u32>, row: u32) -> vec4<f32> {
    let two = select(word.xy, word.zw, (row & 4u) != 0u);
    return vec4(unpack2x16float(two.x), unpack2x16float(two.y));
}
