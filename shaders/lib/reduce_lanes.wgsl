// The sum of `lib/reduce` over eight lanes, for adapters of type Cpu: one vector of the host, so that a barrier costs nothing.
const WG: u32 = 8u;
var<workgroup> partial: array<vec4<f32>, WG>;

fn reduce_sum(value: vec4<f32>, lane: u32) -> vec4<f32> {
    workgroupBarrier();
    partial[lane] = value;
    workgroupBarrier();
    return ((partial[0] + partial[1]) + (partial[2] + partial[3])) + ((partial[4] + partial[5]) + (partial[6] + partial[7]));
}
