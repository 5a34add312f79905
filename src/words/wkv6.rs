//! The time mix of RWKV-5 and 6 between the projections and the output matrix: decay, recurrence, bonus of the current token, norm and
//! gate. Source: Eagle and Finch paper, section 4. Per head, with a state S `[value][key]`:
//!
//!   y = S r + (Σ r u k) v   S = S diag(w) + v kᵀ   out = GN(y) ⊙ g
//! r, k, v, w, g and out are `[T, A]`. T is the number of tokens, A the width of the time mix. u is a weight vector `[A]`, GN the norm of each
//! head. In RWKV-5 the decay w is a constant. In RWKV-6 a low-rank pair computes w.

use super::recurrence::{self, BONUS, Gate, HeadKernel, HeadTask, K, R, Recurrence, StateRule, V, column};
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

struct Word6 {
    proj: Var,
    decay: Option<Stack>,
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
            Decay::LowRank { part, bias, column } => {
                let w = self.internal("decay", Rows::Tokens, &[width]);
                let x = self.var_spec(proj).column(column);
                let segments = vec![Segment { x, bias: Some(0), activation: Activation::Decay6, ..Segment::of(0) }];
                let matrix = self.matrix(vec![part]);
                Some(Stack { matrix, x: proj, y: w, bias: Some(bias), segments, store: Store::Set, rows: Rows::Tokens })
            }
        };
        let gate = gate.map(|column| Gate { of: proj, column });
        let recurrence = Recurrence { rule: StateRule::Decay, head_size, eps, state, vectors, norm: NORM, gate, feed, values, y };
        self.record(Word6 { proj, decay, recurrence });
        y
    }
}

impl Word for Word6 {
    fn name(&self) -> &'static str {
        "wkv6"
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let head = HeadKernel {
            module: "rwkv::head6",
            proj: self.proj,
            lora: self.decay.as_ref(),
            is_first_layer: false,
            decay: self.decay.is_none().then_some(W),
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
        let [r, k, v] = [R, K, V].map(|c| column(host, self.proj, c, t, at, n));
        let u = &host.vector(self.recurrence.vectors, U)[at..][..n];
        let w = match &self.decay {
            Some(decay) => column(host, decay.y, 0, t, at, n),
            None => &host.vector(self.recurrence.vectors, W)[at..][..n],
        };
        let ru = &mut scratch[..n];
        ru.iter_mut().zip(r).zip(u).for_each(|((ru, r), u)| *ru = r * u);
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
            None => (Binding::Vector(r.vectors), W * cx.tape.vector_spec(r.vectors).stride(), 0),
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
            ],
            bindings: vec![
                ("vectors", Binding::Vector(r.vectors)),
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
