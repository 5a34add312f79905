// The vectors that a recurrence reads per token, in a storage buffer. Fills the slot `feed`; rwkv/wkv has the layout.
@group(1) @binding(0) var<storage, read> feed: array<vec4<f32>>;
