// The tiles of matrix/windows, and the scales of all tiles in one more uniform. Fills the shader slot `matrix` if the format has scales.
import package::matrix::windows::w0;

@group(3) @binding(8) var<uniform> scales: array<vec4<u32>, 4096>;

fn scale_word(i: u32) -> vec4<u32> { return scales[i]; }
