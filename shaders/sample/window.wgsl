// The tokens of a slot, their masses, and sets of tokens. A mass is a probability that is not normalised. A token has the distance
// d = max - key, and the mass `mass(d)`. max is the largest key of the slot. Filters keep the first tokens in the order (d, id), so the last
// kept token determines the set.
import package::sample::fixed::{Scale, mass, add, subtract, share_of, uniform_below};
import package::sample::bins::{BINS, BIN_BITS, add_to_bin};

// The keys: adjusted logits as unsigned integers with the same order, four ids per element. A key is 0 if the id cannot be sampled. [slot, quads]
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

// An aim is a mass that a running sum must exceed. Its kind determines how the aim is computed from `value`.
const GIVEN: u32 = 0u; // `value` itself
const SHARE: u32 = 1u; // the share value.x / 2^32 of the sum, minus one unit
const RANDOM: u32 = 2u; // `value` is a random number, scaled to the sum
struct Aim { kind: u32, value: vec2<u32> }

fn aim_at(aim: Aim, total: vec2<u32>) -> vec2<u32> {
    if aim.kind == SHARE { return subtract(share_of(total, aim.value.x), vec2(1u, 0u)); }
    if aim.kind == RANDOM { return uniform_below(aim.value, total); }
    return aim.value;
}

// The first search of a slot: its window and scale, and whether its bins are ranges of ids (`find`) or of distances (`reach`). If `exists` is
// false, sample/tally does not begin a search.
struct Search { exists: bool, is_by_id: bool, window: Window, scale: Scale }

// Returns the shift of a search's first pass. A token's bin is its distance, or the index of its element of `keys`, shifted right by this
// number of bits.
fn first_shift(row: Row, search: Search) -> u32 {
    return max(n_bits(select(search.window.farthest, row.quads - 1u, search.is_by_id)), BIN_BITS) - BIN_BITS;
}

// Returns one of four values that were loaded together. An array would be slower, because compilers do not keep it in registers.
fn choose(i: u32, a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32>) -> vec4<u32> {
    return select(select(a, b, i == 1u), select(c, d, i == 3u), i > 1u);
}

// Adds the masses of the four ids of element q to the bins of their distances. Bin 0 begins at `nearest`. A bin has 2^shift distances.
fn add_quad_by_distance(row: Row, w: Window, s: Scale, q: u32, nearest: u32, shift: u32) {
    add_by_distance(row, w, s, keys[row.at + q], q, nearest, shift);
}

fn add_by_distance(row: Row, w: Window, s: Scale, four: vec4<u32>, q: u32, nearest: u32, shift: u32) {
    let distances = vec4(row.max) - four;
    for (var e = 0u; e < 4u; e++) {
        let d = distances[e];
        let bin = (d - nearest) >> shift;
        if bin < BINS && is_within(w, d, 4u * q + e) {
            let m = mass(d, s);
            if m != 0u { add_to_bin(bin, vec2(m, 0u)); }
        }
    }
}

// Adds the masses of the four ids of element q to a bin. Ids outside the window add nothing.
fn add_quad_by_id(row: Row, w: Window, s: Scale, q: u32, bin: u32) { add_by_id(row, w, s, keys[row.at + q], q, bin); }

fn add_by_id(row: Row, w: Window, s: Scale, four: vec4<u32>, q: u32, bin: u32) {
    let distances = vec4(row.max) - four;
    var sum = vec2(0u);
    for (var e = 0u; e < 4u; e++) {
        if is_within(w, distances[e], 4u * q + e) { sum = add(sum, vec2(mass(distances[e], s), 0u)); }
    }
    if (sum.x | sum.y) != 0u { add_to_bin(bin, sum); }
}
