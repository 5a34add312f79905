// Prepares a token for the recurrence of RWKV-7 (formulas: rwkv/wkv7_prepare). Unlike that kernel, this module also computes the low-rank products
// with w2, a2, g2 and v2. Fills the shader slot `head`. One lane per channel.
// Slot reduce: lib/reduce, lib/reduce_subgroup
import package::lib::activation::{activate, sigmoid};
import package::slot::reduce::reduce_sum;
import package::rwkv::head_params::{Token, params, vectors, bias, projected, low_rank, put};

@group(0) @binding(5) var<storage, read_write> v_first: array<f32>; // [T, stride]

// Returns value, bonus and gate of channel c of token t. Writes kappa, w, b, k' and r to `feed`.
fn prepare(t: u32, c: u32, lane: u32, inside: bool) -> Token {
    let r = projected(t, params.r, c);
    let k = projected(t, params.k, c);
    var v = projected(t, params.v, c);
    // The products with w2, a2, g2 and v2. Layer 0 has no v2. A model without a gate has no g2, and its product is 0.
    let products = low_rank(4u - params.first_layer, t, c);
    let w = activate(4u, bias[c] + products.x);
    let a = sigmoid(bias[params.stride + c] + products.y);
    let g = select(1.0, products.z, params.is_gated == 1u);
    let first = t * params.stride + c;
    if params.first_layer == 1u {
        if inside { v_first[first] = v; }
    } else {
        v += (v_first[first] - v) * sigmoid(bias[2u * params.stride + c] + products.w);
    }

    let kk = k * vectors[c];
    let k_mod = k * (1.0 + (a - 1.0) * vectors[params.stride + c]);
    let parts = vec4(kk * kk, r * k_mod * vectors[2u * params.stride + c], 0.0, 0.0);
    let sums = reduce_sum(select(vec4(0.0), parts, inside), lane);
    let kappa = kk / max(sqrt(sums.x), 1e-12);
    put(0u, lane, kappa, inside);
    put(1u, lane, w, inside);
    put(2u, lane, kappa * a, inside);
    put(3u, lane, k_mod, inside);
    put(4u, lane, r, inside);
    return Token(v, sums.y * v, g);
}
