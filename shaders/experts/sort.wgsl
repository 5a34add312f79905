// Lists the entries of a step by expert. An entry is a token and one of its experts. The entries of one expert may be in another order in each run of
// the kernel, but no result depends on their order. One workgroup.
import package::lib::cursor::n_tokens;
import package::constants::{EXPERTS, TILE_TOKENS};

struct Params {
    // The number of experts of a token.
    used: u32,
    // Stride of a row of chosen, in floats.
    chosen_stride: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> chosen: array<f32>; // [T, chosen_stride]: indices of the experts
@group(0) @binding(2) var<storage, read_write> entries: array<u32>; // [T * used]: token * used + index of the expert among the token's experts
@group(0) @binding(3) var<storage, read_write> starts: array<vec2<u32>>; // [EXPERTS + 1]: the first entry and the first tile of each expert

const LANES: u32 = 256u;
// The number of entries of each expert, then the place of its next entry.
var<workgroup> places: array<atomic<u32>, EXPERTS>;

// Returns the expert of an entry.
fn expert_of(entry: u32) -> u32 {
    return min(u32(chosen[entry / params.used * params.chosen_stride + entry % params.used]), EXPERTS - 1u);
}

@compute @workgroup_size(LANES)
fn main(@builtin(local_invocation_index) lane: u32) {
    let n = n_tokens() * params.used;
    for (var e = lane; e < EXPERTS; e += LANES) { atomicStore(&places[e], 0u); }
    workgroupBarrier();
    for (var i = lane; i < n; i += LANES) { atomicAdd(&places[expert_of(i)], 1u); }
    workgroupBarrier();
    if lane == 0u {
        var at = vec2(0u);
        for (var e = 0u; e < EXPERTS; e++) {
            let count = atomicLoad(&places[e]);
            starts[e] = at;
            atomicStore(&places[e], at.x);
            at += vec2(count, (count + TILE_TOKENS - 1u) / TILE_TOKENS);
        }
        starts[EXPERTS] = at;
    }
    workgroupBarrier();
    for (var i = lane; i < n; i += LANES) { entries[atomicAdd(&places[expert_of(i)], 1u)] = i; }
}
