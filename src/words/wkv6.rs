//! The time mix of RWKV-5 and 6 between the projections and the output matrix: decay, recurrence, bonus of the current token, norm and
//! gate. Source: Eagle and Finch paper, section 4. Per head, with a state S `[value][key]`:
//!
//!   y = S r + (Σ r u k) v   S = S diag(w) + v kᵀ   out = GN(y) ⊙ g
//! r, k, v, w, g and out are `[T, A]`. T is the number of tokens, A the width of the time mix. u is a weight vector `[A]`, GN the norm of each
//! head. In RWKV-5 the decay w is a constant. In RWKV-6 a low-rank pair computes w.
//!
//! QRWKV-6 has gated linear attention: its output reads the state after the token. Several heads share a head of k and v, which are `[T, heads of
//! keys, head_size]`:
//!
//!   S = S diag(w) + v (k (1 − w))ᵀ   y = scale S r   out = y ⊙ g

use super::head_kernel::{HeadKernel, Linear};
use super::recurrence::{self, BONUS, Gate, GroupNorm, HeadTask, K, R, Recurrence, StateRule, V, column};
use super::spans::steps;
use super::stack::{Activation, Segment, Stack, Store};
use super::state_rows::decay;
use super::testing::Case;
use crate::quant::isa::{Isa, dot};
use crate::tape::{Binding, Dispatch, Host, Lowering, MatrixPart, Rows, State, Tape, Var, Vector, Word, vector};

/// Index of the row u in the packed vectors. The weight and the bias of the norm follow, and then the decay w if it is constant.
const U: usize = 0;
const NORM: usize = 1;
const W: usize = 3;

/// The arguments of [`Tape::wkv6`], except the projections.
pub struct Wkv6 {
    pub head_size: usize,
    /// The epsilon of the group norm.
    pub eps: f32,
    /// The packed rows u, ln_x weight and ln_x bias. If the decay is constant, a fourth row is w, with values in (0, 1).
    pub vectors: Vector,
    pub decay: Decay,
    /// The index of the column g in `proj`, or `None` if the output has no gate (RWKV-5.0).
    pub gate: Option<usize>,
    /// The recurrent state S, `[heads, head_size (v), head_size (k)]`.
    pub state: State,
}

/// The source of the decay w.
pub enum Decay {
    /// w is the same for every token: the last row of [`Wkv6::vectors`].
    Constant,
    /// w depends on the token: w = exp(−exp(bias + W2 x)). `part` is W2, `[width of the time mix, rank]`. `column` is the index of the
    /// column x in `proj`.
    LowRank { part: MatrixPart, bias: Vector, column: usize },
}

/// The arguments of [`Tape::wkv_linear`], except the projections. Source: llama.cpp's `rwkv6qwen2`, whose scale is 1 / √head_size.
pub struct WkvLinear {
    pub head_size: usize,
    /// The number of heads that share a head of keys and values.
    pub group: usize,
    /// w = exp(−exp(bias + W2 x)). The fields are W2, `[width of the time mix, rank]`, the bias, and the index of the column x in `proj`.
    pub decay: (MatrixPart, Vector, usize),
    /// The index of the column g in `proj`.
    pub gate: usize,
    /// The recurrent state S, `[heads, head_size (v), head_size (k)]`.
    pub state: State,
}

struct Word6 {
    name: &'static str,
    proj: Var,
    decay: Option<Stack>,
    linear: Linear,
    recurrence: Recurrence,
}

impl Tape {
    /// Records the time mix of RWKV-5 or 6 between the projections and the output matrix. Returns its result, `[tokens, width of the time
    /// mix]`. `proj` has the columns r, k, v, and the columns whose indices are in `decay` and `gate`.
    pub fn wkv6(&mut self, proj: Var, spec: Wkv6) -> Var {
        let Wkv6 { head_size, eps, vectors, decay, gate, state } = spec;
        let width = self.vector_spec(vectors).width;
        let [feed, values, y] = recurrence::vars(self, StateRule::Decay, width, head_size);
        let decay = match decay {
            Decay::Constant => None,
            Decay::LowRank { part, bias, column } => Some(self.decay(proj, part, bias, column)),
        };
        let gate = gate.map(|column| Gate { of: proj, column });
        let norm = Some(GroupNorm { row: NORM, eps });
        let vectors = Some(vectors);
        let recurrence = Recurrence { rule: StateRule::Decay, width, head_size, norm, state, vectors, gate, feed, values, y };
        self.record(Word6 { name: "wkv6", proj, decay, linear: Linear::NONE, recurrence });
        y
    }

    /// Records gated linear attention, the time mix of QRWKV-6 between the projections and the output matrix. Returns its result, `[tokens, width of
    /// the time mix]`. `proj` has the columns r, k, v, and the columns whose indices are in `decay` and `gate`. k and v have one head for `group`
    /// heads of r.
    pub fn wkv_linear(&mut self, proj: Var, spec: WkvLinear) -> Var {
        let WkvLinear { head_size, group, decay: (part, bias, column), gate, state } = spec;
        let width = part.rows;
        let [feed, values, y] = recurrence::vars(self, StateRule::Decay, width, head_size);
        let decay = Some(self.decay(proj, part, bias, column));
        let gate = Some(Gate { of: proj, column: gate });
        let linear = Linear { group, scale: 1.0 / (head_size as f32).sqrt() };
        let recurrence = Recurrence { rule: StateRule::Decay, width, head_size, norm: None, state, vectors: None, gate, feed, values, y };
        self.record(Word6 { name: "wkv_linear", proj, decay, linear, recurrence });
        y
    }

    /// Returns the product that computes the decay w = exp(−exp(bias + W2 x)), where x is a column of `proj`, and `part` is W2.
    fn decay(&mut self, proj: Var, part: MatrixPart, bias: Vector, column: usize) -> Stack {
        let y = self.internal("decay", Rows::Tokens, &[part.rows]);
        let x = self.var_spec(proj).column(column);
        let segments = vec![Segment { x, bias: Some(0), activation: Activation::Decay6, ..Segment::of(0) }];
        let matrix = self.matrix(vec![part]);
        Stack { matrix, x: proj, y, bias: Some(bias), segments, store: Store::Set, rows: Rows::Tokens }
    }
}

impl Word for Word6 {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let head = HeadKernel {
            module: "rwkv::head6",
            proj: self.proj,
            lora: self.decay.as_ref(),
            places: &[0],
            is_first_layer: false,
            decay: self.decay.is_none().then_some(W),
            linear: self.linear,
            bindings: vec![],
        };
        if let Some(whole) = self.recurrence.lower_head(cx, head) {
            return vec![whole];
        }
        let mut dispatches = self.decay.as_ref().map_or_else(Vec::new, |d| d.lower(cx));
        dispatches.push(self.prepare(cx));
        dispatches.extend(self.recurrence.lower(cx));
        dispatches
    }

    fn twin(&self, host: &mut Host) {
        if let Some(decay) = &self.decay {
            decay.twin(host);
        }
        let isa = Isa::best();
        self.recurrence.twin(host, |task| self.head(isa, task));
    }
}

impl Word6 {
    /// Computes the output and the new state of one head for one token on the host.
    fn head(&self, isa: Isa, HeadTask { host, h, t, s, scratch, y }: HeadTask<'_>) {
        let n = self.recurrence.head_size;
        let at = h * n;
        let r = column(host, self.proj, R, t, at, n);
        let [k, v] = [K, V].map(|c| column(host, self.proj, c, t, h / self.linear.group * n, n));
        let row = |i: usize| self.recurrence.vectors.map(|vectors| &host.vector(vectors, i)[at..][..n]);
        let w = match &self.decay {
            Some(decay) => column(host, decay.y, 0, t, at, n),
            None => row(W).expect("a constant decay is a row of the vectors"),
        };
        let mut vectors = scratch.chunks_exact_mut(n);
        let [ru, own_k, own_r] = std::array::from_fn(|_| vectors.next().expect("scratch has three vectors"));
        let (r, k) = match row(U) {
            Some(u) => {
                ru.iter_mut().zip(r).zip(u).for_each(|((ru, r), u)| *ru = r * u);
                (r, k)
            }
            None => {
                let scale = self.linear.scale;
                for j in 0..n {
                    (ru[j], own_k[j], own_r[j]) = (r[j] * scale, k[j] * (1.0 - w[j]), r[j] * (w[j] * scale));
                }
                (&*own_r, &*own_k)
            }
        };
        let bonus = dot(ru, k);
        decay(isa, s, [r, w, k], v, y);
        y.iter_mut().zip(v).for_each(|(y, v)| *y += bonus * v);
        self.recurrence.finish(host, h, t, 0.0, v, y);
    }

    fn prepare(&self, cx: &Lowering<'_>) -> Dispatch {
        let r = &self.recurrence;
        let (proj, values) = (cx.tape.var_spec(self.proj), cx.tape.var_spec(r.values));
        let (decay, w, decay_stride) = match &self.decay {
            Some(decay) => (Binding::Var(decay.y), 0, cx.tape.var_spec(decay.y).stride()),
            None => (r.vectors(), W * cx.tape.var_spec(r.y).stride(), 0),
        };
        Dispatch {
            shader: "rwkv/wkv6_prepare",
            modules: vec![cx.caps.reduce()],
            constants: vec![],
            params: vec![
                ("head_size", r.head_size.into()),
                ("head_stride", r.head_stride().into()),
                ("proj_stride", proj.stride().into()),
                ("feed_stride", cx.tape.var_spec(r.feed).stride().into()),
                ("values_stride", values.stride().into()),
                ("r", proj.column(R).into()),
                ("k", proj.column(K).into()),
                ("v", proj.column(V).into()),
                ("bonus", values.column(BONUS).into()),
                ("w", w.into()),
                ("decay_stride", decay_stride.into()),
                ("group", self.linear.group.into()),
                ("scale", self.linear.scale.into()),
            ],
            bindings: vec![
                ("vectors", r.vectors()),
                ("proj", Binding::Var(self.proj)),
                ("decay", decay),
                ("feed", Binding::Var(r.feed)),
                ("values", Binding::Var(r.values)),
            ],
            grid: r.grid(cx),
        }
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (heads, head_size, rank) in [(1, 16, 1), (3, 20, 8), (2, 64, 13), (1, 128, 0), (5, 33, 0), (2, 8, 0)] {
        let width = heads * head_size;
        let mut tape = Tape::new();
        let proj = tape.var("proj", Rows::Tokens, &[width, width, width, width, rank.max(1)]);
        let mut parts = vec![vector("u"), vector("g_x"), vector("b_x")];
        let decay = if rank > 0 {
            let bias = tape.vectors(width, vec![vector("time_decay")]);
            Decay::LowRank { part: MatrixPart::in_out("time_decay_w2", width, rank), bias, column: 4 }
        } else {
            parts.push(vector("time_decay").repeated(head_size).map(|d| (-d.exp()).exp()));
            Decay::Constant
        };
        let vectors = tape.vectors(width, parts);
        let state = tape.state("wkv".into(), &[heads, head_size, head_size], false);
        let gate = (heads != 5).then_some(3);
        tape.wkv6(proj, Wkv6 { head_size, eps: 64e-5, vectors, decay, gate, state });
        cases.push(Case::new(format!("wkv6/{heads}x{head_size}/{rank}"), tape, steps(), 1e-9));
    }
    cases
}

pub fn linear_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (heads, group, head_size, rank) in [(1, 1, 16, 1), (4, 2, 20, 8), (6, 3, 64, 13), (5, 5, 128, 24)] {
        let (width, shared) = (heads * head_size, heads / group * head_size);
        let mut tape = Tape::new();
        let proj = tape.var("proj", Rows::Tokens, &[width, shared, shared, width, rank]);
        let bias = tape.vectors(width, vec![vector("time_decay")]);
        let state = tape.state("wkv".into(), &[heads, head_size, head_size], false);
        let decay = (MatrixPart::in_out("time_decay_w2", width, rank), bias, 4);
        tape.wkv_linear(proj, WkvLinear { head_size, group, decay, gate: 3, state });
        cases.push(Case::new(format!("wkv_linear/{heads}:{group}x{head_size}/{rank}"), tape, steps(), 1e-9));
    }
    cases
}
