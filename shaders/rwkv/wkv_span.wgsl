// The part of the recurrence of RWKV-5, 6 and 7 that needs no state, for all spans of SPAN tokens in parallel. The kernel rwkv/wkv_chain then
// takes the spans in order. The modules rwkv/wkv6_span and rwkv/wkv7_span have the formulas.
// For two tokens s < t and vectors x and y, such as r and k, the formulas need sums over the channels j with the decays between s and t:
//   A[t, s] = sum over j of x[t, j] y[s, j] D(s, t)[j],   D(s, t) = product of w[u] for s < u < t
// On four levels, with h = 8, 4, 2, 1, these sums become products of matrices. A level divides the span into blocks of 2 * h tokens. With a, the
// first token of the second half of a block:
//   A[t, s] = sum over j of (x[t, j] product of w[u, j] for a <= u < t) (y[s, j] product of w[u, j] for s < u < a),   s < a <= t
// Every pair (t, s) with s < t belongs to one block of one level. All factors are at most 1, so that no decay overflows and a decay of 0 is exact.
// One workgroup per head and span, one lane per column. If a span has fewer than SPAN tokens, the missing tokens have w = 1, and their other
// vectors are zero.
// Slot rule: rwkv/wkv6_span, rwkv/wkv7_span
import package::rwkv::spans::{SPAN, span_at};
import package::rwkv::wkv_span_params::{LANES, STRIDE, left, right, w, begin};
import package::slot::rule::{Pair, DIAGONAL, early, late, load, product, diagonal, keep, finish};

// Each lane's sum over a part of the columns, [5, LANES]. Row l has the sums of level l: 64 >> l pairs, and 1 << l lanes add the columns of a
// pair. The last row has parts of the sums for s = t.
var<workgroup> parts: array<Pair, 5u * LANES>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let span = span_at(group.y);
    if span.n == 0u { return; }
    begin(span, group.x, lane);
    load(span, lane);
    if DIAGONAL {
        parts[4u * LANES + lane] = diagonal(lane);
        workgroupBarrier();
    }
    var p = 1.0;
    unroll l in 4 { {
        const HALF = 8u >> $lu;
        unroll i in 8 {
            if $iu % HALF == 0u { p = 1.0; }
            left[$iu * STRIDE + lane] = p * late[$iu / HALF * 2u * HALF + HALF + $iu % HALF];
            p *= w[$iu / HALF * 2u * HALF + HALF + $iu % HALF];
        }
        unroll i in 8 {
            if $iu % HALF == 0u { p = 1.0; }
            right[($iu / HALF * HALF + HALF - 1u - $iu % HALF) * STRIDE + lane] = p * early[$iu / HALF * 2u * HALF + HALF - 1u - $iu % HALF];
            p *= w[$iu / HALF * 2u * HALF + HALF - 1u - $iu % HALF];
        }
        workgroupBarrier();
        let pair = lane >> $lu;
        let block = pair / (HALF * HALF) * HALF;
        let t = (block + pair / HALF % HALF) * STRIDE;
        let s = (block + pair % HALF) * STRIDE;
        var sum = Pair();
        for (var j = lane % (1u << $lu); j < LANES; j += 4u << $lu) {
            unroll a in 4 { sum += product(left[t + j + ($au << $lu)], right[s + j + ($au << $lu)]); }
        }
        parts[$lu * LANES + lane] = sum;
        workgroupBarrier();
    } }
    unroll i in 4 { {
        let t = lane / SPAN + 4u * $iu;
        let s = lane % SPAN;
        // The level of the pair has h = 2^half: `half` is the highest bit in which t and s differ.
        let half = firstLeadingBit(max(t ^ s, 1u));
        let size = 1u << half;
        let pair = ((t >> (half + 1u)) << (2u * half)) + ((t % size) << half) + s % size;
        let is_pair = s < t;
        let n = select(4u, 8u >> half, is_pair);
        let first = select(4u * (LANES + t), (3u - half) * LANES + pair * n, is_pair);
        var sum = Pair();
        unroll a in 8 { sum += select(Pair(), parts[first + min($au, n - 1u)], $au < n); }
        if is_pair || (s == t && DIAGONAL) { keep(t * SPAN + s, sum); }
    } }
    workgroupBarrier();
    finish(span, group.x, lane);
}
