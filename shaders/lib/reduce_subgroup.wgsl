// Adds up a value over the WG lanes of a workgroup by subgroups. Every lane receives the sum. Fills the shader slot `reduce`. Each subgroup adds up
// the values of its lanes. The first lane of a subgroup stores the sum at its own index in `partial`, the other lanes store zeros. Then each subgroup
// adds up all of `partial`. This is right for any subgroup size and any mapping of lanes to subgroups. The barriers also make lanes converge before a
// subgroup operation. The driver determines the order of the sum, the same in every run. Kernels with another subgroup size may round differently.
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
