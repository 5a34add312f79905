// NormalFloat with 4 bits, for GPUs: the values of weight/nf4 in a table in workgroup memory. The entries are in different memory banks, so
// lanes that read different entries do not wait for each other. Fills the shader slot `weight`; weight/f16 describes each name.
const SHARERS: u32 = 4u;
const WORDS: u32 = 1u;
const CELL_WORDS: u32 = 0u;
const SCALE_UNITS: u32 = 8u;

var<workgroup> nf4_values: array<f32, 16>;

fn four(w: u32) -> vec4<f32> {
    return vec4(nf4_values[w & 15u], nf4_values[(w >> 4u) & 15u], nf4_values[(w >> 8u) & 15u], nf4_values[(w >> 12u) & 15u]);
}

fn decode(a: vec4<u32>, b: vec4<u32>, i: u32) -> mat2x4<f32> { return mat2x4<f32>(four(a[i]), four(a[i] >> 16u)); }

// Fills the table `nf4_values`.
fn begin_weights(lane: u32) {
    if lane == 0u {
        nf4_values = array<f32, 16>(
            -1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0,
            0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
        );
    }
    workgroupBarrier();
}
