// Decodes codes without conversions from integers. The bits of four codes, at a distance of four bits, go into the mantissas of the floats 2^23,
// 2^19, 2^15 and 2^11, where one step is 1. Then one subtraction returns the values. A code may have up to seven bits.

// Returns four codes minus `zero`. Bit 4 i + j of element i is bit j of its code; all other bits are 0.
fn whole(bits: vec4<u32>, zero: f32) -> vec4<f32> {
    let exponents = vec4(0x4b000000u, 0x49000000u, 0x47000000u, 0x45000000u);
    return bitcast<vec4<f32>>(bits | exponents) - (vec4(8388608.0, 524288.0, 32768.0, 2048.0) + zero);
}

// Returns the low four bits of the codes in the low half of w, at a distance of four bits.
fn fours(w: u32) -> vec4<u32> { return vec4(w) & vec4(0xfu, 0xf0u, 0xf00u, 0xf000u); }

// Returns eight numbers of four bits as bytes: the numbers with even indices, then the numbers with odd indices.
fn split(w: u32) -> vec2<u32> { return vec2(w, w >> 4u) & vec2(0x0f0f0f0fu); }

// Subtracts `zero` from bytes below 128. The results are signed bytes.
fn minus(bytes: vec2<u32>, zero: u32) -> vec2<u32> {
    return ((bytes | vec2(0x80808080u)) - vec2(0x01010101u * zero)) ^ vec2(0x80808080u);
}

// `pairs` returns two bits of each code of row i, and `bits` returns one bit: the low half of the row's codes, then the high half. matrix/cells
// describes `parts`. The bits are moved to bit `to` of each code. `to` is 0, 2 or 4.
fn pairs(parts: vec4<u32>, i: u32, to: u32) -> array<vec4<u32>, 2> {
    let w = select(parts.x, parts.y, i >= 2u) >> (2u * (i & 1u));
    let mask = vec4(3u, 0x30u, 0x300u, 0x3000u) << vec4(to);
    return array<vec4<u32>, 2>(vec4(w << to) & mask, vec4((w >> 16u) << to) & mask);
}

fn bits(parts: vec4<u32>, i: u32, to: u32) -> array<vec4<u32>, 2> {
    let w = parts.z >> i;
    let mask = vec4(1u, 0x10u, 0x100u, 0x1000u) << vec4(to);
    return array<vec4<u32>, 2>(vec4(w << to) & mask, vec4((w >> 16u) << to) & mask);
}

// `split_pairs` and `split_bits` return the same bits with one byte per code: the codes with even indices, then the codes with odd indices.
fn split_pairs(parts: vec4<u32>, i: u32, to: u32) -> vec2<u32> {
    let w = select(parts.x, parts.y, i >= 2u) >> (2u * (i & 1u));
    return (vec2(w, w >> 4u) & vec2(0x03030303u)) << vec2(to);
}

fn split_bits(parts: vec4<u32>, i: u32, to: u32) -> vec2<u32> {
    let w = parts.z >> i;
    return (vec2(w, w >> 4u) & vec2(0x01010101u)) << vec2(to);
}
