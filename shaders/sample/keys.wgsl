// The first of three dispatches that sample a token per slot (then: sample/tally, sample/draw). Computes the key of each id, and the largest
// and the smallest key of each row:
//   key = logit in fixed point, penalised, biased
// One workgroup per 1024 ids and slot; one lane per four ids.
import package::lib::cursor_rw::n_outputs;
import package::sample::fixed::{times, is_finite};
import package::sample::params::{params, settings};
import package::sample::settings::{GUARDS, SEEN, key_of};
import package::sample::tallies::{Extremes, add_extremes};
import package::sample::window::keys;

@group(0) @binding(1) var<storage, read> logits: array<vec4<u32>>; // [O, stride], the bits of floats
// Plane 0 has counts in units of 2^-20; the highest bit is set if the id was seen. Plane 1 has biases in the same units; an id with the
// bias BANNED is never sampled.
@group(0) @binding(3) var<storage, read_write> memory: array<vec4<u32>>; // [slot, 2, quads]

var<workgroup> is_idle: u32;
var<workgroup> largest: atomic<u32>;
var<workgroup> smallest: atomic<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let slot = group.y;
    if lane == 0u {
        is_idle = select(0u, 1u, slot >= n_outputs());
        atomicStore(&largest, 0u);
        atomicStore(&smallest, 0xffffffffu);
    }
    if workgroupUniformLoad(&is_idle) == 1u { return; }
    let q = group.x * 256u + lane;
    if q < params.quads { key_of_quad(slot, q); }
    workgroupBarrier();
    if lane == 0u { add_extremes(slot, Extremes(atomicLoad(&largest), atomicLoad(&smallest))); }
}

// Computes the keys of four ids, then decays their counts.
fn key_of_quad(slot: u32, q: u32) {
    let s = settings[slot];
    let counts_at = 2u * slot * params.quads + q;
    let bits = logits[slot * params.stride + q];
    let counts = memory[counts_at];
    let biases = memory[counts_at + params.quads];
    var four = vec4(0u);
    var least = 0xffffffffu;
    for (var e = 0u; e < 4u; e++) {
        if 4u * q + e < params.n_vocab {
            let key = key_of(bits[e], counts[e], biases[e], s);
            four[e] = key;
            // With GUARDS, a logit that is not finite sets `least` to 0. sample/draw then samples no token, and the host samples.
            if key != 0u { least = min(least, key); } else if (s.flags & GUARDS) != 0u && !is_finite(bits[e]) { least = 0u; }
        }
    }
    keys[slot * params.quads + q] = four;
    atomicMax(&largest, max(max(four.x, four.y), max(four.z, four.w)));
    atomicMin(&smallest, least);
    if any(counts != vec4(0u)) {
        var faded = counts;
        for (var e = 0u; e < 4u; e++) {
            if (counts[e] & SEEN) != 0u { faded[e] = min(times(counts[e] & ~SEEN, s.decay), SEEN - 1u) | SEEN; }
        }
        memory[counts_at] = faded;
    }
}
