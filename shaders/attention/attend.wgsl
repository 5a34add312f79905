// Attention of a query over the tokens j of its slot, from the first token to the query's own token:
//   o = sum over j of p_j v_j / sum over j of p_j   p_j = exp(s_j - m)   m = max over j of s_j
// The score s_j is q k_j, or limit tanh(q k_j) if scores have a limit. The values of a key head are divided into VALUE_TILES tiles of channels.
// One workgroup computes ROWS consecutive tokens of a slot, HEADS query heads with the same key head, and one tile. It goes through the slot's
// cache blocks of BLOCK tokens. For the scores, a lane takes some keys of a block; for the sums, it takes pairs of channels. If m grows, the
// earlier sums are scaled down. HEADS and ROWS do not change the order of a query's sums. If SPLIT is 1, several workgroups share a query's
// blocks, and each stores its sum of p v, its m and its sum of p for attention/combine.
// Slot queries: attention/queries, attention/queries_window
// Slot cache: cache/*
import package::lib::cursor::{n_tokens, row_at, run_at};
import package::attention::blocks::{VALUE_STEP, block_of, key_at, value_at};
import package::slot::queries::{bring, query4};
import package::attention::softmax::{NOTHING, scores, largest, total, rescale, begin_softmax, softmax};
import package::slot::cache::{Eight, Two, unpack2, unpack8};
import package::constants::{LANES, UNITS, VALUE_UNITS, VALUE_TILES, N_HEADS, N_KV_HEADS, BLOCK, HEADS, ROWS, QUERIES, PAIRS, STEP, SPLIT};

struct Params {
    // Index of the first row that this dispatch computes.
    t0: u32,
    // Index of the first row that the binding qkv contains.
    q0: u32,
    // Stride of a row of qkv, in vectors of 4 floats.
    stride: u32,
    // Stride of a row of y, in floats.
    y_stride: u32,
    // If SPLIT is 1: offset of the largest scores m in a row of y, in floats. One m per query head and tile.
    largest: u32,
    // If SPLIT is 1: offset of the sums of p in a row of y, in floats. One sum per query head and tile.
    total: u32,
    // The number of cache blocks per workgroup.
    split_blocks: u32,
    // The number of workgroups that share a query.
    n_splits: u32,
    // The limit of a score. 0: scores have no limit.
    limit: f32,
    // 1: adds the result to y; 0: overwrites y.
    adds: u32,
    // The value of the constant UNITS. The loop over `u0` reads it from here, so that the compiler does not know it.
    units: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(3) var<storage, read> keys: array<Eight>; // [blocks, G, D / 8, BLOCK]
@group(0) @binding(4) var<storage, read> values: array<Two>; // [blocks, G, VALUE_TILES, BLOCK, D / 2]; the keys if IN_KEYS is 1
@group(0) @binding(5) var<storage, read_write> y: array<f32>; // [T, y_stride]; if SPLIT is 1: [T, n_splits, y_stride]

// The number of groups of HEADS query heads that read the same key head.
const TILES: u32 = N_HEADS / N_KV_HEADS / HEADS;
// The number of pairs of channels of a tile.
const VALUE_PAIRS: u32 = 4u * VALUE_UNITS;

fn limited(s: f32) -> f32 {
    if params.limit == 0.0 { return s; }
    // Some drivers compute tanh from exp, which overflows.
    return params.limit * tanh(clamp(s, -15.0, 15.0));
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = params.t0 + group.x;
    if t >= n_tokens() { return; }
    let run = run_at(row_at(t).run);
    let local = t - run.first_row;
    let n_rows = min(ROWS, run.len - local);
    let position = run.position + local;
    let end = position + n_rows;
    let first_block = group.z * params.split_blocks;
    let end_block = min(first_block + params.split_blocks, (end + BLOCK - 1u) / BLOCK);
    if local % ROWS != 0u || first_block >= end_block { return; }
    let tile = group.y % VALUE_TILES;
    let kv_head = group.y / VALUE_TILES / TILES;
    let head0 = group.y / VALUE_TILES * HEADS;

    // Beyond the end of the run, the surplus rows repeat the run's last row and are not stored.
    unroll m in QUERIES {
        let q_$m = (t - params.q0 + min($mu / HEADS, n_rows - 1u)) * params.stride + (head0 + $mu % HEADS) * 2u * UNITS;
        for (var i = lane; i < 2u * UNITS; i += LANES) { bring($mu, i, q_$m); }
    }
    begin_softmax(lane);
    unroll m in QUERIES { unroll p in PAIRS { var sum_$m_$p = vec2(0.0); } }
    workgroupBarrier();

    // On GPUs the compiler must not know how often the loop over `u0` runs. Otherwise Mesa's compiler for NVIDIA unrolls it and spills
    // registers.
    let units = select(params.units, UNITS, LANES < 64u);
    for (var b = first_block; b < end_block; b++) {
        let block = block_of(run, b);
        let key0 = b * BLOCK;
        for (var token = lane; token < BLOCK; token += LANES) {
            let k_at = key_at(block, kv_head, 0u, token);
            unroll m in QUERIES { var s_$m = 0.0; }
            for (var u0 = 0u; u0 < units; u0 += STEP) {
                unroll s in STEP { {
                    let u = u0 + $su;
                    let k = unpack8(keys[k_at + u * BLOCK]);
                    unroll m in QUERIES { s_$m += dot(k[0], query4($mu, 2u * u, q_$m)) + dot(k[1], query4($mu, 2u * u + 1u, q_$m)); }
                } }
            }
            unroll m in QUERIES { scores[$mu * BLOCK + token] = select(NOTHING, limited(s_$m), key0 + token <= position + $mu / HEADS); }
        }
        workgroupBarrier();

        softmax(lane);

        unroll m in QUERIES { {
            let scale = rescale[$m];
            unroll p in PAIRS { sum_$m_$p *= scale; }
        } }
        // Surplus lanes read the last pair of channels again and store nothing.
        unroll p in PAIRS { let v_at_$p = value_at(block, kv_head, tile, min(lane + $pu * LANES, VALUE_PAIRS - 1u)); }
        // Values after the last token have not been written and may be NaN, so they are not read.
        let n = min(BLOCK, end - key0);
        for (var j = 0u; j < n; j++) {
            unroll p in PAIRS { let v_$p = unpack2(values[v_at_$p + j * VALUE_STEP]); }
            unroll m in QUERIES { {
                let w = scores[$mu * BLOCK + j];
                unroll p in PAIRS { sum_$m_$p += w * v_$p; }
            } }
        }
        workgroupBarrier();
    }

    unroll m in QUERIES { if $mu / HEADS < n_rows {
        let head = (head0 + $mu % HEADS) * VALUE_TILES + tile;
        let row = (t + $mu / HEADS) * params.n_splits + group.z;
        unroll p in PAIRS { {
            let pair = lane + $pu * LANES;
            if pair < VALUE_PAIRS {
                var o = select(sum_$m_$p / total[$m], sum_$m_$p, SPLIT == 1u);
                let at = row * params.y_stride + 2u * (head * VALUE_PAIRS + pair);
                if params.adds == 1u { o += vec2(y[at], y[at + 1u]); }
                y[at] = o.x;
                y[at + 1u] = o.y;
            }
        } }
        if SPLIT == 1u && lane == 0u {
            y[row * params.y_stride + params.largest + head] = largest[$m];
            y[row * params.y_stride + params.total + head] = total[$m];
        }
    } }
}
