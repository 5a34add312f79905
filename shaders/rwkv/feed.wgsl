// The vectors that a recurrence reads for each token, in a storage buffer (layout: rwkv/wkv). Fills the shader slot `feed`.
@group(1) @binding(0) var<storage, read> feed: array<vec4<f32>>;
