// Eight tiles of half-precision weights, each a uniform binding of 64 KiB. tile<i>(u) gives weights 8 u .. 8 u + 7 of tile i.
// In the last group: Mesa 22.3 looks for uniforms that decide loops and branches, and where such a one lies behind more than a few
// uniform buffers it writes past an array of its own. So parameters and cursor come first.
unroll i in 8 {
@group(3) @binding($i) var<uniform> w$i: array<vec4<u32>, 4096>;

fn tile$i(u: u32) -> mat2x4<f32> {
    let w = w$i[u];
    return mat2x4<f32>(
        vec4(unpack2x16float(w.x), unpack2x16float(w.y)),
        vec4(unpack2x16float(w.z), unpack2x16float(w.w)),
    );
}
}
