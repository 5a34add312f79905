// Sum over a workgroup of WG lanes, in a fixed order; every lane gets it. Call from uniform control flow.
// Eight lanes add eight values each, then all add those eight: two barriers, where halving would take seven. The next call needs none
// before it: between two writes of either array all lanes have met.
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
