// The vectors that a recurrence reads for a few tokens, in a uniform binding. Fills the slot `feed` on adapters of type Cpu.
@group(1) @binding(0) var<uniform> feed: array<vec4<f32>, 4096>;
