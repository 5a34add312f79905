// Codes of GGUF's IQ4_NL and IQ4_XS, indices of a table. Fills the shader slot `weight`; weight/f16 describes each name. The table has sixteen
// values. Each value plus 128 is one byte of four numbers. Two bits of a code select a number, the other two bits select a byte.

const SHARERS: u32 = 4u;
const WORDS: u32 = 1u;
const CELL_WORDS: u32 = 0u;
const SCALE_UNITS: u32 = 4u;
const CODE_STEP: f32 = 1.0;
const MINIMUM_BITS: u32 = 0u;
const SIX_BITS: bool = false;

// Returns the bytes of four codes, the low four bits of each element.
fn looked_up(code: vec4<u32>) -> vec4<u32> {
    let third = (code & vec4(4u)) != vec4(0u);
    let low = select(vec4(0x3f2d1801u), vec4(0x766a5d4fu), third);
    let high = select(vec4(0xa6998d81u), vec4(0xf1d9c5b5u), third);
    return (select(low, high, (code & vec4(8u)) != vec4(0u)) >> ((code & vec4(3u)) << vec4(3u))) & vec4(0xffu);
}

fn four(w: u32) -> vec4<f32> { return vec4<f32>(looked_up(vec4(w) >> vec4(0u, 4u, 8u, 12u))) - 128.0; }

fn bytes4(w: u32) -> u32 { return pack4xU8(looked_up(vec4(w) >> vec4(0u, 8u, 16u, 24u))) ^ 0x80808080u; }

fn decode(a: vec4<u32>, b: vec4<u32>, i: u32) -> mat2x4<f32> { return mat2x4<f32>(four(a[i]), four(a[i] >> 16u)); }

fn bytes8(a: vec4<u32>, b: vec4<u32>, i: u32) -> vec2<u32> { return vec2(bytes4(a[i]), bytes4(a[i] >> 4u)); }

// This format needs no preparation.
fn begin_weights(lane: u32) {}
