// The recurrent state in f16, read and written four elements at a time. The padding of a row is zero. No f16 arithmetic is used, because the
// adapter may lack it. Fills the shader slot `state`.
@group(0) @binding(6) var<storage, read_write> state: array<vec2<u32>>; // [pages, width, QUARTERS]

fn load4(at: u32) -> vec4<f32> {
    let x = state[at];
    return vec4(unpack2x16float(x.x), unpack2x16float(x.y));
}

// Stores a result of `kept`. These values are exact in f16, so packing does not round them.
fn store4(at: u32, x: vec4<f32>) { state[at] = vec2(pack2x16float(x.xy), pack2x16float(x.zw)); }

// The largest f16. Larger values are clamped to LARGEST: an infinite value would stay in the state forever.
const LARGEST: f32 = 65504.0;
// The smallest normal f16.
const SMALLEST: f32 = 0.00006103515625;
// The distance between neighbouring subnormal f16 values.
const STEP: f32 = 0.000000059604644775390625;

// Rounds values to the nearest f16, ties to even, and clamps them. Some drivers truncate when they pack, and a truncated state would shrink with
// every token. So this function does not round by packing.
fn kept(x: vec4<f32>) -> vec4<f32> {
    let within = clamp(x, vec4(-LARGEST), vec4(LARGEST));
    let bits = bitcast<vec4<u32>>(within);
    let odd = (bits >> vec4(13u)) & vec4(1u);
    let rounded = bitcast<vec4<f32>>((bits + vec4(0xfffu) + odd) & vec4(0xffffe000u));
    return select(rounded, round(within * (1.0 / STEP)) * STEP, abs(within) < vec4(SMALLEST));
}
