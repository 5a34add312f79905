// int4: code c has the value (c - 8) / 8. Fills the shader slot `weight`; weight/f16 describes each name. A code's four bits go into the
// mantissa of the float 2^20, 2^16, 2^12 or 2^8, where one step is 1/8. So one subtraction decodes a code.
import package::lib::codes::{minus, split};

const SHARERS: u32 = 4u;
const WORDS: u32 = 1u;
const CELL_WORDS: u32 = 0u;
const SCALE_UNITS: u32 = 8u;
const CODE_STEP: f32 = 1.0 / 8.0;

fn four(w: u32) -> vec4<f32> {
    let bits = vec4(w) & vec4(0xfu, 0xf0u, 0xf00u, 0xf000u);
    let exponents = vec4(0x49800000u, 0x47800000u, 0x45800000u, 0x43800000u);
    return bitcast<vec4<f32>>(bits | exponents) - vec4(1048577.0, 65537.0, 4097.0, 257.0);
}

fn decode(a: vec4<u32>, b: vec4<u32>, i: u32) -> mat2x4<f32> { return mat2x4<f32>(four(a[i]), four(a[i] >> 16u)); }

fn bytes8(a: vec4<u32>, b: vec4<u32>, i: u32) -> vec2<u32> { return minus(split(a[i]), 8u); }

// This format needs no preparation.
fn begin_weights(lane: u32) {}
