//! The time mix of RWKV-7 between the projections and the output matrix: low-rank outputs, decay, rate, value residual, delta rule, group
//! norm, bonus and gate. Source: RWKV-7 paper, section 4, eq. 17. Per head, with a state S `[value][key]`:
//!
//!   κ = k k_k / max(|k k_k|, 1e-12)   b = κ a   k' = k (1 + (a − 1) k_a)   v' = v + (v_first − v) mix
//!   S = S diag(w) − (S κ) bᵀ + v' k'ᵀ   y = (GN(S r) + (Σ r k' r_k) v') ⊙ g
//! r, k, v, w, a, g and y are `[T, C]`. T is the number of tokens, C the width of the time mix. k_k, k_a and r_k are weight vectors `[C]`, mix
//! is a column of low-rank outputs, GN the norm of each head.

use super::recurrence::{self, BONUS, Gate, HeadKernel, HeadTask, K, R, Recurrence, StateRule, V, column};
use super::spans::steps;
use super::stack::{Activation, Segment, Stack, Store};
use super::state_rows::delta;
use super::testing::Case;
use crate::quant::isa::{Isa, dot};
use crate::tape::{Binding, Dispatch, Host, Lowering, MatrixPart, Rows, State, Tape, Var, VectorPart, Word, vector};

/// Index of the first column of `proj` that is the input of a low-rank matrix. The columns r, k and v come before it.
const LORA: usize = 3;
/// Index of the column w in the activation `gates`. The columns a, g and mix follow. Layer 0 does not use the column mix.
const W: usize = 0;
const A: usize = 1;
const G: usize = 2;
const MIX: usize = 3;
/// The row of the packed vectors that holds the weight of the group norm. The next row holds the bias of the group norm.
const NORM: usize = 3;

/// The arguments of [`Tape::wkv7`], except the projections.
pub struct Wkv7 {
    pub head_size: usize,
    /// The epsilon of the group norm.
    pub eps: f32,
    /// The vector w0 and the matrix w2 of the decay:  w = exp(−e^(−½) σ(w0 + w2 tanh(w1 X_w))). tanh(w1 X_w) is a column of `proj`.
    pub decay: Expansion,
    /// The vector a0 and the matrix a2 of the rate:  a = σ(a0 + a2 a1 X_a). a1 X_a is a column of `proj`.
    pub rate: Expansion,
    /// The matrix g2 of the gate:  g = g2 σ(g1 X_g). σ(g1 X_g) is a column of `proj`.
    pub gate: MatrixPart,
    /// The value residual, or `None` in layer 0. Layer 0 passes its column v to the later layers as their v_first.
    pub residual: Option<ValueResidual>,
    pub k_k: VectorPart,
    pub k_a: VectorPart,
    pub r_k: VectorPart,
    /// Weight and bias of the group norm.
    pub ln_x: [VectorPart; 2],
    /// The recurrent state S, `[heads, head_size (v), head_size (k)]`.
    pub state: State,
}

/// The second matrix of a low-rank pair, `[width of the time mix, rank]`, and the bias that is added to the product with this matrix.
pub struct Expansion {
    pub matrix: MatrixPart,
    pub bias: VectorPart,
}

/// The value residual, which mixes the values of layer 0 into v:  v + (v_first − v) ⊙ σ(v0 + v2 v1 X_v). v1 X_v is a column of `proj`.
pub struct ValueResidual {
    /// The vector v0 and the matrix v2.
    pub mix: Expansion,
    /// The values v of layer 0, `[tokens, width]`.
    pub v_first: Var,
}

struct Word7 {
    proj: Var,
    gates: Stack,
    is_first_layer: bool,
    v_first: Var,
    recurrence: Recurrence,
}

impl Tape {
    /// Records the time mix of RWKV-7 between the projections and the output matrix. Returns y, and v_first, the values of layer 0. Both
    /// are `[tokens, width]`. `proj` has the columns r, k and v, then the inputs of w2, a2 and g2. In layers after layer 0, the input of v2
    /// is the last column.
    pub fn wkv7(&mut self, proj: Var, spec: Wkv7) -> (Var, Var) {
        let Wkv7 { head_size, eps, decay, rate, gate, residual, k_k, k_a, r_k, ln_x: [norm, norm_bias], state } = spec;
        let width = decay.matrix.rows;
        let is_first_layer = residual.is_none();
        let (mut lora, mut bias) = (vec![decay.matrix, rate.matrix, gate], vec![decay.bias, rate.bias]);
        let v_first = residual.map(|ValueResidual { mix, v_first }| {
            lora.push(mix.matrix);
            bias.push(mix.bias);
            v_first
        });
        let bias = self.vectors(width, bias);
        let vectors = self.vectors(width, vec![k_k, k_a, r_k, norm, norm_bias]);
        let v_first = v_first.unwrap_or_else(|| self.var("v_first", Rows::Tokens, &[width]));
        let [feed, values, y] = recurrence::vars(self, StateRule::Delta, width, head_size);
        let gates = self.internal("gates", Rows::Tokens, &[width; 4]);
        let segment = |i: usize| {
            let (bias, activation) = match i {
                W => (Some(0), Activation::Decay7),
                A => (Some(1), Activation::Sigmoid),
                G => (None, Activation::None),
                _ => (Some(2), Activation::Sigmoid),
            };
            let (x, y) = (self.var_spec(proj).column(LORA + i), self.var_spec(gates).column(i));
            Segment { x, y, bias, activation, ..Segment::of(i) }
        };
        let segments = (0..lora.len()).map(segment).collect();
        let matrix = self.matrix(lora);
        let gate = Some(Gate { of: gates, column: G });
        let gates = Stack { matrix, x: proj, y: gates, bias: Some(bias), segments, store: Store::Set, rows: Rows::Tokens };
        let recurrence = Recurrence { rule: StateRule::Delta, head_size, eps, state, vectors, norm: NORM, gate, feed, values, y };
        self.record(Word7 { proj, gates, is_first_layer, v_first, recurrence });
        (y, v_first)
    }
}

impl Word for Word7 {
    fn name(&self) -> &'static str {
        "wkv7"
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let head = HeadKernel {
            module: "rwkv::head7",
            proj: self.proj,
            lora: Some(&self.gates),
            is_first_layer: self.is_first_layer,
            decay: None,
            bindings: vec![("v_first", Binding::Var(self.v_first))],
        };
        if let Some(whole) = self.recurrence.lower_head(cx, head) {
            return vec![whole];
        }
        let mut dispatches = self.gates.lower(cx);
        dispatches.push(self.prepare(cx));
        dispatches.extend(self.recurrence.lower(cx));
        dispatches
    }

    fn twin(&self, host: &mut Host) {
        self.gates.twin(host);
        if self.is_first_layer {
            let mut v_first = host.take(self.v_first);
            let (stride, width) = (host.stride(self.v_first), self.recurrence.width(&host.tape));
            for (t, row) in v_first.chunks_exact_mut(stride).take(host.step.tokens.len()).enumerate() {
                row[..width].copy_from_slice(column(host, self.proj, V, t, 0, width));
            }
            host.put(self.v_first, v_first);
        }
        let isa = Isa::best();
        self.recurrence.twin(host, |task| self.head(isa, task));
    }
}

impl Word7 {
    /// Returns the dispatch of rwkv/wkv7_prepare.
    fn prepare(&self, cx: &Lowering<'_>) -> Dispatch {
        let r = &self.recurrence;
        let (proj, gates, values) = (cx.tape.var_spec(self.proj), cx.tape.var_spec(self.gates.y), cx.tape.var_spec(r.values));
        Dispatch {
            shader: "rwkv/wkv7_prepare",
            modules: vec![cx.caps.reduce()],
            constants: vec![],
            params: vec![
                ("head_size", r.head_size.into()),
                ("head_stride", r.head_stride().into()),
                ("proj_stride", proj.stride().into()),
                ("gates_stride", gates.stride().into()),
                ("feed_stride", cx.tape.var_spec(r.feed).stride().into()),
                ("stride", cx.tape.vector_spec(r.vectors).stride().into()),
                ("values_stride", values.stride().into()),
                ("r", proj.column(R).into()),
                ("k", proj.column(K).into()),
                ("v", proj.column(V).into()),
                ("w", gates.column(W).into()),
                ("a", gates.column(A).into()),
                ("mix", gates.column(MIX).into()),
                ("bonus", values.column(BONUS).into()),
                ("first_layer", self.is_first_layer.into()),
            ],
            bindings: vec![
                ("vectors", Binding::Vector(r.vectors)),
                ("proj", Binding::Var(self.proj)),
                ("gates", Binding::Var(self.gates.y)),
                ("v_first", Binding::Var(self.v_first)),
                ("feed", Binding::Var(r.feed)),
                ("values", Binding::Var(r.values)),
            ],
            grid: r.grid(cx),
        }
    }

    /// Computes the output and the new state of one head for one token on the host.
    fn head(&self, isa: Isa, HeadTask { host, h, t, s, scratch, y }: HeadTask<'_>) {
        let n = self.recurrence.head_size;
        let at = h * n;
        let [r, k, v] = [R, K, V].map(|c| column(host, self.proj, c, t, at, n));
        let [w, a] = [W, A].map(|c| column(host, self.gates.y, c, t, at, n));
        let [k_k, k_a, r_k] = [0, 1, 2].map(|i| &host.vector(self.recurrence.vectors, i)[at..][..n]);
        let mut vectors = scratch.chunks_exact_mut(n);
        let [kappa, b, key, value, rk] = std::array::from_fn(|_| vectors.next().expect("scratch has five vectors"));

        value.copy_from_slice(v);
        // In layer 0, v_first is v, so mixing would change nothing.
        if !self.is_first_layer {
            let (mix, v_first) = (column(host, self.gates.y, MIX, t, at, n), column(host, self.v_first, 0, t, at, n));
            value.iter_mut().zip(v_first).zip(mix).for_each(|((v, first), mix)| *v += (first - *v) * mix);
        }
        kappa.iter_mut().zip(k).zip(k_k).for_each(|((kappa, k), k_k)| *kappa = k * k_k);
        let norm = dot(kappa, kappa).sqrt().max(1e-12);
        for j in 0..n {
            kappa[j] /= norm;
            b[j] = kappa[j] * a[j];
            key[j] = k[j] * (1.0 + (a[j] - 1.0) * k_a[j]);
            rk[j] = r[j] * r_k[j];
        }
        delta(isa, s, [kappa, w, b, key, r], value, y);
        self.recurrence.finish(host, h, t, dot(rk, key), value, y);
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (heads, head_size, rank) in [(1, 16, 1), (3, 20, 8), (2, 64, 13), (1, 128, 32), (5, 33, 24)] {
        for first_layer in [true, false] {
            let width = heads * head_size;
            let mut tape = Tape::new();
            let proj = tape.var("proj", Rows::Tokens, &[width, width, width, rank, rank + 3, rank + 1, rank]);
            let ranks = [rank, rank + 3, rank + 1, rank];
            let matrix = |i: usize, name: &str| MatrixPart::in_out(format!("{name}2"), width, ranks[i]);
            let expansion = |i: usize, name: &str| Expansion { matrix: matrix(i, name), bias: vector(format!("{name}0")) };
            let v_first = (!first_layer).then(|| tape.var("v_first", Rows::Tokens, &[width]));
            let spec = Wkv7 {
                head_size,
                eps: 64e-5,
                decay: expansion(W, "w"),
                rate: expansion(A, "a"),
                gate: matrix(G, "g"),
                residual: v_first.map(|v_first| ValueResidual { mix: expansion(MIX, "v"), v_first }),
                k_k: vector("k_k"),
                k_a: vector("k_a"),
                r_k: vector("r_k"),
                ln_x: ["g_x", "b_x"].map(vector),
                state: tape.state("wkv".into(), &[heads, head_size, head_size], false),
            };
            tape.wkv7(proj, spec);
            cases.push(Case::new(format!("wkv7/{heads}x{head_size}/first={first_layer}"), tape, steps(), 1e-9));
        }
    }
    cases
}
