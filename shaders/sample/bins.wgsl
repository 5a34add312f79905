// Adds masses (probabilities that are not normalised, as integers) to 512 bins. Finds the first bin at which the running sum of bins
// exceeds a given mass. The sum of a bin has 64 bits, in two atomics. Workgroups have 256 lanes. Call every function but `add_to_bin` and
// `bin_at` from uniform control flow.
import package::sample::fixed::{add, less};

const BIN_BITS: u32 = 9u;
const BINS: u32 = 512u;
// The number of bins in a part. A search first adds up the bins of each part.
const PART: u32 = 32u;
// The low half of each bin's sum.
var<workgroup> low: array<atomic<u32>, BINS>;
// The high half of each bin's sum.
var<workgroup> high: array<atomic<u32>, BINS>;
var<workgroup> parts: array<vec2<u32>, 16>; // [BINS / PART]
var<workgroup> sum_of_bins: vec2<u32>;
var<workgroup> found: vec4<u32>;

// Returns the sum of bin i as (low, high).
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

// Returns the sum of all bins to every lane.
fn total_of_bins(lane: u32) -> vec2<u32> {
    workgroupBarrier();
    if lane < BINS / PART {
        var sum = vec2(0u);
        for (var i = 0u; i < PART; i++) { sum = add(sum, bin_at(lane * PART + i)); }
        parts[lane] = sum;
    }
    workgroupBarrier();
    if lane == 0u {
        var sum = vec2(0u);
        for (var i = 0u; i < BINS / PART; i++) { sum = add(sum, parts[i]); }
        sum_of_bins = sum;
    }
    return workgroupUniformLoad(&sum_of_bins);
}

// The result of `exceed`: a bin, and `mass` minus the sum of all earlier bins.
struct Place { bin: u32, rest: vec2<u32> }

// Returns the first bin at which the running sum of bins exceeds `mass`, and `mass` minus the sum of all earlier bins. Call `total_of_bins`
// first; its result must be larger than `mass`.
fn exceed(mass: vec2<u32>, lane: u32) -> Place {
    if lane == 0u {
        var rest = mass;
        var p = 0u;
        for (; p < BINS / PART - 1u && !less(rest, parts[p]); p++) { rest = subtract(rest, parts[p]); }
        var i = p * PART;
        for (; i < p * PART + PART - 1u && !less(rest, bin_at(i)); i++) { rest = subtract(rest, bin_at(i)); }
        found = vec4(i, rest, 0u);
    }
    let place = workgroupUniformLoad(&found);
    return Place(place.x, place.yz);
}
