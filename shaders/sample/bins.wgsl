// Adds masses (probabilities that are not normalised, as integers) to 512 bins. Finds the first bin at which the running sum of bins exceeds a given
// mass. The sum of a bin has 64 bits, in two atomics. Workgroups have 256 lanes. All functions except `add_to_bin` and `bin_at` contain barriers, so
// call them from uniform control flow.
import package::sample::fixed::{add, less, subtract};

const BIN_BITS: u32 = 9u;
const BINS: u32 = 512u;
// The low half of each bin's sum.
var<workgroup> low: array<atomic<u32>, BINS>;
// The high half of each bin's sum.
var<workgroup> high: array<atomic<u32>, BINS>;
// For each lane i, the sum of bins 0 to 2 i + 1, in two rows: one is read while the other is written.
var<workgroup> sums: array<vec2<u32>, BINS>; // [2, 256]
var<workgroup> total: vec2<u32>;
var<workgroup> found: vec4<u32>;

// Returns the sum of bin i as a 64-bit number (low half, high half).
fn bin_at(i: u32) -> vec2<u32> { return vec2(atomicLoad(&low[i]), atomicLoad(&high[i])); }

// Sets all bins to zero.
fn clear_bins(lane: u32) {
    workgroupBarrier();
    for (var i = lane; i < BINS; i += 256u) {
        atomicStore(&low[i], 0u);
        atomicStore(&high[i], 0u);
    }
    workgroupBarrier();
}

// Adds a mass to bin i. Any lane may call `add_to_bin` at any time after `clear_bins`.
fn add_to_bin(i: u32, mass: vec2<u32>) {
    let before = atomicAdd(&low[i], mass.x);
    let carry = select(0u, 1u, before + mass.x < before);
    if mass.y + carry != 0u { atomicAdd(&high[i], mass.y + carry); }
}

// Returns the sum of all bins to every lane, and computes the running sums that `exceed` reads.
fn total_of_bins(lane: u32) -> vec2<u32> {
    workgroupBarrier();
    var sum = add(bin_at(2u * lane), bin_at(2u * lane + 1u));
    sums[lane] = sum;
    // In each round, lane i adds the sum of lane i - step, if i is at least step. After eight rounds, the sums are in row 0.
    var row = 0u;
    for (var step = 1u; step < 256u; step *= 2u) {
        workgroupBarrier();
        if lane >= step { sum = add(sum, sums[row + lane - step]); }
        row ^= 256u;
        sums[row + lane] = sum;
    }
    if lane == 255u { total = sum; }
    return workgroupUniformLoad(&total);
}

// The result of `exceed`: a bin, and `mass` minus the sum of all earlier bins.
struct Place { bin: u32, rest: vec2<u32> }

// Returns the first bin at which the running sum of bins exceeds `mass`, and `mass` minus the sum of all earlier bins. Call `total_of_bins` first,
// because it computes the running sums. Its result must be larger than `mass`, otherwise no running sum exceeds `mass`.
fn exceed(mass: vec2<u32>, lane: u32) -> Place {
    var before = vec2(0u);
    if lane > 0u { before = sums[lane - 1u]; }
    // The condition is true in exactly one lane.
    if !less(mass, before) && less(mass, sums[lane]) {
        let rest = subtract(mass, before);
        let first = bin_at(2u * lane);
        if less(rest, first) { found = vec4(2u * lane, rest, 0u); } else { found = vec4(2u * lane + 1u, subtract(rest, first), 0u); }
    }
    let place = workgroupUniformLoad(&found);
    return Place(place.x, place.yz);
}
