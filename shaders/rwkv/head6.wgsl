// Prepares a token for the recurrence of RWKV-5, RWKV-6 and QRWKV-6 (formulas: rwkv/wkv6_prepare). Fills the shader slot `head`. If the decay depends
// on the token (RWKV-6), this module also computes the low-rank product of the decay. One lane per channel.
// Slot reduce: lib/reduce, lib/reduce_subgroup
import package::lib::activation::activate;
import package::slot::reduce::reduce_sum;
import package::rwkv::head_params::{Token, params, vectors, bias, projected, low_rank, put};
import package::constants::HEAD;

// Returns value, bonus and gate of channel c of token t. Writes r, w and k to `feed`.
fn prepare(t: u32, c: u32, lane: u32, inside: bool) -> Token {
    var r = projected(t, params.r, c);
    // The channel in the head of keys and values, which several heads may share.
    let of_keys = c / HEAD / params.group * HEAD + c % HEAD;
    var k = projected(t, params.k, of_keys);
    let v = projected(t, params.v, of_keys);
    var w = 0.0;
    if params.decay > 0u { w = vectors[params.decay + c]; } else { w = activate(6u, bias[c] + low_rank(1u, t, c).x); }
    var u = params.scale;
    if u == 0.0 { u = vectors[c]; } else { k *= 1.0 - w; }
    let ruk = reduce_sum(vec4(select(0.0, r * u * k, inside)), lane).x;
    if params.scale != 0.0 { r *= w * params.scale; }
    put(0u, lane, r, inside);
    put(1u, lane, w, inside);
    put(2u, lane, k, inside);
    var gate = 1.0;
    if params.is_gated == 1u { gate = projected(t, params.g, c); }
    return Token(v, ruk * v, gate);
}
