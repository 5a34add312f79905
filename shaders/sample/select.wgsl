// Finds tokens by mass, a probability that is not normalised. A token has the distance d = max - key, and the mass `mass(d)`. The tokens
// that may be sampled are the first tokens in the order (d, id), so their last token determines the set. No list is stored: every search
// reads the slot's keys again. Workgroups have 256 lanes. Call `reach` and `find` from uniform control flow.
import package::sample::fixed::{Scale, mass, add, less, subtract, share_of, uniform_below};
import package::sample::bins::{BINS, BIN_BITS, clear_bins, add_to_bin, total_of_bins, exceed};

// The keys: adjusted logits as ordered integers, four ids per element. A key is 0 if the id cannot be sampled. [slot, quads]
@group(0) @binding(4) var<storage, read_write> keys: array<vec4<u32>>;

const ALL: u32 = 0xffffffffu;

// A row of keys: its first element in `keys`, its number of elements, and its largest key.
struct Row { at: u32, quads: u32, max: u32 }

// A set of tokens: all tokens with a distance of at least `nearest` whose place in the order (d, id) is not after (farthest, last).
struct Window { nearest: u32, farthest: u32, last: u32 }

fn is_within(w: Window, d: u32, id: u32) -> bool {
    return d >= w.nearest && (d < w.farthest || (d == w.farthest && id <= w.last));
}

fn n_bits(x: u32) -> u32 { return 32u - countLeadingZeros(x); }

// An aim is a mass that a running sum must exceed. Its kind says how the aim is computed from `value`.
const GIVEN: u32 = 0u; // `value` itself
const SHARE: u32 = 1u; // the share value.x / 2^32 of the sum, minus one unit
const RANDOM: u32 = 2u; // `value` is a random number, scaled to the sum
struct Aim { kind: u32, value: vec2<u32> }

fn aim_at(aim: Aim, total: vec2<u32>) -> vec2<u32> {
    if aim.kind == SHARE { return subtract(share_of(total, aim.value.x), vec2(1u, 0u)); }
    if aim.kind == RANDOM { return uniform_below(aim.value, total); }
    return aim.value;
}

// The result of `reach`. `distance` is the smallest distance such that the tokens within this distance have more mass than the aim. `rest`
// is the aim minus the mass of all nearer tokens. `is_short` is true if all tokens together do not exceed the aim.
struct Reached { distance: u32, rest: vec2<u32>, is_short: bool }

// Finds the distance at which the running sum of a window's masses exceeds the aim, nearest token first. Each pass finds BIN_BITS bits of
// the distance, the highest bits first.
fn reach(row: Row, w: Window, s: Scale, aim: Aim, lane: u32) -> Reached {
    var nearest = 0u;
    var rest = vec2(0u);
    var bits = max(n_bits(w.farthest), 1u);
    var is_first = true;
    while bits > 0u {
        let shift = max(bits, BIN_BITS) - BIN_BITS;
        clear_bins(lane);
        for (var q = lane; q < row.quads; q += 256u) {
            let distances = vec4(row.max) - keys[row.at + q];
            for (var e = 0u; e < 4u; e++) {
                let d = distances[e];
                let bin = (d - nearest) >> shift;
                if bin < BINS && is_within(w, d, 4u * q + e) {
                    let m = mass(d, s);
                    if m != 0u { add_to_bin(bin, vec2(m, 0u)); }
                }
            }
        }
        let total = total_of_bins(lane);
        if is_first {
            rest = aim_at(aim, total);
            if !less(rest, total) { return Reached(0u, rest, true); }
            is_first = false;
        }
        let place = exceed(rest, lane);
        nearest += place.bin << shift;
        rest = place.rest;
        bits = shift;
    }
    return Reached(nearest, rest, false);
}

var<workgroup> found_id: u32;

// Adds the masses of a window's tokens, lowest id first. Returns the id at which the running sum exceeds the aim, or ALL if the whole sum
// does not exceed the aim.
fn find(row: Row, w: Window, s: Scale, aim: Aim, lane: u32) -> u32 {
    // In the first pass, a bin is a range of elements. In the second pass, a bin is one element of four ids.
    let shift = max(n_bits(row.quads - 1u), BIN_BITS) - BIN_BITS;
    clear_bins(lane);
    for (var q = lane; q < row.quads; q += 256u) { add_quad(row, w, s, q, q >> shift); }
    let total = total_of_bins(lane);
    let want = aim_at(aim, total);
    if !less(want, total) { return ALL; }
    let range = exceed(want, lane);
    let first = range.bin << shift;
    let end = min(first + (1u << shift), row.quads);
    clear_bins(lane);
    for (var q = first + lane; q < end; q += 256u) { add_quad(row, w, s, q, q - first); }
    total_of_bins(lane);
    let place = exceed(range.rest, lane);
    if lane == 0u {
        let q = first + place.bin;
        let distances = vec4(row.max) - keys[row.at + q];
        var rest = place.rest;
        var id = ALL;
        for (var e = 0u; e < 4u; e++) {
            let d = distances[e];
            if id == ALL && is_within(w, d, 4u * q + e) {
                let m = vec2(mass(d, s), 0u);
                if less(rest, m) { id = 4u * q + e; } else { rest = subtract(rest, m); }
            }
        }
        found_id = id;
    }
    return workgroupUniformLoad(&found_id);
}

// Adds the masses of the four ids of element q to a bin. Ids outside the window add nothing.
fn add_quad(row: Row, w: Window, s: Scale, q: u32, bin: u32) {
    let distances = vec4(row.max) - keys[row.at + q];
    var sum = vec2(0u);
    for (var e = 0u; e < 4u; e++) {
        if is_within(w, distances[e], 4u * q + e) { sum = add(sum, vec2(mass(distances[e], s), 0u)); }
    }
    if (sum.x | sum.y) != 0u { add_to_bin(bin, sum); }
}
