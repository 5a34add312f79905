// A span of RWKV-5 or 6 (the recurrence: rwkv/wkv). t, s and u count the tokens of the span from 0. S is the state before the span, P[t] the
// product of w[u] for u < t, and D as in rwkv/wkv_span.
//   A[t, s] = r[t] . (k[s] D(s, t))     Q[t] = P[t] r[t]     Y[t] = bonus[t] + sum over s < t of A[t, s] v[s]
//   y[t] = S Q[t] + Y[t]                S = S diag(P[SPAN]) + sum over t of v[t] (k[t] D(t, SPAN))^T
// Overwrites three parts of the buffer `feed`: r becomes Q, k becomes k D, and the first token's w becomes P[SPAN]. Writes Y to the buffer `y`.
// Fills the shader slot `rule`.
import package::rwkv::spans::{Span, SPAN};
import package::rwkv::wkv_span_params::{params, left, w, loaded, value, store, store_y};

alias Side = f32;
alias Pair = f32; // A
const DIAGONAL: bool = false;

// For each token, the lane's column of k (`early`) and of r (`late`). In a product of A[t, s], `early` is the factor of the earlier token s, and
// `late` the factor of the later token t. All indices are constants, so that compilers keep the arrays in registers.
var<private> early: array<Side, SPAN>;
var<private> late: array<Side, SPAN>;

// Loads the lane's column of all vectors.
fn load(span: Span, lane: u32) {
    unroll t in 16 {
        late[$t] = loaded(span.n, $tu, 0u, lane, 0.0);
        w[$t] = loaded(span.n, $tu, 1u, lane, 1.0);
        early[$t] = loaded(span.n, $tu, 2u, lane, 0.0);
    }
}

fn product(x: Side, y: Side) -> Pair { return x * y; }

// The sum for s = t is the bonus, which rwkv/wkv6_prepare has computed.
fn diagonal(lane: u32) -> Pair { return 0.0; }

fn keep(at: u32, sum: Pair) { left[at] = sum; }

// Computes and stores the lane's column of Q and the lane's row of Y. Also stores what the next state needs: the lane's column of k D and P[SPAN].
fn finish(span: Span, head: u32, lane: u32) {
    var v: array<f32, SPAN>;
    var out: array<f32, SPAN>;
    unroll t in 16 {
        v[$t] = value(span, $tu, head, lane, 0u);
        out[$t] = value(span, $tu, head, lane, params.bonus);
    }
    var p = 1.0;
    unroll d in 16 {
        early[15 - $d] *= p;
        p *= w[15 - $d];
    }
    store(0u, 1u, lane, p);
    p = 1.0;
    unroll t in 16 {
        late[$t] *= p;
        p *= w[$t];
        unroll s in 16 { if $s < $t { out[$t] += left[$tu * SPAN + $su] * v[$s]; } }
    }
    unroll t in 16 { if $tu < span.n {
        store($tu, 0u, lane, late[$t]);
        store($tu, 2u, lane, early[$t]);
        store_y($tu, lane, out[$t]);
    } }
}
