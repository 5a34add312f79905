// Codes of GGUF's Q4_1 and Q4_K: code c has the value c. Fills the shader slot `weight`; weight/f16 describes each name.
import package::lib::codes::{fours, split, whole};

const SHARERS: u32 = 4u;
const WORDS: u32 = 1u;
const CELL_WORDS: u32 = 0u;
const SCALE_UNITS: u32 = 4u;
const CODE_STEP: f32 = 1.0;
const MINIMUM_BITS: u32 = 8u;
const SIX_BITS: bool = false;

fn decode(a: vec4<u32>, b: vec4<u32>, i: u32) -> mat2x4<f32> { return mat2x4<f32>(whole(fours(a[i]), 0.0), whole(fours(a[i] >> 16u), 0.0)); }

fn bytes8(a: vec4<u32>, b: vec4<u32>, i: u32) -> vec2<u32> { return split(a[i]); }

// This format needs no preparation.
fn begin_weights(lane: u32) {}
