// Eight tiles of a row-major matrix, each a uniform binding of 64 KiB. Fills the shader slot `matrix` if the format has no scales. The tiles are in
// the last bind group, after parameters and cursor, because of a bug in Mesa 22.3. If a uniform that controls a loop or a branch is bound after many
// uniform buffers, Mesa writes beyond the end of an array.
unroll i in 8 {
    @group(3) @binding($i) var<uniform> w$i: array<vec4<u32>, 4096>;
}
