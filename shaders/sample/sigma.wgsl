// The standard deviation of a row of logits, as `Shortlist::top_n_sigma` in src/sample computes it. Distances are in units of 2^-10 nats, so
// that sums of squares fit 64 bits.
import package::sample::fixed::{multiply, add, less};
import package::sample::bins::{BINS, clear_bins, add_to_bin, total_of_bins};
import package::sample::window::{Row, keys};

// The number of low bits that are dropped from a distance.
const COARSE: u32 = 10u;

// Returns the standard deviation in units of 2^-20 nats. Call `deviation` from uniform control flow, because it contains barriers.
fn deviation(row: Row, lane: u32) -> u32 {
    // The sum of a bin holds the number of tokens in its upper 21 bits, and the sum of their distances in its lower 43 bits.
    clear_bins(lane);
    for (var q = lane; q < row.quads; q += 256u) {
        let four = keys[row.at + q];
        var sum = vec2(0u);
        for (var e = 0u; e < 4u; e++) {
            if four[e] != 0u { sum = add(sum, vec2((row.max - four[e]) >> COARSE, 1u << 11u)); }
        }
        if sum.y != 0u { add_to_bin(q % BINS, sum); }
    }
    let both = total_of_bins(lane);
    let count = both.y >> 11u;
    let mean = divided(vec2(both.x, both.y & 0x7ffu), count).x;

    clear_bins(lane);
    for (var q = lane; q < row.quads; q += 256u) {
        let four = keys[row.at + q];
        var sum = vec2(0u);
        for (var e = 0u; e < 4u; e++) {
            let d = (row.max - four[e]) >> COARSE;
            let off = max(d, mean) - min(d, mean);
            if four[e] != 0u { sum = add(sum, multiply(off, off)); }
        }
        if (sum.x | sum.y) != 0u { add_to_bin(q % BINS, sum); }
    }
    let variance = divided(total_of_bins(lane), count);
    return root(vec2(variance.x << 20u, (variance.y << 20u) | (variance.x >> 12u)));
}

// Returns x / n, truncated. n is in 1 ..= 2^31.
fn divided(x: vec2<u32>, n: u32) -> vec2<u32> {
    let high = x.y / n;
    var rest = x.y % n;
    var low = 0u;
    for (var bit = 32u; bit > 0u; bit--) {
        rest = (rest << 1u) | ((x.x >> (bit - 1u)) & 1u);
        low <<= 1u;
        if rest >= n {
            rest -= n;
            low |= 1u;
        }
    }
    return vec2(low, high);
}

// Returns the largest number whose square is at most x.
fn root(x: vec2<u32>) -> u32 {
    var r = 0u;
    for (var bit = 0x80000000u; bit != 0u; bit >>= 1u) {
        if !less(x, multiply(r | bit, r | bit)) { r |= bit; }
    }
    return r;
}
