// The state of the recurrence in half precision, four numbers at a time; what pads a row is zero. No f16 arithmetic: the adapter need
// not have it.
@group(0) @binding(6) var<storage, read_write> state: array<vec2<u32>>; // [pages, width, QUARTERS]

fn load4(at: u32) -> vec4<f32> {
    let x = state[at];
    return vec4(unpack2x16float(x.x), unpack2x16float(x.y));
}

// Takes what `kept` gives, which fits without rounding.
fn store4(at: u32, x: vec4<f32>) { state[at] = vec2(pack2x16float(x.xy), pack2x16float(x.zw)); }

// What is too large becomes the largest that there is: an infinite number would stay in the state for good.
const LARGEST: f32 = 65504.0;
// The smallest number with all bits, and the distance of those below it.
const SMALLEST: f32 = 0.00006103515625;
const STEP: f32 = 0.000000059604644775390625;

// What is left of numbers once they were stored, rounded to nearest, ties to even. Not by packing: drivers may cut bits off there, which
// shrinks a state a little with every token.
fn kept(x: vec4<f32>) -> vec4<f32> {
    let within = clamp(x, vec4(-LARGEST), vec4(LARGEST));
    let bits = bitcast<vec4<u32>>(within);
    let odd = (bits >> vec4(13u)) & vec4(1u);
    let rounded = bitcast<vec4<f32>>((bits + vec4(0xfffu) + odd) & vec4(0xffffe000u));
    return select(rounded, round(within * (1.0 / STEP)) * STEP, abs(within) < vec4(SMALLEST));
}
