// The vectors that a recurrence reads for each of a few tokens, in a uniform binding (layout: rwkv/wkv). Fills the shader slot `feed` on software
// adapters.
@group(1) @binding(0) var<uniform> feed: array<vec4<f32>, 4096>;
