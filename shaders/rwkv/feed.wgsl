// What a recurrence reads of every token, as a storage buffer.
@group(1) @binding(0) var<storage, read> feed: array<vec4<f32>>;
