// A span of RWKV-7 (the recurrence: rwkv/wkv). t, s and u count the tokens of the span from 0. S is the state before the span, P[t] the product
// of w[u] for u < t, and D as in rwkv/wkv_span.
//   L[t, s] = kappa[t] . (b[s] D(s, t))       M[t, s] = kappa[t] . (k[s] D(s, t))            s < t
//   B[t, s] = (r[t] w[t]) . (b[s] D(s, t))    K[t, s] = (r[t] w[t]) . (k[s] D(s, t))         s < t; r[t] . b[t] and r[t] . k[t] for s = t
// The removed value s[t] (a vector, not the index s) is the product of the state before token t and kappa[t]. All s[t] solve a triangular
// system, column by column:
//   W[t] = P[t] kappa[t] - sum over s of L[t, s] W[s]     X[t] = sum over s of M[t, s] v[s] - L[t, s] X[s]     s[t] = S W[t] + X[t]
//   Q[t] = P[t + 1] r[t] - sum over s of B[t, s] W[s]     Y[t] = sum over s of K[t, s] v[s] - B[t, s] X[s]     y[t] = S Q[t] + Y[t]
//   S = S diag(P[SPAN]) - sum over t of s[t] (b[t] D(t, SPAN))^T + sum over t of v[t] (k[t] D(t, SPAN))^T
// Overwrites the buffer `feed`: kappa becomes W, w becomes X, b becomes b D, k becomes k D, and r becomes Q. X[0] is zero, so its place has P[SPAN].
// Writes Y to the buffer `y`.
// Fills the shader slot `rule`.
import package::rwkv::spans::{Span, SPAN};
import package::rwkv::wkv_span_params::{left, right, w, STRIDE, loaded, value, store, store_y};

alias Side = vec2<f32>;
alias Pair = vec4<f32>; // L, M, B, K
const DIAGONAL: bool = true;

// For each token, the lane's column of (b, k) (`early`) and of (kappa, r) (`late`). In the products of the sums above, `early` has the factors of
// the earlier token s, and `late` the factors of the later token t. All indices are constants, so that compilers keep the arrays in registers.
var<private> early: array<Side, SPAN>;
var<private> late: array<Side, SPAN>;

// Loads the lane's column of all vectors.
fn load(span: Span, lane: u32) {
    unroll t in 16 {
        late[$t].x = loaded(span.n, $tu, 0u, lane, 0.0);
        w[$t] = loaded(span.n, $tu, 1u, lane, 1.0);
        early[$t].x = loaded(span.n, $tu, 2u, lane, 0.0);
        early[$t].y = loaded(span.n, $tu, 3u, lane, 0.0);
        late[$t].y = loaded(span.n, $tu, 4u, lane, 0.0);
    }
}

fn product(x: Side, y: Side) -> Pair { return vec4(x.x * y, x.y * y); }

// Returns the lane's part of r[t] . b[t] and r[t] . k[t]. Four lanes share a token. Also multiplies r by w, which the sums B and K need.
fn diagonal(lane: u32) -> Pair {
    unroll i in 8 {
        left[$iu * STRIDE + lane] = late[$i].y * early[$i];
        right[$iu * STRIDE + lane] = late[$i + 8].y * early[$i + 8];
    }
    unroll t in 16 { late[$t].y *= w[$t]; }
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

// Computes and stores the lane's columns of W and Q and the lane's rows of X and Y. Also stores what the next state needs: the lane's column of
// b D, k D and P[SPAN].
fn finish(span: Span, head: u32, lane: u32) {
    var v: array<f32, SPAN>;
    var x: array<f32, SPAN>;
    var p = 1.0;
    unroll d in 16 {
        early[15 - $d] *= p;
        p *= w[15 - $d];
    }
    unroll t in 16 { if $tu < span.n {
        store($tu, 2u, lane, early[$t].x);
        store($tu, 3u, lane, early[$t].y);
    } }
    store(0u, 1u, lane, p);
    p = 1.0;
    unroll t in 16 {
        late[$t] *= p;
        p *= w[$t];
    }
    unroll t in 16 { v[$t] = value(span, $tu, head, lane, 0u); }
    // Round t of this loop replaces `late[t]` by (W[t], Q[t]).
    unroll t in 16 { {
        var wq = late[$t];
        var xy = vec2(0.0);
        unroll s in 16 {
            if $s < $t {
                let lm = left[$tu * SPAN + $su];
                let bk = right[$tu * SPAN + $su];
                wq -= vec2(lm.x, bk.x) * late[$s].x;
                xy += vec2(lm.y, bk.y) * v[$s] - vec2(lm.x, bk.x) * x[$s];
            }
        }
        let bk = right[$tu * SPAN + $tu];
        late[$t] = vec2(wq.x, wq.y - bk.x * wq.x);
        x[$t] = xy.x;
        if $tu < span.n {
            store($tu, 0u, lane, late[$t].x);
            if $t > 0 { store($tu, 1u, lane, x[$t]); }
            store($tu, 4u, lane, late[$t].y);
            store_y($tu, lane, xy.y + bk.y * v[$t] - bk.x * xy.x);
        }
    } }
}
