// Codes of GGUF's Q5_1 and Q5_K: code c has the value c. Fills the shader slot `weight`; weight/f16 describes each name.
import package::lib::codes::{bits, fours, split, split_bits, whole};

const SHARERS: u32 = 4u;
const WORDS: u32 = 1u;
const CELL_WORDS: u32 = 5u;
const SCALE_UNITS: u32 = 4u;
const CODE_STEP: f32 = 1.0;
const MINIMUM_BITS: u32 = 8u;
const SIX_BITS: bool = false;

fn decode(a: vec4<u32>, b: vec4<u32>, i: u32) -> mat2x4<f32> {
    let high = bits(b, i, 4u);
    return mat2x4<f32>(whole(fours(a[i]) | high[0], 0.0), whole(fours(a[i] >> 16u) | high[1], 0.0));
}

fn bytes8(a: vec4<u32>, b: vec4<u32>, i: u32) -> vec2<u32> { return split(a[i]) | split_bits(b, i, 4u); }

// This format needs no preparation.
fn begin_weights(lane: u32) {}
