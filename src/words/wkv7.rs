//! The time mix of RWKV-7 between the projections and the output matrix: low-rank outputs, decay, rate, value residual, delta rule, group
//! norm, bonus and gate. Source: RWKV-7 paper, section 4, eq. 17. Per head, with a state S `[value][key]`:
//!
//!   κ = k k_k / max(|k k_k|, 1e-12)   b = κ a   k' = k (1 + (a − 1) k_a)   v' = v + (v_first − v) mix
//!   S = S diag(w) − (S κ) bᵀ + v' k'ᵀ   y = (GN(S r) + (Σ r k' r_k) v') ⊙ g
//! r, k, v, w, a, g and y are `[T, C]`. T is the number of tokens, C the width of the time mix. k_k, k_a and r_k are weight vectors `[C]`, mix
//! is a column of low-rank outputs, GN the norm of each head.

use super::head_kernel::{HeadKernel, Linear};
use super::recurrence::{self, BONUS, Gate, GroupNorm, HeadTask, K, R, Recurrence, StateRule, V, column};
use super::spans::steps;
use super::stack::{Activation, Segment, Stack, Store};
use super::state_rows::delta;
use super::testing::Case;
use crate::quant::isa::{Isa, dot};
use crate::tape::{Binding, Dispatch, Host, Lowering, MatrixPart, Rows, State, Tape, Var, Vector, VectorPart, Word, vector};

/// Index of the first column of `proj` that is the input of a low-rank matrix. The columns r, k and v come before it.
const LORA: usize = 3;
/// Index of the column w in the activation `gates`. The columns a, g and mix follow. A model without a gate does not use the column g. Layer 0 does
/// not use the column mix.
const W: usize = 0;
const A: usize = 1;
const G: usize = 2;
const MIX: usize = 3;
/// The row of the packed vectors that holds the weight of the group norm. The next row holds the bias of the group norm.
const NORM: usize = 3;

/// The arguments of [`Tape::wkv7`], except the projections.
pub struct Wkv7 {
    pub head_size: usize,
    /// The vector w0 and the matrix w2 of the decay:  w = exp(−e^(−½) σ(w0 + w2 tanh(w1 X_w))). tanh(w1 X_w) is a column of `proj`.
    pub decay: Expansion,
    /// The vector a0 and the matrix a2 of the rate:  a = σ(a0 + a2 a1 X_a). a1 X_a is a column of `proj`.
    pub rate: Expansion,
    /// The matrix g2 of the gate:  g = g2 σ(g1 X_g). σ(g1 X_g) is a column of `proj`. `None` if the output has no gate.
    pub gate: Option<MatrixPart>,
    /// The value residual, or `None` in layer 0. Layer 0 passes its column v to the later layers as their v_first.
    pub residual: Option<ValueResidual>,
    pub k_k: VectorPart,
    pub k_a: VectorPart,
    pub r_k: VectorPart,
    /// The group norm, or `None` if the model has no such norm.
    pub ln_x: Option<HeadNorm>,
    /// The recurrent state S, `[heads, head_size (v), head_size (k)]`.
    pub state: State,
}

/// A norm of each head: weight, bias and epsilon.
pub struct HeadNorm {
    pub parts: [VectorPart; 2],
    pub eps: f32,
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
    /// The columns of `gates` that the parts of the stack compute.
    columns: Vec<usize>,
    /// k_k, k_a and r_k, then the norm's weight and bias, if the model has the norm.
    vectors: Vector,
    is_first_layer: bool,
    v_first: Var,
    recurrence: Recurrence,
}

impl Tape {
    /// Records the time mix of RWKV-7 between the projections and the output matrix. Returns y, and v_first, the values of layer 0. Both
    /// are `[tokens, width]`. `proj` has the columns r, k and v, then the inputs of w2 and a2, of g2 if there is a gate, and of v2 in layers after
    /// layer 0.
    pub fn wkv7(&mut self, proj: Var, spec: Wkv7) -> (Var, Var) {
        let Wkv7 { head_size, decay, rate, gate, residual, k_k, k_a, r_k, ln_x, state } = spec;
        let width = decay.matrix.rows;
        let is_first_layer = residual.is_none();
        let (mut lora, mut columns, mut bias) = (vec![decay.matrix, rate.matrix], vec![W, A], vec![decay.bias, rate.bias]);
        let is_gated = gate.is_some();
        if let Some(gate) = gate {
            lora.push(gate);
            columns.push(G);
        }
        let v_first = residual.map(|ValueResidual { mix, v_first }| {
            lora.push(mix.matrix);
            columns.push(MIX);
            bias.push(mix.bias);
            v_first
        });
        let bias = self.vectors(width, bias);
        let norm = ln_x.as_ref().map(|norm| GroupNorm { row: NORM, eps: norm.eps });
        let vectors = self.vectors(width, [k_k, k_a, r_k].into_iter().chain(ln_x.into_iter().flat_map(|norm| norm.parts)).collect());
        let v_first = v_first.unwrap_or_else(|| self.var("v_first", Rows::Tokens, &[width]));
        let [feed, values, y] = recurrence::vars(self, StateRule::Delta, width, head_size);
        let gates = self.internal("gates", Rows::Tokens, &[width; 4]);
        let segment = |i: usize| {
            let (bias, activation) = match columns[i] {
                W => (Some(0), Activation::Decay7),
                A => (Some(1), Activation::Sigmoid),
                G => (None, Activation::None),
                _ => (Some(2), Activation::Sigmoid),
            };
            let (x, y) = (self.var_spec(proj).column(LORA + i), self.var_spec(gates).column(columns[i]));
            Segment { x, y, bias, activation, ..Segment::of(i) }
        };
        let segments = (0..lora.len()).map(segment).collect();
        let matrix = self.matrix(lora);
        let gate = is_gated.then_some(Gate { of: gates, column: G });
        let gates = Stack { matrix, x: proj, y: gates, bias: Some(bias), segments, store: Store::Set, rows: Rows::Tokens };
        let recurrence =
            Recurrence { rule: StateRule::Delta, width, head_size, norm, state, vectors: Some(vectors), gate, feed, values, y };
        self.record(Word7 { proj, gates, columns, vectors, is_first_layer, v_first, recurrence });
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
            places: &self.columns,
            is_first_layer: self.is_first_layer,
            decay: None,
            linear: Linear::NONE,
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
            let (stride, width) = (host.stride(self.v_first), self.recurrence.width);
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
                ("stride", cx.tape.vector_spec(self.vectors).stride().into()),
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
                ("vectors", r.vectors()),
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
        let [k_k, k_a, r_k] = [0, 1, 2].map(|i| &host.vector(self.vectors, i)[at..][..n]);
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
    let sizes = [(1, 16, 1), (3, 20, 8), (2, 64, 13), (1, 128, 32), (5, 33, 24)].map(|sizes| (sizes, true, true));
    let bare = [((3, 20, 8), false, true), ((2, 64, 13), true, false), ((2, 33, 5), false, false)];
    for ((heads, head_size, rank), is_gated, is_normed) in sizes.into_iter().chain(bare) {
        for first_layer in [true, false] {
            let width = heads * head_size;
            let mut tape = Tape::new();
            let gate: &[usize] = if is_gated { &[rank + 1] } else { &[] };
            let proj = tape.var("proj", Rows::Tokens, &[&[width, width, width, rank, rank + 3], gate, &[rank]].concat());
            let ranks = [rank, rank + 3, rank + 1, rank];
            let matrix = |i: usize, name: &str| MatrixPart::in_out(format!("{name}2"), width, ranks[i]);
            let expansion = |i: usize, name: &str| Expansion { matrix: matrix(i, name), bias: vector(format!("{name}0")) };
            let v_first = (!first_layer).then(|| tape.var("v_first", Rows::Tokens, &[width]));
            let spec = Wkv7 {
                head_size,
                decay: expansion(W, "w"),
                rate: expansion(A, "a"),
                gate: is_gated.then(|| matrix(G, "g")),
                residual: v_first.map(|v_first| ValueResidual { mix: expansion(MIX, "v"), v_first }),
                k_k: vector("k_k"),
                k_a: vector("k_a"),
                r_k: vector("r_k"),
                ln_x: is_normed.then(|| HeadNorm { parts: ["g_x", "b_x"].map(vector), eps: 64e-5 }),
                state: tape.state("wkv".into(), &[heads, head_size, head_size], false),
            };
            tape.wkv7(proj, spec);
            let bare = if is_gated && is_normed { String::new() } else { format!("/gate={is_gated}/norm={is_normed}") };
            cases.push(Case::new(format!("wkv7/{heads}x{head_size}/first={first_layer}{bare}"), tape, steps(), 1e-9));
        }
    }
    cases
}
