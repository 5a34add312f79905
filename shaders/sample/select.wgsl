// Finds tokens by mass (sample/window). Stores no list: every search reads the slot's keys again. Workgroups have 256 lanes. Call `reach` and `find`
// from uniform control flow, because they contain barriers.
import package::sample::fixed::{Scale, mass, less, subtract};
import package::sample::bins::{BIN_BITS, clear_bins, total_of_bins, exceed};
import package::sample::tallies::take_bins;
import package::sample::window::{keys, Row, Window, Aim, ALL, choose, n_bits, is_within, aim_at, add_by_distance, add_by_id, add_quad_by_id};

// The value of `tallied` if sample/tally has filled no bins for the next search.
const NONE: u32 = 0xffffffffu;
// The slot whose bins sample/tally has filled for the next search, or NONE.
var<private> tallied: u32 = NONE;

// The result of `reach`. `distance` is the smallest distance such that the tokens within this distance have more mass than the aim. `rest`
// is the aim minus the mass of all nearer tokens. `is_short` is true if all tokens together do not exceed the aim.
struct Reached { distance: u32, rest: vec2<u32>, is_short: bool }

// Adds the masses of a window's tokens, nearest token first. Finds the distance at which the running sum exceeds the aim. Each pass finds
// BIN_BITS bits of the distance, the highest bits first.
fn reach(row: Row, w: Window, s: Scale, aim: Aim, lane: u32) -> Reached {
    var nearest = 0u;
    var rest = vec2(0u);
    var bits = max(n_bits(w.farthest), 1u);
    var is_first = true;
    while bits > 0u {
        let shift = max(bits, BIN_BITS) - BIN_BITS;
        clear_bins(lane);
        if tallied != NONE {
            take_bins(tallied, lane);
            tallied = NONE;
        } else {
            for (var first = lane; first < row.quads; first += 1024u) {
                unroll a in 4 { let keys_$a = keys[row.at + min(first + 256u * $au, row.quads - 1u)]; }
                for (var a = 0u; a < 4u && first + 256u * a < row.quads; a++) {
                    add_by_distance(row, w, s, choose(a, keys_0, keys_1, keys_2, keys_3), first + 256u * a, nearest, shift);
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
    // In the first pass, a bin is a range of elements of `keys`. In the second pass, a bin is one element of four ids.
    let shift = max(n_bits(row.quads - 1u), BIN_BITS) - BIN_BITS;
    clear_bins(lane);
    if tallied != NONE {
        take_bins(tallied, lane);
        tallied = NONE;
    } else {
        for (var first = lane; first < row.quads; first += 1024u) {
            unroll a in 4 { let keys_$a = keys[row.at + min(first + 256u * $au, row.quads - 1u)]; }
            for (var a = 0u; a < 4u && first + 256u * a < row.quads; a++) {
                let q = first + 256u * a;
                add_by_id(row, w, s, choose(a, keys_0, keys_1, keys_2, keys_3), q, q >> shift);
            }
        }
    }
    let total = total_of_bins(lane);
    let want = aim_at(aim, total);
    if !less(want, total) { return ALL; }
    let range = exceed(want, lane);
    let first = range.bin << shift;
    let end = min(first + (1u << shift), row.quads);
    clear_bins(lane);
    for (var q = first + lane; q < end; q += 256u) { add_quad_by_id(row, w, s, q, q - first); }
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
