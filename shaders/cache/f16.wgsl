// Keys and values stored as f16, without f16 arithmetic, which the adapter may lack. Fills the shader slot `cache`.
alias Eight = vec4<u32>;
alias Two = u32;

// The largest f16. Larger values are clamped to LARGEST: an infinite key would spoil the attention of every later token.
const LARGEST: f32 = 65504.0;

fn pack2(x: vec2<f32>) -> Two { return pack2x16float(clamp(x, vec2(-LARGEST), vec2(LARGEST))); }
fn unpack2(x: Two) -> vec2<f32> { return unpack2x16float(x); }
fn pack8(a: vec4<f32>, b: vec4<f32>) -> Eight { return vec4(pack2(a.xy), pack2(a.zw), pack2(b.xy), pack2(b.zw)); }
fn unpack8(x: Eight) -> mat2x4<f32> {
    return mat2x4<f32>(vec4(unpack2(x.x), unpack2(x.y)), vec4(unpack2(x.z), unpack2(x.w)));
}
