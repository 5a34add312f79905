// Adds up SUMS values over the WG lanes of a workgroup, in the order of lib/reduce. Fills the shader slot `sums`. One pair of barriers
// serves two values; more values at a time would take more workgroup memory.
// Slot reduce: lib/reduce, lib/reduce_lanes
import package::slot::reduce::WG;
import package::constants::SUMS;

// The number of values that one pair of barriers serves.
const ROUND: u32 = min(SUMS, 2u);
var<workgroup> of_lanes: array<vec4<f32>, ROUND * WG>; // [ROUND, WG]
var<workgroup> of_eighths: array<vec4<f32>, 8u * SUMS>; // [SUMS, 8]

// Adds up each of `values` over all lanes. Call `add_up` once, and from uniform control flow, because it contains barriers. After the call, every
// lane may call `total`.
fn add_up(values: array<vec4<f32>, SUMS>, lane: u32) {
    unroll v in SUMS {
        of_lanes[$vu % ROUND * WG + lane] = values[$v];
        if $vu % ROUND + 1u == ROUND || $vu + 1u == SUMS {
            workgroupBarrier();
            if lane < 8u * ($vu % ROUND + 1u) {
                let at = lane / 8u * WG + lane % 8u;
                var sum = of_lanes[at];
                for (var i = 8u; i < WG; i += 8u) { sum += of_lanes[at + i]; }
                of_eighths[$vu / ROUND * ROUND * 8u + lane] = sum;
            }
            workgroupBarrier();
        }
    }
}

// Returns element e of the sum of values[i].
fn total(i: u32, e: u32) -> f32 {
    let at = 8u * i;
    return ((of_eighths[at][e] + of_eighths[at + 1u][e]) + (of_eighths[at + 2u][e] + of_eighths[at + 3u][e]))
        + ((of_eighths[at + 4u][e] + of_eighths[at + 5u][e]) + (of_eighths[at + 6u][e] + of_eighths[at + 7u][e]));
}
