// Adds up a value over the WG lanes of a workgroup, in a fixed order. Every lane receives the sum. Fills the shader slot `reduce`. Eight lanes add
// eight values each, then every lane adds the eight results. This takes two barriers, where adding in pairs would take seven. Call `reduce_sum` from
// uniform control flow, because it contains barriers. Two calls need no barrier between them: the barriers inside a call separate its writes from
// earlier reads.
const WG: u32 = 64u;
var<workgroup> partial: array<vec4<f32>, WG>;
var<workgroup> eighths: array<vec4<f32>, 8>;

fn reduce_sum(value: vec4<f32>, lane: u32) -> vec4<f32> {
    partial[lane] = value;
    workgroupBarrier();
    if lane < 8u {
        var sum = partial[lane];
        for (var i = lane + 8u; i < WG; i += 8u) { sum += partial[i]; }
        eighths[lane] = sum;
    }
    workgroupBarrier();
    return ((eighths[0] + eighths[1]) + (eighths[2] + eighths[3])) + ((eighths[4] + eighths[5]) + (eighths[6] + eighths[7]));
}
