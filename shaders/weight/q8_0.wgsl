// GGUF's Q8_0: code c has the value c - 128. Fills the shader slot `weight`; weight/f16 describes each name. A code's byte goes into the
// mantissa of the float 2^23 or 2^15, where one step is 1. So one subtraction decodes a code.
const SHARERS: u32 = 2u;
const WORDS: u32 = 1u;
const CELL_WORDS: u32 = 0u;
const SCALE_UNITS: u32 = 4u;
const CODE_STEP: f32 = 1.0;

fn four(w: u32) -> vec4<f32> {
    let bits = vec4(w, w, w >> 16u, w >> 16u) & vec4(0xffu, 0xff00u, 0xffu, 0xff00u);
    return bitcast<vec4<f32>>(bits | vec4(0x4b000000u, 0x47000000u, 0x4b000000u, 0x47000000u)) - vec4(8388736.0, 32896.0, 8388736.0, 32896.0);
}

fn decode(a: vec4<u32>, b: vec4<u32>, i: u32) -> mat2x4<f32> { return mat2x4<f32>(four(a[2u * i]), four(a[2u * i + 1u])); }

fn bytes8(a: vec4<u32>, b: vec4<u32>, i: u32) -> vec2<u32> { return vec2(a[2u * i], a[2u * i + 1u]) ^ vec2(0x80808080u); }

// This format needs no preparation.
fn begin_weights(lane: u32) {}
