// GGUF's Q4_0: code c has the value c - 8. Fills the shader slot `weight`; weight/f16 describes each name. A code's four bits go into the
// mantissa of the float 2^23, 2^19, 2^15 or 2^11, where one step is 1. So one subtraction decodes a code.
import package::lib::codes::{minus, split};

const SHARERS: u32 = 4u;
const WORDS: u32 = 1u;
const CELL_WORDS: u32 = 0u;
const SCALE_UNITS: u32 = 4u;
const CODE_STEP: f32 = 1.0;

fn four(w: u32) -> vec4<f32> {
    let bits = vec4(w) & vec4(0xfu, 0xf0u, 0xf00u, 0xf000u);
    let exponents = vec4(0x4b000000u, 0x49000000u, 0x47000000u, 0x45000000u);
    return bitcast<vec4<f32>>(bits | exponents) - vec4(8388616.0, 524296.0, 32776.0, 2056.0);
}

fn decode(a: vec4<u32>, b: vec4<u32>, i: u32) -> mat2x4<f32> { return mat2x4<f32>(four(a[i]), four(a[i] >> 16u)); }

fn bytes8(a: vec4<u32>, b: vec4<u32>, i: u32) -> vec2<u32> { return minus(split(a[i]), 8u); }

// This format needs no preparation.
fn begin_weights(lane: u32) {}
