// Eight tiles of a row-major matrix, each a uniform binding of 64 KiB. Fills the slot `matrix` if the format has no scales.
// The tiles are in the last bind group, after parameters and cursor, because of a fault in Mesa 22.3: it looks for uniforms that decide
// loops and branches, and writes past the end of an array if such a uniform follows more than a few uniform buffers.
unroll i in 8 {
@group(3) @binding($i) var<uniform> w$i: array<vec4<u32>, 4096>;
}
