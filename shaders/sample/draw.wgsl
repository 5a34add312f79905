// Samples one token per slot from its row of logits, bit for bit as src/sample does. The last of three dispatches. sample/keys has computed
// keys, which are adjusted logits as integers. sample/tally has filled the bins of the first search (sample/select).
//   p ~ 2^(scale (key - max))   filters   id = the first id with u < sum of p[0 ..= id]
// max is the largest key. u is a random number below the total of p. Then prepares the next step: counts, position in the random stream, cursor.
// One workgroup of 256 lanes per slot; each lane takes a part of the vocabulary.
import package::lib::cursor_rw::{n_outputs, output_row, advance};
import package::sample::fixed::{add, ordered};
import package::sample::chacha::random_number;
import package::sample::filters::{filtered, first_search};
import package::sample::params::{params, settings};
import package::sample::select::{find, tallied};
import package::sample::settings::{GREEDY, SEEN};
import package::sample::tallies::{Extremes, clear_tally, extremes_of};
import package::sample::window::{Row, Window, Aim, ALL, RANDOM, keys};

@group(0) @binding(1) var<storage, read> logits: array<vec4<u32>>; // [O, stride], the bits of floats
@group(0) @binding(3) var<storage, read_write> memory: array<vec4<u32>>; // [slot, 2, quads], see sample/keys
@group(0) @binding(5) var<storage, read> exempt: array<u32>; // one bit per id: if the bit is 1, sampling the id does not increase its count
// One header per slot: number of draws (low half, high half), step, unused. Then ids [n_steps, slot].
@group(0) @binding(6) var<storage, read_write> drawn: array<u32>;

// The id that is stored if no token can be sampled.
const NOTHING: u32 = 0xffffffffu;
const HEADER: u32 = 4u;

var<workgroup> is_idle: u32;
var<workgroup> max_order: atomic<u32>;
var<workgroup> first_id: atomic<u32>;
var<workgroup> uniform_value: vec2<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let slot = group.x;
    if lane == 0u {
        is_idle = select(0u, 1u, slot >= n_outputs());
        atomicStore(&max_order, 0u);
        atomicStore(&first_id, NOTHING);
    }
    if workgroupUniformLoad(&is_idle) == 1u { return; }
    let s = settings[slot];
    if lane == 0u {
        let e = extremes_of(slot);
        uniform_value = vec2(e.largest, e.smallest);
    }
    let extremes = workgroupUniformLoad(&uniform_value);
    let row = Row(slot * params.quads, params.quads, extremes.x);
    if first_search(s, Extremes(extremes.x, extremes.y)).exists { tallied = slot; }

    var id = NOTHING;
    if extremes.x != 0u && extremes.y != 0u {
        if (s.flags & GREEDY) != 0u {
            id = largest_logit(row, slot * params.stride, lane);
        } else {
            let w = filtered(row, Window(0u, extremes.x - extremes.y, ALL), s, lane);
            if lane == 0u {
                uniform_value = random_number(vec2(s.seed_low, s.seed_high), vec2(drawn[slot * HEADER], drawn[slot * HEADER + 1u]));
            }
            id = find(row, w, s.draw_scale, Aim(RANDOM, workgroupUniformLoad(&uniform_value)), lane);
        }
    }
    clear_tally(slot, lane);
    if lane == 0u { keep(slot, id, 2u * row.at); }
}

// Returns the id with the largest key. If several ids have this key, returns the id with the largest logit. If these logits are
// equal, too, returns the lowest id.
fn largest_logit(row: Row, logits_at: u32, lane: u32) -> u32 {
    var best = 0u;
    var id = NOTHING;
    for (var q = lane; q < row.quads; q += 256u) {
        let four = keys[row.at + q];
        if any(four == vec4(row.max)) {
            for (var e = 0u; e < 4u; e++) {
                let order = ordered(logits[logits_at + q][e]);
                if four[e] == row.max && order > best {
                    best = order;
                    id = 4u * q + e;
                }
            }
        }
    }
    atomicMax(&max_order, best);
    workgroupBarrier();
    if id != NOTHING && best == atomicLoad(&max_order) { atomicMin(&first_id, id); }
    workgroupBarrier();
    if lane == 0u { uniform_value = vec2(atomicLoad(&first_id), 0u); }
    return workgroupUniformLoad(&uniform_value).x;
}

// Stores the sampled id, increases the count of the id, and prepares the next step. Only one lane calls `keep`.
fn keep(slot: u32, id: u32, counts_at: u32) {
    let header = slot * HEADER;
    let step = drawn[header + 2u];
    drawn[params.n_slots * HEADER + (step % params.n_steps) * params.n_slots + slot] = id;
    drawn[header + 2u] = step + 1u;
    advance(output_row(slot), select(id, 0u, id == NOTHING));
    if id == NOTHING { return; }
    let draws = add(vec2(drawn[header], drawn[header + 1u]), vec2(1u, 0u));
    drawn[header] = draws.x;
    drawn[header + 1u] = draws.y;
    let weight = select(1u << 20u, 0u, ((exempt[id / 32u] >> (id % 32u)) & 1u) == 1u);
    let count = memory[counts_at + id / 4u][id % 4u] & ~SEEN;
    memory[counts_at + id / 4u][id % 4u] = min(count + weight, SEEN - 1u) | SEEN;
}
