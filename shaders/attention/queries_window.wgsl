// The queries of a workgroup, read through a uniform binding that begins at the dispatch's first row. Fills the shader slot `queries` on software
// adapters.
@group(0) @binding(1) var<uniform> qkv: array<vec4<f32>, 4096>; // [rows, stride]: q [H, D] first, rotated and scaled

fn bring(m: u32, i: u32, at: u32) {}

fn query4(m: u32, i: u32, at: u32) -> vec4<f32> { return qkv[at + i]; }
