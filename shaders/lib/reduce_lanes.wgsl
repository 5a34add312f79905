// Adds up a value over a workgroup of eight lanes, as `lib/reduce` does. Fills the shader slot `reduce` on software adapters. There, eight lanes
// are one SIMD vector of the host, so a barrier costs nothing.
const WG: u32 = 8u;
var<workgroup> partial: array<vec4<f32>, WG>;

fn reduce_sum(value: vec4<f32>, lane: u32) -> vec4<f32> {
    workgroupBarrier();
    partial[lane] = value;
    workgroupBarrier();
    return ((partial[0] + partial[1]) + (partial[2] + partial[3])) + ((partial[4] + partial[5]) + (partial[6] + partial[7]));
}
