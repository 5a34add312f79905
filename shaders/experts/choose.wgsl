// Chooses the experts of each token and their weights:
//   s_e = sigmoid(logit_e)   the chosen experts have the USED largest s_e + b_e   w_e = scale s_e / (sum of s over the chosen experts)
// If two experts have the same s + b, the expert with the lower index comes first. If GROUPS is not 1, only the experts of the USED_GROUPS best
// groups compete. The score of a group is the sum of its two largest s + b. One workgroup per token.
import package::lib::activation::sigmoid;
import package::lib::cursor::n_tokens;
import package::constants::{LANES, EXPERTS, USED, GROUPS, USED_GROUPS};

struct Params {
    // Stride of a row of logits, in floats.
    stride: u32,
    // Stride of a row of chosen, in floats.
    chosen_stride: u32,
    // Offset of the weights in a row of chosen, in floats.
    weights: u32,
    // The factor of all weights.
    scale: f32,
    // 1: the weights are divided by their sum.
    normalises: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> logits: array<f32>; // [T, stride]
@group(0) @binding(2) var<storage, read> bias: array<f32>; // [EXPERTS]: b
@group(0) @binding(3) var<storage, read_write> chosen: array<f32>; // [T, chosen_stride]: indices [USED], weights [USED]

const GROUP_SIZE: u32 = EXPERTS / GROUPS;
var<workgroup> scores: array<f32, EXPERTS>; // s + b
var<workgroup> group_scores: array<f32, GROUPS>;
var<workgroup> picked: array<u32, USED>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = group.x + group.y * 32768u;
    if t >= n_tokens() { return; }
    let at = t * params.stride;
    // Comparisons with NaN are false, so with a NaN logit some ranks may have no expert. Their entries keep these valid indices.
    for (var i = lane; i < USED; i += LANES) { picked[i] = i; }
    for (var e = lane; e < EXPERTS; e += LANES) { scores[e] = sigmoid(logits[at + e]) + bias[e]; }
    workgroupBarrier();

    if GROUPS > 1u {
        for (var g = lane; g < GROUPS; g += LANES) {
            var first = -1e30;
            var second = -1e30;
            for (var e = g * GROUP_SIZE; e < (g + 1u) * GROUP_SIZE; e++) {
                second = max(second, min(first, scores[e]));
                first = max(first, scores[e]);
            }
            group_scores[g] = first + second;
        }
        workgroupBarrier();
        for (var e = lane; e < EXPERTS; e += LANES) {
            let own = e / GROUP_SIZE;
            var rank = 0u;
            for (var g = 0u; g < GROUPS; g++) { rank += u32(comes_first(group_scores[g], g, group_scores[own], own)); }
            if rank >= USED_GROUPS { scores[e] = -1e30; }
        }
        workgroupBarrier();
    }

    // An expert's rank is the number of experts that come before it.
    for (var e = lane; e < EXPERTS; e += LANES) {
        var rank = 0u;
        for (var other = 0u; other < EXPERTS; other++) { rank += u32(comes_first(scores[other], other, scores[e], e)); }
        if rank < USED { picked[rank] = e; }
    }
    workgroupBarrier();

    var sum = 1e-20;
    unroll i in USED { sum += sigmoid(logits[at + picked[$i]]); }
    let factor = select(params.scale, params.scale / sum, params.normalises == 1u);
    for (var i = lane; i < USED; i += LANES) {
        chosen[t * params.chosen_stride + i] = f32(picked[i]);
        chosen[t * params.chosen_stride + params.weights + i] = factor * sigmoid(logits[at + picked[i]]);
    }
}

// Returns whether score a of index i comes before score b of index j.
fn comes_first(a: f32, i: u32, b: f32, j: u32) -> bool { return a > b || (a == b && i < j); }
