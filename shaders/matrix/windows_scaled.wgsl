// The same with the scales of all tiles in another uniform.
import package::matrix::windows::w0;

@group(3) @binding(8) var<uniform> scales: array<vec4<u32>, 4096>;

fn scale_word(i: u32) -> vec4<u32> { return scales[i]; }
