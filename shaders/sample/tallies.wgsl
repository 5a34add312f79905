// The results of the dispatches sample/keys and sample/tally for each slot's row of logits. sample/draw reads these results. All elements are
// zero before sample/keys and after sample/draw.
import package::sample::bins::{BINS, low, high};

// One row per slot: the largest key, the complement of the smallest key, then the low halves and the high halves of the sums of BINS bins.
@group(0) @binding(7) var<storage, read_write> tallies: array<atomic<u32>>; // [slot, 2 + 2 BINS]

const TALLY: u32 = 2u + 2u * BINS;

// The largest and the smallest key of a row. The largest key is 0 if no token can be sampled. If the slot has the flag
// GUARDS and a logit is not finite, the smallest key is 0.
struct Extremes { largest: u32, smallest: u32 }

fn add_extremes(slot: u32, e: Extremes) {
    atomicMax(&tallies[slot * TALLY], e.largest);
    atomicMax(&tallies[slot * TALLY + 1u], ~e.smallest);
}

fn extremes_of(slot: u32) -> Extremes {
    return Extremes(atomicLoad(&tallies[slot * TALLY]), ~atomicLoad(&tallies[slot * TALLY + 1u]));
}

// Adds the workgroup's bins to the slot's bins. Call `add_bins` after a barrier that follows the last `add_to_bin`.
fn add_bins(slot: u32, lane: u32) {
    let at = slot * TALLY + 2u;
    for (var i = lane; i < BINS; i += 256u) {
        let sum = vec2(atomicLoad(&low[i]), atomicLoad(&high[i]));
        if (sum.x | sum.y) != 0u {
            let before = atomicAdd(&tallies[at + i], sum.x);
            let carry = select(0u, 1u, before + sum.x < before);
            if sum.y + carry != 0u { atomicAdd(&tallies[at + BINS + i], sum.y + carry); }
        }
    }
}

// Sets the workgroup's bins to the slot's bins.
fn take_bins(slot: u32, lane: u32) {
    let at = slot * TALLY + 2u;
    for (var i = lane; i < BINS; i += 256u) {
        atomicStore(&low[i], atomicLoad(&tallies[at + i]));
        atomicStore(&high[i], atomicLoad(&tallies[at + BINS + i]));
    }
}

// Sets the slot's row to zero.
fn clear_tally(slot: u32, lane: u32) {
    for (var i = lane; i < TALLY; i += 256u) { atomicStore(&tallies[slot * TALLY + i], 0u); }
}
