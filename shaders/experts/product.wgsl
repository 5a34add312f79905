// Products with the matrices of the experts that experts/choose chose. e_j is the expert j of a token, w_j its weight:
//   MODE 0: y[t, j] = silu(W_e_j x[t])   1: y[t, j] = y[t, j] * W_e_j x[t]   2: y[t] += sum over j of w_j W_e_j x[t, j]
// A binding has a piece of the stack of all experts' matrices. A dispatch computes only the rows in its piece. One workgroup per four rows and
// token, and per expert of the token unless MODE is 2. Each lane multiplies a part of the width.
// Slot reduce: lib/reduce, lib/reduce_lanes, lib/reduce_subgroup
// Slot scale: scale/affine, scale/levels, scale/none, scale/rows, scale/rows_minima
// Slot weight: weight/*
import package::lib::activation::sigmoid;
import package::lib::cursor::n_tokens;
import package::slot::reduce::{WG, reduce_sum};
import package::matrix::place::Place;
import package::matrix::quads::{quad, words0};
import package::slot::scale::{HAS_MINIMA, columns, dot4, minima, of_rows};
import package::slot::weight::begin_weights;
import package::constants::{EXPERTS, MODE};

struct Params {
    // The number of experts that a workgroup multiplies, and the number of workgroups that share the experts of a token.
    slots: u32,
    groups: u32,
    // The number of rows of an expert's matrix.
    rows: u32,
    // Width of a row in units of eight weights.
    units: u32,
    // Stride of a row of chosen, in floats, and the offset of the weights in it.
    chosen_stride: u32,
    weights: u32,
    // Stride of a row of x, and the distance between the inputs of two experts in it, in vectors of 4 floats.
    x_stride: u32,
    x_slot: u32,
    // Stride of a row of y, and the distance between the outputs of two experts in it, in floats.
    y_stride: u32,
    y_slot: u32,
    // For each expert: the first words of its codes and of its scales in the piece, its first row there, and the number of rows there.
    @align(16) experts: array<vec4<u32>, EXPERTS>,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>; // [T, x_stride]
@group(0) @binding(2) var<storage, read> chosen: array<f32>; // [T, chosen_stride]: indices, weights
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [T, y_stride]

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    // Workgroups of the same rows follow one another, so that tokens with the same expert find its rows in a cache.
    let t = group.x + group.z / params.groups * 32768u;
    if t >= n_tokens() { return; }
    let row = 4u * group.y;
    let share = group.z % params.groups;
    begin_weights(lane);
    var sums = vec4(0.0);
    var is_here = false;
    for (var i = 0u; i < params.slots; i++) {
        let j = share * params.slots + i;
        let choice = t * params.chosen_stride + j;
        let expert = params.experts[min(u32(chosen[choice]), EXPERTS - 1u)];
        if row < expert.z || row >= expert.z + expert.w { continue; }
        is_here = true;
        let place = Place(expert.x, expert.y, params.units, expert.w);
        let own = row - expert.z;
        let x_at = t * params.x_stride + j * params.x_slot;
        var products = vec4(0.0);
        for (var k = lane; k < params.units; k += WG) {
            let input = mat2x4<f32>(x[x_at + 2u * k], x[x_at + 2u * k + 1u]);
            let w = quad(words0(place, own, k));
            products += of_rows(place, own, k) * dot4(w, columns(place, own, own, k), input);
            if HAS_MINIMA { products -= minima(place, own, k) * dot(input[0] + input[1], vec4(1.0)); }
        }
        if MODE == 2u { products *= chosen[choice + params.weights]; }
        sums += products;
    }
    let z = reduce_sum(sums, lane);
    if !is_here || lane >= 4u || row + lane >= params.rows { return; }
    let at = t * params.y_stride + share * params.y_slot + row + lane;
    if MODE == 0u { y[at] = z[lane] * sigmoid(z[lane]); }
    if MODE == 1u { y[at] *= z[lane]; }
    if MODE == 2u { y[at] += z[lane]; }
}
