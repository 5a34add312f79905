// Eight tiles of single-precision weights, each a uniform binding of 64 KiB. tile<i>(u) gives weights 8 u .. 8 u + 7 of tile i.
// In the last group: Mesa 22.3 looks for uniforms that decide loops and branches, and where such a one lies behind more than a few
// uniform buffers it writes past an array of its own. So parameters and cursor come first.
unroll i in 8 {
@group(3) @binding($i) var<uniform> w$i: array<vec4<f32>, 4096>;

fn tile$i(u: u32) -> mat2x4<f32> { return mat2x4<f32>(w$i[2u * u], w$i[2u * u + 1u]); }
}
