// A span of RWKV-5 or 6 (the recurrence: rwkv/wkv). S is the state before the span, P[t] the product of w[u] for u < t, and D as in
// rwkv/wkv_span.
//   A[t, s] = r[t] . (k[s] D(s, t))     Q[t] = P[t] r[t]     Y[t] = bonus[t] + sum over s of A[t, s] v[s]     s < t
//   y[t] = S Q[t] + Y[t]                S = S diag(P[SPAN]) + sum over t of v[t] (k[t] D(t, SPAN))^T
// Writes Q and k D to feed in the places of r and k, P[SPAN] in the place of the first token's w, and Y to y. Fills the shader slot `rule`.
import package::rwkv::spans::{Span, SPAN};
import package::rwkv::wkv_span_params::{params, left, w, loaded, value, store, store_y};

alias Side = f32; // r; k
alias Pair = f32; // A
const DIAGONAL: bool = false;

var<private> k: array<f32, SPAN>;
var<private> r: array<f32, SPAN>;

// Loads the lane's column of all vectors.
fn load(span: Span, lane: u32) {
    unroll t in 16 {
    r[$t] = loaded(span.n, $tu, 0u, lane, 0.0);
    w[$t] = loaded(span.n, $tu, 1u, lane, 1.0);
    k[$t] = loaded(span.n, $tu, 2u, lane, 0.0);
    }
}

// Returns the later token's side of a level, and the earlier token's side. p is the product of decays between token and anchor.
fn left_of(t: u32, p: f32) -> Side { return p * r[t]; }
fn right_of(s: u32, p: f32) -> Side { return p * k[s]; }
fn product(x: Side, y: Side) -> Pair { return x * y; }

// The sum for s = t is the bonus, which rwkv/wkv6_prepare has computed.
fn diagonal(lane: u32) -> Pair { return 0.0; }

fn keep(at: u32, sum: Pair) { left[at] = sum; }

// Computes the lane's column of Q and the lane's row of Y.
fn finish(span: Span, head: u32, lane: u32) {
    var v: array<f32, SPAN>;
    var out: array<f32, SPAN>;
    unroll t in 16 {
    v[$t] = value(span, $tu, head, lane, 0u);
    out[$t] = value(span, $tu, head, lane, params.bonus);
    }
    var p = 1.0;
    unroll d in 16 {
    k[15 - $d] *= p;
    p *= w[15 - $d];
    }
    store(0u, 1u, lane, p);
    p = 1.0;
    unroll t in 16 {
    r[$t] *= p;
    p *= w[$t];
    unroll s in 16 { if $s < $t { out[$t] += left[$tu * SPAN + $su] * v[$s]; } }
    }
    unroll t in 16 { if $tu < span.n {
    store($tu, 0u, lane, r[$t]);
    store($tu, 2u, lane, k[$t]);
    store_y($tu, lane, out[$t]);
    } }
}
