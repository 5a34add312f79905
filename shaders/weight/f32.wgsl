// f32 weights. A unit of eight weights takes two 16-byte words. Fills the shader slot `weight`; weight/f16 describes each name.
const SHARERS: u32 = 1u;
const WORDS: u32 = 2u;
const CELL_WORDS: u32 = 0u;

fn decode(a: vec4<u32>, b: vec4<u32>, i: u32) -> mat2x4<f32> {
    return mat2x4<f32>(bitcast<vec4<f32>>(a), bitcast<vec4<f32>>(b));
}

// This format needs no preparation.
fn begin_weights(lane: u32) {}
