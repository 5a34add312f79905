// Sum over a workgroup of WG lanes, in a fixed order; every lane gets it. Call from uniform control flow.
const WG: u32 = 64u;
var<workgroup> partial: array<vec4<f32>, WG>;

fn reduce_sum(value: vec4<f32>, lane: u32) -> vec4<f32> {
    workgroupBarrier();
    partial[lane] = value;
    workgroupBarrier();
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        if lane < half { partial[lane] += partial[lane + half]; }
        workgroupBarrier();
    }
    return partial[0];
}
