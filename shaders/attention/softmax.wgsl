// A softmax that reads the scores block by block (a block has the scores of BLOCK tokens): p = e^(score - m), total = sum of p. m is the largest
// score so far. Every query of a workgroup has its own m and total. SHARERS lanes share the scores of one query. SHARERS is the same for any number
// of queries, so that the order of a sum is the same, too.
import package::constants::{QUERIES, SHARERS, BLOCK};

// The score of a key that the query must not read, because its token comes later.
const NOTHING: f32 = -1e30;
// The number of scores of a block that one lane takes.
const SHARE: u32 = BLOCK / SHARERS;

var<workgroup> scores: array<f32, QUERIES * BLOCK>; // [QUERIES, BLOCK]: scores, later p
// For each lane, the maximum of its scores, and later the sum of p over its scores.
var<workgroup> shares: array<f32, QUERIES * SHARERS>;
// The largest score so far of each query.
var<workgroup> largest: array<f32, QUERIES>;
// The sum of p of each query.
var<workgroup> total: array<f32, QUERIES>;
// The factor that scales down the sums over earlier blocks, for each query.
var<workgroup> rescale: array<f32, QUERIES>;

// Resets m and the totals. A barrier must follow, because other lanes read these values.
fn begin_softmax(lane: u32) {
    if lane < QUERIES {
        largest[lane] = NOTHING;
        total[lane] = 0.0;
    }
}

// Replaces the scores of a block by p, and updates m, the totals and `rescale`. Call this function after a barrier, because lanes read scores that
// other lanes wrote. Call it from uniform control flow, because it contains barriers. It ends with a barrier.
fn softmax(lane: u32) {
    let m = lane / SHARERS;
    let start = m * BLOCK + lane % SHARERS * SHARE;
    if m < QUERIES {
        var most = NOTHING;
        for (var j = start; j < start + SHARE; j += 8u) { unroll e in 8 { most = max(most, scores[j + $eu]); } }
        shares[lane] = most;
    }
    workgroupBarrier();
    var now = NOTHING;
    if m < QUERIES {
        now = largest[m];
        unroll p in SHARERS { now = max(now, shares[m * SHARERS + $pu]); }
    }
    workgroupBarrier();
    if m < QUERIES {
        var sum = 0.0;
        for (var j = start; j < start + SHARE; j += 8u) { unroll e in 8 { {
            let p = exp(scores[j + $eu] - now);
            scores[j + $eu] = p;
            sum += p;
        } } }
        shares[lane] = sum;
    }
    workgroupBarrier();
    if m < QUERIES && lane % SHARERS == 0u {
        let scale = exp(largest[m] - now);
        var sum = total[m] * scale;
        unroll p in SHARERS { sum += shares[lane + $pu]; }
        total[m] = sum;
        rescale[m] = scale;
        largest[m] = now;
    }
    workgroupBarrier();
}
