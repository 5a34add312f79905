// Keys and values stored as f32. Fills the shader slot `cache`.
alias Eight = mat2x4<f32>;
alias Two = vec2<f32>;

fn pack2(x: vec2<f32>) -> Two { return x; }
fn unpack2(x: Two) -> vec2<f32> { return x; }
fn pack8(a: vec4<f32>, b: vec4<f32>) -> Eight { return mat2x4<f32>(a, b); }
fn unpack8(x: Eight) -> mat2x4<f32> { return x; }
