// What a recurrence reads of a few tokens, as a uniform: for adapters of type Cpu.
@group(1) @binding(0) var<uniform> feed: array<vec4<f32>, 4096>;
