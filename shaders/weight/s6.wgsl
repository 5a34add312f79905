// Codes of GGUF's Q6_K: code c has the value c - 32. Fills the shader slot `weight`; weight/f16 describes each name.
import package::lib::codes::{fours, minus, pairs, split, split_pairs, whole};

const SHARERS: u32 = 4u;
const WORDS: u32 = 1u;
const CELL_WORDS: u32 = 6u;
const SCALE_UNITS: u32 = 2u;
const CODE_STEP: f32 = 1.0;
const MINIMUM_BITS: u32 = 0u;
const SIX_BITS: bool = false;

fn decode(a: vec4<u32>, b: vec4<u32>, i: u32) -> mat2x4<f32> {
    let high = pairs(b, i, 4u);
    return mat2x4<f32>(whole(fours(a[i]) | high[0], 32.0), whole(fours(a[i] >> 16u) | high[1], 32.0));
}

fn bytes8(a: vec4<u32>, b: vec4<u32>, i: u32) -> vec2<u32> { return minus(split(a[i]) | split_pairs(b, i, 4u), 32u); }

// This format needs no preparation.
fn begin_weights(lane: u32) {}
