// A span of RWKV-7 (the recurrence: rwkv/wkv). S is the state before the span, P[t] the product of w[u] for u < t, and D as in rwkv/wkv_span.
//   L[t, s] = kappa[t] . (b[s] D(s, t))       M[t, s] = kappa[t] . (k[s] D(s, t))            s < t
//   B[t, s] = (r[t] w[t]) . (b[s] D(s, t))    K[t, s] = (r[t] w[t]) . (k[s] D(s, t))         s < t; r[t] . b[t] and r[t] . k[t] for s = t
// The removed values s[t] = S[t - 1] kappa[t] solve a triangular system, column by column:
//   W[t] = P[t] kappa[t] - sum over s of L[t, s] W[s]     X[t] = sum over s of M[t, s] v[s] - L[t, s] X[s]     s[t] = S W[t] + X[t]
//   Q[t] = P[t + 1] r[t] - sum over s of B[t, s] W[s]     Y[t] = sum over s of K[t, s] v[s] - B[t, s] X[s]     y[t] = S Q[t] + Y[t]
//   S = S diag(P[SPAN]) - sum over t of s[t] (b[t] D(t, SPAN))^T + sum over t of v[t] (k[t] D(t, SPAN))^T
// Writes W, X, b D, k D and Q to feed in the places of kappa, w, b, k and r, and Y to y. X[0] is zero: its place has P[SPAN].
// Fills the shader slot `rule`.
import package::rwkv::spans::{Span, SPAN};
import package::rwkv::wkv_span_params::{left, right, w, STRIDE, loaded, value, store, store_y};

alias Side = vec2<f32>; // kappa and r w; b and k
alias Pair = vec4<f32>; // L, M, B, K
const DIAGONAL: bool = true;

var<private> kappa: array<f32, SPAN>;
var<private> b: array<f32, SPAN>;
var<private> k: array<f32, SPAN>;
var<private> r: array<f32, SPAN>;

// Loads the lane's column of all vectors.
fn load(span: Span, lane: u32) {
    unroll t in 16 {
    kappa[$t] = loaded(span.n, $tu, 0u, lane, 0.0);
    w[$t] = loaded(span.n, $tu, 1u, lane, 1.0);
    b[$t] = loaded(span.n, $tu, 2u, lane, 0.0);
    k[$t] = loaded(span.n, $tu, 3u, lane, 0.0);
    r[$t] = loaded(span.n, $tu, 4u, lane, 0.0);
    }
}

// Returns the later token's side of a level, and the earlier token's side. p is the product of decays between token and anchor.
fn left_of(t: u32, p: f32) -> Side { return p * vec2(kappa[t], r[t]); }
fn right_of(s: u32, p: f32) -> Side { return p * vec2(b[s], k[s]); }
fn product(x: Side, y: Side) -> Pair { return vec4(x.x * y, x.y * y); }

// Returns the lane's part of r[t] . b[t] and r[t] . k[t]. Four lanes share a token.
fn diagonal(lane: u32) -> Pair {
    unroll i in 8 {
    left[$iu * STRIDE + lane] = r[$i] * vec2(b[$i], k[$i]);
    right[$iu * STRIDE + lane] = r[$i + 8] * vec2(b[$i + 8], k[$i + 8]);
    }
    // From here on, r is multiplied by w.
    unroll t in 16 { r[$t] *= w[$t]; }
    workgroupBarrier();
    let row = lane / 4u % 8u * STRIDE + lane % 4u;
    var sum = vec2(0.0);
    if lane < 32u { unroll a in 16 { sum += left[row + 4u * $au]; } } else { unroll a in 16 { sum += right[row + 4u * $au]; } }
    return vec4(0.0, 0.0, sum);
}

fn keep(at: u32, sum: Pair) {
    left[at] = sum.xy;
    right[at] = sum.zw;
}

// Computes the lane's columns of W and Q and the lane's rows of X and Y.
fn finish(span: Span, head: u32, lane: u32) {
    var v: array<f32, SPAN>;
    var x: array<f32, SPAN>;
    var out: array<f32, SPAN>;
    var p = 1.0;
    unroll d in 16 {
    b[15 - $d] *= p;
    k[15 - $d] *= p;
    p *= w[15 - $d];
    }
    unroll t in 16 { if $tu < span.n {
    store($tu, 2u, lane, b[$t]);
    store($tu, 3u, lane, k[$t]);
    } }
    store(0u, 1u, lane, p);
    p = 1.0;
    unroll t in 16 {
    kappa[$t] *= p;
    r[$t] *= p;
    p *= w[$t];
    }
    unroll t in 16 { v[$t] = value(span, $tu, head, lane, 0u); }
    unroll t in 16 {
    {
        var c = kappa[$t];
        var q = r[$t];
        var at_row = vec2(0.0); // X and Y
        unroll s in 16 {
        if $s < $t {
            let lm = left[$tu * SPAN + $su];
            let bk = right[$tu * SPAN + $su];
            c -= lm.x * kappa[$s];
            q -= bk.x * kappa[$s];
            at_row += vec2(lm.y, bk.y) * v[$s] - vec2(lm.x, bk.x) * x[$s];
        }
        }
        let bk = right[$tu * SPAN + $tu];
        // From here on, the arrays have W and Q.
        kappa[$t] = c;
        r[$t] = q - bk.x * c;
        x[$t] = at_row.x;
        out[$t] = at_row.y + bk.y * v[$t] - bk.x * at_row.x;
    }
    }
    unroll t in 16 { if $tu < span.n {
    store($tu, 0u, lane, kappa[$t]);
    if $t > 0 { store($tu, 1u, lane, x[$t]); }
    store($tu, 4u, lane, r[$t]);
    store_y($tu, lane, out[$t]);
    } }
}
