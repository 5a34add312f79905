// Adds up SUMS values over the WG lanes of a workgroup by subgroups, with one pair of barriers for all values. Fills the shader slot `sums`.
// Workgroup memory has one place per four lanes. Each subgroup adds up the values of its lanes and stores the sum at the place of its first lane. The
// other places of a subgroup are zero. This needs the lanes 4 i ..= 4 i + 3 in one subgroup, as with all known drivers whose subgroups have at least
// four lanes. Then the order of additions is the same as in lib/reduce_subgroup.
// Slot reduce: lib/reduce_subgroup
enable subgroups;
import package::slot::reduce::WG;
import package::constants::SUMS;

const PLACES: u32 = WG / 4u;
var<workgroup> of_subgroups: array<vec4<f32>, SUMS * PLACES>; // [SUMS, PLACES]

// Adds up each of `values` over all lanes. Call `add_up` once, and from uniform control flow, because it contains barriers. After the call, every
// lane may call `total`.
fn add_up(values: array<vec4<f32>, SUMS>, lane: u32) {
    // The barrier makes lanes converge before a subgroup operation.
    workgroupBarrier();
    let first = subgroupBroadcastFirst(lane);
    unroll v in SUMS {
        let sum_$v = subgroupAdd(values[$v]);
        if lane % 4u == 0u { of_subgroups[$vu * PLACES + lane / 4u] = select(vec4(0.0), sum_$v, lane == first); }
    }
    workgroupBarrier();
}

// Returns element e of the sum of values[i].
fn total(i: u32, e: u32) -> f32 {
    var sum = 0.0;
    for (var place = 0u; place < PLACES; place++) { sum += of_subgroups[i * PLACES + place][e]; }
    return sum;
}
