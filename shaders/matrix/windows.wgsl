// Eight tiles of a matrix by rows, each a uniform binding of 64 KiB.
// In the last group: Mesa 22.3 looks for uniforms that decide loops and branches, and where such a one lies behind more than a few
// uniform buffers it writes past an array of its own. So parameters and cursor come first.
unroll i in 8 {
@group(3) @binding($i) var<uniform> w$i: array<vec4<u32>, 4096>;
}
