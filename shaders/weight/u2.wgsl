// Codes of GGUF's Q2_K: code c has the value c. Fills the shader slot `weight`; weight/f16 describes each name.
import package::lib::codes::{pairs, split_pairs, whole};

const SHARERS: u32 = 4u;
const WORDS: u32 = 1u;
const CELL_WORDS: u32 = 2u;
const SCALE_UNITS: u32 = 2u;
const CODE_STEP: f32 = 1.0;
const MINIMUM_BITS: u32 = 4u;
const SIX_BITS: bool = false;

fn decode(a: vec4<u32>, b: vec4<u32>, i: u32) -> mat2x4<f32> {
    let low = pairs(b, i, 0u);
    return mat2x4<f32>(whole(low[0], 0.0), whole(low[1], 0.0));
}

fn bytes8(a: vec4<u32>, b: vec4<u32>, i: u32) -> vec2<u32> { return split_pairs(b, i, 0u); }

// This format needs no preparation.
fn begin_weights(lane: u32) {}
