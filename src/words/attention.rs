//! Grouped-query attention over a cache of keys and values, with rotary positions.
//!
//!   q, k are rotated by their position; k, v are appended to the cache; o_i = Σ_j softmax_j(q_i · k_j / √D) v_j over all j ≤ i
//!   qkv `[T, H D + 2 G D]`, keys and values `[blocks, 64, G, D]`, o `[T, H D]`; query head h reads key head ⌊h / (H / G)⌋
//! T is the number of tokens, H of query heads, G of key heads, D of channels per head. Source: GLM, arXiv 2406.12793. [`Word::twin`] is
//! the word's reference implementation on the CPU.

use super::testing::{BLOCKS, Case};
use crate::quant::PAD;
use crate::tape::{
    Binding, Cache, CacheSpec, Class, Dispatch, Host, Lowering, Rotary, Rows, Run, Step, TOKENS_PER_BLOCK, Tape, Var, WINDOW_BYTES, Word,
};
use rayon::prelude::*;

/// Index of the column q in the activation qkv. The columns k and v follow.
const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;

/// The numbers of query heads and key heads, and the size of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attention {
    /// H, the number of query heads. It is a multiple of `n_kv_heads`.
    pub n_heads: usize,
    /// G, the number of key heads. It is also the number of value heads.
    pub n_kv_heads: usize,
    /// D, the number of channels of a head. It is a multiple of 8.
    pub head_size: usize,
    /// The number of channels at the end of each head that are zeros. They do not count in D of the scale 1/√D.
    pub padding: usize,
}

impl Attention {
    /// Returns the factor 1/√D for q.
    fn scale(&self) -> f32 {
        1.0 / ((self.head_size - self.padding) as f32).sqrt()
    }
}

struct Attend {
    of: Attention,
    /// The activation with the columns q (H D channels), k and v (G D channels each). H is the number of query heads, G of key heads, D of
    /// channels per head.
    qkv: Var,
    keys: Cache,
    values: Cache,
    /// Scratch for partial results. If several workgroups share a query, each workgroup stores its output o, its largest score m and its
    /// sum of p, the unnormalised weights of the softmax.
    splits: Var,
    /// The output o: one row per token, with the channels of all query heads.
    y: Var,
}

/// The number of rows of `splits`. If n workgroups share each query, a step uses n rows per token.
const MAX_SPLITS: usize = 256;
/// The number of workgroups that keeps a large GPU busy.
const BUSY_WORKGROUPS: usize = 256;
/// The smallest number of cache blocks that a workgroup takes if several workgroups share a query.
const MIN_BLOCKS: usize = 4;

impl Tape {
    /// Records attention over the columns q, k and v of `qkv`. Returns the output o: one row per token, with the channels of all query
    /// heads. The tape's `rotary` determines the rotation. In state files, the key cache has the name `NAME.k` and the value cache `NAME.v`,
    /// where NAME is the argument `name`.
    pub fn attention(&mut self, name: &str, qkv: Var, of: Attention) -> Var {
        let Attention { n_heads, n_kv_heads, head_size, .. } = of;
        let cache = |end: &str, is_keys| CacheSpec { name: format!("{name}.{end}"), n_heads: n_kv_heads, head_size, is_keys };
        let (keys, values) = (self.cache(cache("k", true)), self.cache(cache("v", false)));
        let splits = self.device_scratch("splits", Rows::Fixed(MAX_SPLITS), &[n_heads * head_size, n_heads, n_heads]);
        let y = self.scratch("attention", Rows::Tokens, &[n_heads * head_size]);
        self.record(Attend { of, qkv, keys, values, splits, y });
        y
    }
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
    /// Chooses the shape by the adapter's kernel family and the size of the step. `stride` is the number of floats in a row of qkv.
    fn choose(cx: &Lowering<'_>, of: &Attention, stride: usize) -> Shape {
        let (lanes, most, sharers) = match cx.caps.class {
            // The queries of a workgroup take at most 8 KiB of workgroup memory.
            Class::Groups => (64, (2048 / of.head_size).clamp(1, 16), 4),
            Class::Lanes => (8, 8, 1),
        };
        let group = of.n_heads / of.n_kv_heads;
        let heads = (1..=most.min(group)).rev().find(|&n| group.is_multiple_of(n)).unwrap_or(1);
        let has_chunks = cx.tokens > cx.runs || cx.caps.batch_invariant;
        let rows = if has_chunks { most / heads } else { 1 };
        let n_blocks = cx.context.div_ceil(TOKENS_PER_BLOCK).max(1);
        let workgroups = cx.tokens * of.n_heads / heads;
        let wanted = match cx.caps.class {
            Class::Groups if !has_chunks => BUSY_WORKGROUPS.div_ceil(workgroups).min(MAX_SPLITS / cx.tokens).max(1),
            _ => 1,
        };
        let split_blocks = n_blocks.div_ceil(wanted).max(MIN_BLOCKS);
        // All rows that one dispatch reads must fit one window of a uniform binding.
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
        let shape = Shape::choose(cx, &self.of, cx.tape.var_spec(self.qkv).stride());
        let attend = (0..cx.tokens).step_by(shape.step_rows).map(|t0| self.attend(cx, &shape, t0));
        let combine = shape.is_split().then(|| self.combine(cx, &shape));
        std::iter::once(self.append_dispatch(cx, &shape)).chain(attend).chain(combine).collect()
    }

    fn twin(&self, host: &mut Host) {
        let Attention { n_heads, n_kv_heads, head_size, .. } = self.of;
        self.append(host);
        let tape = host.tape.clone();
        let (stride, y_stride) = (host.stride(self.qkv), host.stride(self.y));
        let mut y = host.take(self.y);
        for run in &host.step.runs {
            let blocks = &host.step.blocks[run.blocks_at as usize..];
            let read = |cache: Cache| host.cache(cache).rows(tape.cache_format, blocks, run.end());
            let (keys, values) = (read(self.keys), read(self.values));
            let (first, n) = (run.first_row as usize, run.len as usize);
            let qkv = host.var(self.qkv);
            let column = tape.var_spec(self.qkv).column(Q);
            y[first * y_stride..][..n * y_stride].par_chunks_mut(y_stride).enumerate().for_each(|(i, y)| {
                let q = &qkv[(first + i) * stride + column..][..n_heads * head_size];
                let n_keys = run.position as usize + i + 1;
                for (head, (q, o)) in q.chunks_exact(head_size).zip(y.chunks_exact_mut(head_size)).enumerate() {
                    let at = head / (n_heads / n_kv_heads) * head_size;
                    let row = |j: usize| j * n_kv_heads * head_size + at;
                    let mut p: Vec<f32> = (0..n_keys).map(|j| dot(q, &keys[row(j)..][..head_size])).collect();
                    let m = p.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    p.iter_mut().for_each(|s| *s = (*s - m).exp());
                    let total: f32 = p.iter().sum();
                    o.fill(0.0);
                    for (j, p) in p.iter().enumerate() {
                        o.iter_mut().zip(&values[row(j)..][..head_size]).for_each(|(o, v)| *o += p * v);
                    }
                    o.iter_mut().for_each(|o| *o /= total);
                }
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
            ("N_HEADS", n_heads),
            ("N_KV_HEADS", n_kv_heads),
            ("BLOCK", TOKENS_PER_BLOCK),
        ];
        sizes.iter().chain(more).map(|&(name, n)| (name, n as u32)).collect()
    }

    /// Returns the dispatch of the shader attention/append, which rotates q and k, scales q, and writes k and v to the caches.
    fn append_dispatch(&self, cx: &Lowering<'_>, shape: &Shape) -> Dispatch {
        let Attention { n_heads, n_kv_heads, head_size, .. } = self.of;
        // On a software adapter, starting a workgroup costs more than its work, so one workgroup takes a whole token.
        let all = ((n_heads + 2 * n_kv_heads) * head_size / PAD).div_ceil(shape.lanes);
        let groups = if cx.caps.class == Class::Lanes { 1 } else { all };
        Dispatch {
            shader: "attention/append",
            modules: vec![cache_module(cx)],
            constants: self.sizes(shape, &[]),
            params: vec![
                ("stride", (cx.tape.var_spec(self.qkv).stride() / 4).into()),
                ("pairs", (cx.tape.rotary.map_or(0, |r| r.size) / 2).into()),
                ("scale", self.of.scale().into()),
                ("groups", groups.into()),
            ],
            bindings: vec![
                ("qkv", Binding::Var(self.qkv)),
                ("blocks", Binding::Blocks),
                ("angles", Binding::Angles),
                ("keys", Binding::Cache(self.keys)),
                ("values", Binding::Cache(self.values)),
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
                    ("PAIRS", (head_size / 2).div_ceil(shape.lanes)),
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
            ],
            bindings: vec![
                ("qkv", q),
                ("blocks", Binding::Blocks),
                ("keys", Binding::Cache(self.keys)),
                ("values", Binding::Cache(self.values)),
                ("y", Binding::Var(y)),
            ],
            grid: [shape.step_rows.min(cx.tokens - t0) as u32, (n_heads / shape.heads) as u32, shape.n_splits as u32],
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
            ],
            bindings: vec![("splits", Binding::Var(self.splits)), ("y", Binding::Var(self.y))],
            grid: [cx.tokens as u32, self.of.n_heads as u32, 1],
        }
    }

    /// Rotates q and k of the step's tokens, scales q, and writes k and v to the caches. The shader attention/append does the same on a
    /// device.
    fn append(&self, host: &mut Host) {
        let tape = host.tape.clone();
        let (spec, format) = (tape.var_spec(self.qkv), tape.cache_format);
        let (stride, size) = (spec.stride(), self.of.head_size);
        let pairs = tape.rotary.map_or(0, |r| r.size / 2);
        let scale = self.of.scale();
        let (mut qkv, mut keys, mut values) = (host.take(self.qkv), host.take_cache(self.keys), host.take_cache(self.values));
        for (t, run, i) in host.step.rows() {
            let position = run.position as usize + i;
            let angles = &host.angles[2 * pairs * position..][..2 * pairs];
            let block = host.step.blocks[run.blocks_at as usize + position / TOKENS_PER_BLOCK];
            let row = &mut qkv[t * stride..][..stride];
            let of = |column: usize| spec.column(column)..spec.column(column) + spec.columns[column];
            row[of(Q)].chunks_exact_mut(size).for_each(|head| {
                rotate(head, angles);
                head.iter_mut().for_each(|x| *x *= scale);
            });
            let mut k = row[of(K)].to_vec();
            k.chunks_exact_mut(size).for_each(|head| rotate(head, angles));
            keys.write(format, block, position % TOKENS_PER_BLOCK, &k);
            values.write(format, block, position % TOKENS_PER_BLOCK, &row[of(V)]);
        }
        host.put(self.qkv, qkv);
        host.put_cache(self.keys, keys);
        host.put_cache(self.values, values);
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

/// Returns the dot product of two vectors whose length is a multiple of 8. The function keeps eight sums, so that the compiler can use one
/// SIMD register.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 8];
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum()
}

/// Returns a step with one run per pair. A pair has the number of a slot's tokens before the step, and the number of its new tokens. The
/// cache blocks of a slot are scattered.
fn step(runs: &[(usize, usize)]) -> Step {
    let mut step = Step::default();
    for &(before, n) in runs {
        let run = Run {
            first_row: step.tokens.len() as u32,
            len: n as u32,
            shift_out: 1,
            position: before as u32,
            blocks_at: step.blocks.len() as u32,
            ..Run::default()
        };
        step.tokens.extend(vec![0; n]);
        // 5 and BLOCKS have no common divisor except 1, so all blocks differ.
        let listed = (before + n).div_ceil(TOKENS_PER_BLOCK);
        let first = step.blocks.len();
        step.blocks.extend((0..listed).map(|i| ((first + i) * 5 % BLOCKS) as u32));
        step.runs.push(run);
    }
    step.outputs = vec![0];
    step
}

/// Returns cases with the head counts and head sizes of GLM models, and cases with unusual counts and sizes. Contexts have 1 to 1001
/// tokens.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let steps = || {
        vec![
            step(&[(0, 1)]),
            step(&[(5, 1), (63, 1), (0, 2)]),
            step(&[(64, 1), (200, 1)]),
            step(&[(61, 9), (0, 3), (130, 1)]),
            step(&[(3, 70)]),
            step(&[(1000, 1)]),
            step(&[(700, 1), (1, 1), (600, 1), (257, 1)]),
            step(&[(600, 2), (700, 1), (1, 1)]),
        ]
    };
    // The last two numbers are the channels that are rotated, and the channels of padding.
    for (n_heads, n_kv_heads, head_size, rotary, padding) in [
        (1, 1, 8, 4, 0),
        (4, 2, 16, 8, 0),
        (4, 2, 16, 6, 4),
        (6, 3, 40, 20, 0),
        (32, 2, 128, 64, 0),
        (24, 1, 256, 256, 0),
        (10, 2, 64, 0, 0),
        (16, 16, 64, 32, 0),
    ] {
        let mut tape = Tape::new();
        let of = Attention { n_heads, n_kv_heads, head_size, padding };
        let columns = [n_heads, n_kv_heads, n_kv_heads].map(|n| n * head_size);
        let qkv = tape.var("qkv", Rows::Tokens, &columns);
        tape.rotary = Some(Rotary { size: rotary, base: 5e6 });
        tape.attention("att", qkv, of);
        cases.push(Case::new(format!("attention/{n_heads}/{n_kv_heads}/{}", head_size - padding), tape, steps(), 1e-9));
    }
    cases
}
