// The sum of `lib/reduce` by subgroups: each adds up its own lanes, then all that any of them found.
// The first lane of a subgroup stands for it, so this is right for subgroups of any size, however a driver maps lanes to them.
// Both barriers stand where lanes must have come together again. The order of a sum is the driver's, and the same in every run;
// drivers that choose another subgroup size for another kernel may round differently there.
enable subgroups;
const WG: u32 = 64u;
var<workgroup> partial: array<vec4<f32>, WG>;

fn reduce_sum(value: vec4<f32>, lane: u32) -> vec4<f32> {
    workgroupBarrier();
    let sum = subgroupAdd(value);
    partial[lane] = select(vec4(0.0), sum, lane == subgroupBroadcastFirst(lane));
    workgroupBarrier();
    let size = subgroupAdd(1u);
    var total = vec4(0.0);
    for (var i = subgroupExclusiveAdd(1u); i < WG; i += size) { total += partial[i]; }
    return subgroupAdd(total);
}
