//! Grouped-query attention over a cache of keys and values, with rotary positions.
//!
//!   q, k are rotated by their position; k, v are appended to the cache; o_i = Σ_j softmax_j(q_i · k_j / √D) v_j over all j ≤ i
//!   qkv `[T, H D + 2 G D]`, o `[T, H D]`; on the host, keys are `[blocks, G, D, 64]` and values `[blocks, 64, G, D]`
//!   query head h reads key head ⌊h / (H / G)⌋
//! T is the number of tokens, H the number of query heads, G the number of key heads, D the number of channels per head. Source: GLM, arXiv
//! 2406.12793. The host computes a table of the angles of all positions, because sin and cos of shaders are wrong by 5e-4 at far positions.
//!
//! The attention of RWKV-7b limits its scores and has one head, whose values are wider than its keys:
//!
//!   x_i ← x_i + Σ_j softmax_j(L tanh(q_i · k_j s)) v_j      L is the limit of a score, s the scale of q

mod cases;
mod host;

use crate::quant::PAD;
use crate::quant::isa::Isa;
use crate::tape::{Binding, Cache, CacheSpec, Class, Dispatch, Host, Lowering, Rows, TOKENS_PER_BLOCK, Tape, Var, WINDOW_BYTES, Word};
pub use cases::cases;
use host::CachedSequence;

/// Index of the column q in the activation qkv. The columns k and v follow.
const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;

/// The numbers of query heads and key heads, and the size of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attention {
    /// H, the number of query heads, a multiple of `n_kv_heads`.
    pub n_heads: usize,
    /// G, the number of key heads, which is also the number of value heads.
    pub n_kv_heads: usize,
    /// D, the number of channels of a head with its padding, a multiple of 8.
    pub head_size: usize,
    /// The number of channels at the end of each head that are always zero. The factor for q, 1/√(head_size − padding), does not count these
    /// channels.
    pub padding: usize,
}

impl Attention {
    /// Returns the factor for q, 1/√(head_size − padding).
    fn scale(&self) -> f32 {
        1.0 / ((self.head_size - self.padding) as f32).sqrt()
    }
}

/// Attention of one head whose scores are limited. Its result is added to the residual stream.
#[derive(Debug, Clone, Copy)]
pub struct LimitedAttention {
    /// The number of channels of a query and of a key, a multiple of 8.
    pub key_size: usize,
    /// The number of channels of a value, a multiple of 8.
    pub value_size: usize,
    /// The factor that multiplies q before the limit is applied.
    pub scale: f32,
    /// The limit L of a score, which is L tanh(q · k scale).
    pub limit: f32,
}

/// Attention over latents: one key head, which all query heads read. A value is the last part of the key.
#[derive(Debug, Clone, Copy)]
pub struct LatentAttention {
    /// The number of query heads.
    pub n_heads: usize,
    /// The number of channels of a query and of the key, a multiple of 8.
    pub key_size: usize,
    /// The number of channels of the value, a multiple of 8.
    pub value_size: usize,
    /// The factor for q.
    pub scale: f32,
}

struct Attend {
    of: Attention,
    /// The number of tiles per value vector. Each workgroup sums the channels of one tile, so the workgroups of all tiles compute the same scores.
    tiles: usize,
    /// The number of channels of a tile.
    value_size: usize,
    /// The factor for q.
    scale: f32,
    /// The limit of a score, or 0 if scores have no limit.
    limit: f32,
    /// The activation with the columns q (H D channels), k and v (G D channels each). H is the number of query heads, G the number of key heads,
    /// D the number of channels per head.
    qkv: Var,
    keys: Cache,
    /// `None` if the values are the last channels of the keys.
    values: Option<Cache>,
    /// Scratch for partial results of workgroups that share a query. Each workgroup stores its output o, its largest score m, and its sum of p, the
    /// unnormalised weights of the softmax.
    splits: Var,
    /// The output o: one row per token, with the channels of all query heads.
    y: Var,
    /// `true` if o is added to y.
    adds: bool,
}

/// The number of rows of `splits`: an upper bound on the tokens of a step times the workgroups that share a query.
const MAX_SPLITS: usize = 256;
/// The number of workgroups that keeps a large GPU busy.
const BUSY_WORKGROUPS: usize = 256;
/// The smallest number of cache blocks that a workgroup takes if several workgroups share a query.
const MIN_BLOCKS: usize = 4;
/// The largest number of channels that a workgroup sums for one query.
const MAX_TILE: usize = 256;

impl Tape {
    /// Records attention over the columns q, k and v of `qkv`. Returns the output o: one row per token, with the channels of all query
    /// heads. The tape's `rotary` determines the rotation. In state files, the key cache has the name `NAME.k` and the value cache `NAME.v`,
    /// where NAME is the argument `name`.
    pub fn attention(&mut self, name: &str, qkv: Var, of: Attention) -> Var {
        let Attention { n_heads, n_kv_heads, head_size, .. } = of;
        let [keys, values] = self.key_and_value(name, (n_kv_heads, head_size), (n_kv_heads, head_size));
        let splits = self.device_scratch("splits", Rows::Fixed(MAX_SPLITS), &[n_heads * head_size, n_heads, n_heads]);
        let y = self.scratch("attention", Rows::Tokens, &[n_heads * head_size]);
        self.record(Attend {
            of,
            tiles: 1,
            value_size: head_size,
            scale: of.scale(),
            limit: 0.0,
            qkv,
            keys,
            values: Some(values),
            splits,
            y,
            adds: false,
        });
        y
    }

    /// Records x += o, where o is the attention over the columns q, k and v of `qkv`, with one head and limited scores. The tape's `rotary` must be
    /// `None`, because this attention has no rotation. `name` is the beginning of the names in state files, as in [`attention`](Self::attention).
    pub fn attention_add(&mut self, name: &str, qkv: Var, of: LimitedAttention, x: Var) {
        let LimitedAttention { key_size, value_size: width, scale, limit } = of;
        let (tiles, value_size) = tiles(width);
        let [keys, values] = self.key_and_value(name, (1, key_size), (tiles, value_size));
        let splits = self.device_scratch("splits", Rows::Fixed(MAX_SPLITS), &[width, tiles, tiles]);
        let of = Attention { n_heads: 1, n_kv_heads: 1, head_size: key_size, padding: 0 };
        self.record(Attend { of, tiles, value_size, scale, limit, qkv, keys, values: Some(values), splits, y: x, adds: true });
    }

    /// Records attention of query heads that share one head of keys. The last channels of the keys are the values. Returns the output o: one row per
    /// token, with the values of all query heads. `qkv` has the columns q and k. `name` is the beginning of the names in state files, as in
    /// [`attention`](Self::attention).
    pub fn latent_attention(&mut self, name: &str, qkv: Var, of: LatentAttention) -> Var {
        let LatentAttention { n_heads, key_size, value_size: width, scale } = of;
        let (tiles, value_size) = tiles(width);
        let keys = self.cache(CacheSpec { name: format!("{name}.k"), n_heads: 1, head_size: key_size, is_keys: true });
        let splits = self.device_scratch("splits", Rows::Fixed(MAX_SPLITS), &[n_heads * width, n_heads * tiles, n_heads * tiles]);
        let y = self.scratch("attention", Rows::Tokens, &[n_heads * width]);
        let of = Attention { n_heads, n_kv_heads: 1, head_size: key_size, padding: 0 };
        self.record(Attend { of, tiles, value_size, scale, limit: 0.0, qkv, keys, values: None, splits, y, adds: false });
        y
    }

    /// Declares the caches of keys and values. `keys` and `values` are pairs: the number of heads, and the number of channels per head.
    fn key_and_value(&mut self, name: &str, keys: (usize, usize), values: (usize, usize)) -> [Cache; 2] {
        [("k", keys), ("v", values)].map(|(end, (n_heads, head_size))| {
            self.cache(CacheSpec { name: format!("{name}.{end}"), n_heads, head_size, is_keys: end == "k" })
        })
    }
}

/// Divides the channels of a value into tiles. Returns the number of tiles and their size. The size is the largest multiple of 8 that is at most 256
/// and divides the width.
fn tiles(width: usize) -> (usize, usize) {
    let size = (PAD..=MAX_TILE.min(width)).rev().find(|&n| width.is_multiple_of(n) && n.is_multiple_of(PAD)).unwrap_or(width);
    (width / size, size)
}

/// How the attention of one step is divided among workgroups and lanes.
struct Shape {
    /// The number of lanes per workgroup.
    lanes: usize,
    /// The number of query heads per workgroup.
    heads: usize,
    /// The number of tokens per workgroup.
    rows: usize,
    /// The number of lanes that share the scores of a query.
    sharers: usize,
    /// The number of workgroups that share a query.
    n_splits: usize,
    /// The number of cache blocks per workgroup.
    split_blocks: usize,
    /// `true` if the kernel reads queries through a uniform binding.
    by_window: bool,
    /// The largest number of tokens per dispatch.
    step_rows: usize,
}

impl Shape {
    /// Chooses the shape by the adapter's kernel family and the size of the step. `tiles` is the number of tiles of a value vector
    /// ([`Attend::tiles`]). `stride` is the number of floats from one row of qkv to the next.
    fn choose(cx: &Lowering<'_>, of: &Attention, tiles: usize, stride: usize) -> Shape {
        let (lanes, most, sharers) = match cx.caps.class {
            // The queries of a workgroup take at most 8 KiB of workgroup memory.
            Class::Groups => (64, (2048 / of.head_size).clamp(1, 16), 4),
            Class::Lanes => (8, (2048 / of.head_size).clamp(1, 8), 1),
        };
        let group = of.n_heads / of.n_kv_heads;
        let heads = (1..=most.min(group)).rev().find(|&n| group.is_multiple_of(n)).unwrap_or(1);
        let has_chunks = cx.tokens > cx.runs || cx.caps.batch_invariant;
        let rows = if has_chunks { most / heads } else { 1 };
        let n_blocks = cx.context.div_ceil(TOKENS_PER_BLOCK).max(1);
        let workgroups = cx.tokens * of.n_heads / heads * tiles;
        let wanted = match cx.caps.class {
            Class::Groups if !has_chunks => BUSY_WORKGROUPS.div_ceil(workgroups).min(MAX_SPLITS / cx.tokens).max(1),
            _ => 1,
        };
        let split_blocks = n_blocks.div_ceil(wanted).max(MIN_BLOCKS);
        // A dispatch has one window for the queries, so all rows that it reads must fit this window.
        let window = WINDOW_BYTES / 4 / stride;
        let by_window = cx.caps.class == Class::Lanes && window >= rows;
        let step_rows = if by_window { window + 1 - rows } else { cx.tokens };
        Shape { lanes, heads, rows, sharers, n_splits: n_blocks.div_ceil(split_blocks), split_blocks, by_window, step_rows }
    }

    fn is_split(&self) -> bool {
        self.n_splits > 1
    }
}

impl Word for Attend {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let shape = Shape::choose(cx, &self.of, self.tiles, cx.tape.var_spec(self.qkv).stride());
        let attend = (0..cx.tokens).step_by(shape.step_rows).map(|t0| self.attend(cx, &shape, t0));
        let combine = shape.is_split().then(|| self.combine(cx, &shape));
        std::iter::once(self.append_dispatch(cx, &shape)).chain(attend).chain(combine).collect()
    }

    fn twin(&self, host: &mut Host) {
        let Attention { n_heads, head_size, .. } = self.of;
        let width = self.tiles * self.value_size;
        self.append(host);
        let (stride, y_stride) = (host.stride(self.qkv), host.stride(self.y));
        let column = host.tape.var_spec(self.qkv).column(Q);
        let mut y = host.take(self.y);
        for run in &host.step.runs {
            let blocks = &host.step.blocks[run.blocks_at as usize..];
            let values = self.values.map(|values| host.cache(values));
            let sequence = CachedSequence { of: self, keys: host.cache(self.keys), values, blocks, isa: Isa::best() };
            let first = run.first_row as usize;
            let q = |i: usize| &host.var(self.qkv)[(first + i) * stride + column..][..n_heads * head_size];
            sequence.attend(run.len as usize, run.position as usize, q, |i, head, o| {
                let y = &mut y[(first + i) * y_stride + head * width..][..width];
                y.iter_mut().zip(o).for_each(|(y, o)| *y = if self.adds { *y } else { 0.0 } + o);
            });
        }
        host.put(self.y, y);
    }
}

impl Attend {
    /// Returns the constants that all kernels of the word share, then the constants `more`.
    fn sizes(&self, shape: &Shape, more: &[(&'static str, usize)]) -> Vec<(&'static str, u32)> {
        let Attention { n_heads, n_kv_heads, head_size, .. } = self.of;
        let sizes = [
            ("LANES", shape.lanes),
            ("UNITS", head_size / PAD),
            ("VALUE_UNITS", self.value_size / PAD),
            ("VALUE_TILES", self.tiles),
            ("N_HEADS", n_heads),
            ("N_KV_HEADS", n_kv_heads),
            ("IN_KEYS", usize::from(self.values.is_none())),
            ("BLOCK", TOKENS_PER_BLOCK),
        ];
        sizes.iter().chain(more).map(|&(name, n)| (name, n as u32)).collect()
    }

    /// Returns the dispatch of the shader attention/append, which rotates q and k, scales q, and writes k and v to the caches.
    fn append_dispatch(&self, cx: &Lowering<'_>, shape: &Shape) -> Dispatch {
        let Attention { n_heads, n_kv_heads, head_size, .. } = self.of;
        let value = if self.values.is_some() { self.tiles * self.value_size } else { 0 };
        let units = ((n_heads + n_kv_heads) * head_size + n_kv_heads * value) / PAD;
        let all = units.div_ceil(shape.lanes);
        // On a software adapter, starting a workgroup costs more than its work, so one workgroup takes a whole token.
        let groups = if cx.caps.class == Class::Lanes { 1 } else { all };
        Dispatch {
            shader: "attention/append",
            modules: vec![cache_module(cx)],
            constants: self.sizes(shape, &[]),
            params: vec![
                ("stride", (cx.tape.var_spec(self.qkv).stride() / 4).into()),
                ("pairs", (cx.tape.rotary.map_or(0, |r| r.size) / 2).into()),
                ("scale", self.scale.into()),
                ("groups", groups.into()),
            ],
            bindings: vec![
                ("qkv", Binding::Var(self.qkv)),
                ("blocks", Binding::Blocks),
                ("angles", Binding::Angles),
                ("keys", Binding::Cache(self.keys)),
                ("values", self.values.map_or(Binding::Spare, Binding::Cache)),
            ],
            grid: [cx.tokens as u32, groups as u32, 1],
        }
    }

    /// Returns the dispatch of the shader attention/attend for up to `shape.step_rows` tokens, beginning at token `t0`.
    fn attend(&self, cx: &Lowering<'_>, shape: &Shape, t0: usize) -> Dispatch {
        let Attention { n_heads, head_size, .. } = self.of;
        let (units, stride) = (head_size / PAD, cx.tape.var_spec(self.qkv).stride());
        let y = if shape.is_split() { self.splits } else { self.y };
        let out = cx.tape.var_spec(y);
        let [largest, total] = if shape.is_split() { [1, 2].map(|i| out.column(i)) } else { [0, 0] };
        let (q, q0) = match shape.by_window {
            true => (Binding::VarWindow(self.qkv, t0 * stride * 4), t0),
            false => (Binding::Var(self.qkv), 0),
        };
        let queries = if shape.by_window { "attention::queries_window" } else { "attention::queries" };
        Dispatch {
            shader: "attention/attend",
            modules: vec![cache_module(cx), ("queries", queries.into())],
            constants: self.sizes(
                shape,
                &[
                    ("HEADS", shape.heads),
                    ("ROWS", shape.rows),
                    ("QUERIES", shape.heads * shape.rows),
                    ("SHARERS", shape.sharers),
                    ("PAIRS", (self.value_size / 2).div_ceil(shape.lanes)),
                    ("STEP", [4, 2, 1].into_iter().find(|n| units.is_multiple_of(*n)).unwrap_or(1)),
                    ("SPLIT", usize::from(shape.is_split())),
                ],
            ),
            params: vec![
                ("t0", t0.into()),
                ("q0", q0.into()),
                ("stride", (stride / 4).into()),
                ("y_stride", out.stride().into()),
                ("largest", largest.into()),
                ("total", total.into()),
                ("split_blocks", shape.split_blocks.into()),
                ("n_splits", shape.n_splits.into()),
                ("limit", self.limit.into()),
                ("adds", (self.adds && !shape.is_split()).into()),
                ("units", units.into()),
            ],
            bindings: vec![
                ("qkv", q),
                ("blocks", Binding::Blocks),
                ("keys", Binding::Cache(self.keys)),
                ("values", Binding::Cache(self.values.unwrap_or(self.keys))),
                ("y", Binding::Var(y)),
            ],
            grid: [shape.step_rows.min(cx.tokens - t0) as u32, (n_heads / shape.heads * self.tiles) as u32, shape.n_splits as u32],
        }
    }

    /// Returns the dispatch of the shader attention/combine, which combines the partial results of workgroups that share a query.
    fn combine(&self, cx: &Lowering<'_>, shape: &Shape) -> Dispatch {
        let splits = cx.tape.var_spec(self.splits);
        Dispatch {
            shader: "attention/combine",
            modules: vec![],
            constants: self.sizes(shape, &[]),
            params: vec![
                ("split_stride", splits.stride().into()),
                ("largest", splits.column(1).into()),
                ("total", splits.column(2).into()),
                ("split_blocks", shape.split_blocks.into()),
                ("n_splits", shape.n_splits.into()),
                ("stride", cx.tape.var_spec(self.y).stride().into()),
                ("adds", self.adds.into()),
            ],
            bindings: vec![("splits", Binding::Var(self.splits)), ("y", Binding::Var(self.y))],
            grid: [cx.tokens as u32, (self.of.n_heads * self.tiles) as u32, 1],
        }
    }

    /// Rotates q and k of the step's tokens, scales q, and writes k and v to the caches. The shader attention/append does the same on a
    /// device.
    fn append(&self, host: &mut Host) {
        let tape = host.tape.clone();
        let (spec, format) = (tape.var_spec(self.qkv), tape.cache_format);
        let (stride, size) = (spec.stride(), self.of.head_size);
        let pairs = tape.rotary.map_or(0, |r| r.size / 2);
        let (mut qkv, mut keys) = (host.take(self.qkv), host.take_cache(self.keys));
        let mut values = self.values.map(|values| host.take_cache(values));
        for (t, run, i) in host.step.rows() {
            let position = run.position as usize + i;
            let angles = &host.angles[2 * pairs * position..][..2 * pairs];
            let block = host.step.blocks[run.blocks_at as usize + position / TOKENS_PER_BLOCK];
            let row = &mut qkv[t * stride..][..stride];
            let of = |column: usize| spec.column(column)..spec.column(column) + spec.columns[column];
            row[of(Q)].chunks_exact_mut(size).for_each(|head| {
                rotate(head, angles);
                head.iter_mut().for_each(|x| *x *= self.scale);
            });
            let mut k = row[of(K)].to_vec();
            k.chunks_exact_mut(size).for_each(|head| rotate(head, angles));
            keys.write(format, block, position % TOKENS_PER_BLOCK, &k);
            if let Some(values) = &mut values {
                values.write(format, block, position % TOKENS_PER_BLOCK, &row[of(V)]);
            }
        }
        host.put(self.qkv, qkv);
        host.put_cache(self.keys, keys);
        if let (Some(cache), Some(values)) = (self.values, values) {
            host.put_cache(cache, values);
        }
    }
}

/// Returns the shader slot `cache`, and the module that fills it for the tape's cache format.
fn cache_module(cx: &Lowering<'_>) -> (&'static str, String) {
    ("cache", format!("cache::{}", cx.tape.cache_format.name()))
}

/// Rotates the channels of a head in place, in pairs (2i, 2i + 1). `angles` has the cosine and the sine of each pair's angle, one pair
/// after another. Channels beyond the length of `angles` are not changed.
fn rotate(head: &mut [f32], angles: &[f32]) {
    for (x, a) in head.chunks_exact_mut(2).zip(angles.chunks_exact(2)) {
        (x[0], x[1]) = (x[0] * a[0] - x[1] * a[1], x[1] * a[0] + x[0] * a[1]);
    }
}
