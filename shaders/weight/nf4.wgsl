// NormalFloat with 4 bits: QLoRA paper, appendix E. Fills the shader slot `weight`; weight/f16 describes each name. `select` chooses the
// value bit by bit, which suits software adapters. Products on GPUs use weight/nf4_table.
const SHARERS: u32 = 4u;
const WORDS: u32 = 1u;
const CELL_WORDS: u32 = 0u;
const SCALE_UNITS: u32 = 8u;

fn four(w: u32) -> vec4<f32> {
    let code = vec4(w) >> vec4(0u, 4u, 8u, 12u);
    let one = (code & vec4(1u)) != vec4(0u);
    let two = (code & vec4(2u)) != vec4(0u);
    let low = select(
        select(select(vec4(-1.0), vec4(-0.6961928), one), select(vec4(-0.52507305), vec4(-0.3949175), one), two),
        select(select(vec4(-0.28444138), vec4(-0.18477343), one), select(vec4(-0.091050036), vec4(0.0), one), two),
        (code & vec4(4u)) != vec4(0u),
    );
    let high = select(
        select(select(vec4(0.0795803), vec4(0.1609302), one), select(vec4(0.2461123), vec4(0.33791524), one), two),
        select(select(vec4(0.44070983), vec4(0.562617), one), select(vec4(0.72295684), vec4(1.0), one), two),
        (code & vec4(4u)) != vec4(0u),
    );
    return select(low, high, (code & vec4(8u)) != vec4(0u));
}

fn decode(a: vec4<u32>, b: vec4<u32>, i: u32) -> mat2x4<f32> { return mat2x4<f32>(four(a[i]), four(a[i] >> 16u)); }

// This format needs no preparation.
fn begin_weights(lane: u32) {}
