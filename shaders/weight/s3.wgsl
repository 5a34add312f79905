// Codes of GGUF's Q3_K: code c has the value c - 4. Fills the shader slot `weight`; weight/f16 describes each name.
import package::lib::codes::{bits, minus, pairs, split_bits, split_pairs, whole};

const SHARERS: u32 = 4u;
const WORDS: u32 = 1u;
const CELL_WORDS: u32 = 3u;
const SCALE_UNITS: u32 = 2u;
const CODE_STEP: f32 = 1.0;
const MINIMUM_BITS: u32 = 0u;
const SIX_BITS: bool = true;

fn decode(a: vec4<u32>, b: vec4<u32>, i: u32) -> mat2x4<f32> {
    let low = pairs(b, i, 0u);
    let high = bits(b, i, 2u);
    return mat2x4<f32>(whole(low[0] | high[0], 4.0), whole(low[1] | high[1], 4.0));
}

fn bytes8(a: vec4<u32>, b: vec4<u32>, i: u32) -> vec2<u32> { return minus(split_pairs(b, i, 0u) | split_bits(b, i, 2u), 4u); }

// This format needs no preparation.
fn begin_weights(lane: u32) {}
