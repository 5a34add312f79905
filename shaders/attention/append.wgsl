// Rotates q and k of a step's tokens and appends k and v to the caches. In each head, the first `pairs` pairs of channels (2i, 2i + 1) are
// rotated:
//   y_2i = x_2i cos a - x_2i+1 sin a   y_2i+1 = x_2i+1 cos a + x_2i sin a   a = p / base^(i / pairs)
// x is q or k before the rotation, y after. p is the token's position, base the constant of the rotary embedding. q is multiplied by `scale` and
// written back to qkv. `groups` workgroups share one token. A lane takes eight channels of a head at a time. In the shapes below, H is the number of
// query heads and G the number of key heads. The values of a key head are divided into VALUE_TILES tiles of channels. D is a number of channels with
// padding: 8 * UNITS of a head in q and k, 8 * VALUE_UNITS of a tile in v. If IN_KEYS is 1, a value is a part of the key, and there is no v.
// Slot cache: cache/*
import package::lib::cursor::{n_tokens, row_at, run_at};
import package::attention::blocks::{VALUE_STEP, block_of, key_at, value_at};
import package::slot::cache::{Eight, Two, pack2, pack8};
import package::constants::{LANES, UNITS, VALUE_UNITS, VALUE_TILES, N_HEADS, N_KV_HEADS, IN_KEYS, BLOCK};

struct Params {
    // Stride of a row of qkv, in vectors of 4 floats.
    stride: u32,
    // The number of pairs of channels that are rotated in each head.
    pairs: u32,
    // The factor for q.
    scale: f32,
    // The number of workgroups that share the work for one token.
    groups: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> qkv: array<vec4<f32>>; // [T, stride]: q [H, D], k [G, D], v [G, VALUE_TILES, D]
@group(0) @binding(3) var<storage, read> angles: array<vec2<f32>>; // [positions, pairs]: cos, sin
@group(0) @binding(4) var<storage, read_write> keys: array<Eight>; // [blocks, G, D / 8, BLOCK]
@group(0) @binding(5) var<storage, read_write> values: array<Two>; // [blocks, G, VALUE_TILES, BLOCK, D / 2]; unused if IN_KEYS is 1

// Index of the first unit of v in a row of qkv. A unit is eight channels.
const V: u32 = (N_HEADS + N_KV_HEADS) * UNITS;

fn rotate(x: vec2<f32>, position: u32, pair: u32) -> vec2<f32> {
    if pair >= params.pairs { return x; }
    let a = angles[position * params.pairs + pair];
    return vec2(x.x * a.x - x.y * a.y, x.y * a.x + x.x * a.y);
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let t = group.x;
    if t >= n_tokens() { return; }
    let run = run_at(row_at(t).run);
    let position = run.position + t - run.first_row;
    let block = block_of(run, position / BLOCK);
    let end = V + select(N_KV_HEADS * VALUE_TILES * VALUE_UNITS, 0u, IN_KEYS == 1u);
    for (var i = group.y * LANES + lane; i < end; i += params.groups * LANES) { append(t, i, position, block); }
}

// Processes unit i of row t of qkv: eight channels of one head of q, k or v. Rotates units of q and k, then stores q in qkv, and k and v in the
// caches. `position` is the token's position, `block` the cache block of that position.
fn append(t: u32, i: u32, position: u32, block: u32) {
    let at = t * params.stride + 2u * i;
    var a = qkv[at];
    var b = qkv[at + 1u];
    let token = position % BLOCK;
    if i >= V {
        let tile = (i - V) / VALUE_UNITS;
        let first = value_at(block, tile / VALUE_TILES, tile % VALUE_TILES, 4u * ((i - V) % VALUE_UNITS));
        let to = first + token * VALUE_STEP;
        values[to] = pack2(a.xy);
        values[to + 1u] = pack2(a.zw);
        values[to + 2u] = pack2(b.xy);
        values[to + 3u] = pack2(b.zw);
        return;
    }
    let head = i / UNITS;
    let u = i % UNITS;
    a = vec4(rotate(a.xy, position, 4u * u), rotate(a.zw, position, 4u * u + 1u));
    b = vec4(rotate(b.xy, position, 4u * u + 2u), rotate(b.zw, position, 4u * u + 3u));
    if head >= N_HEADS {
        keys[key_at(block, head - N_HEADS, u, token)] = pack8(a, b);
        return;
    }
    qkv[at] = a * params.scale;
    qkv[at + 1u] = b * params.scale;
}
