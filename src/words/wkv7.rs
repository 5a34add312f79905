//! Everything between the projections of RWKV-7's time mix and its output matrix: the outputs of the low-rank pairs, decay,
//! rate and value residual, the delta rule, group norm, bonus and gate. RWKV-7 paper, section 4; spec of the formulas in the
//! shaders `rwkv/wkv7` and `rwkv/wkv7_out`.

use super::moments;
use super::stack::{Activation, Segment, Stack};
use super::testing::{Case, steps};
use super::windows::ALIGN;
use crate::quant::padded;
use crate::tape::{Binding, Class, Dispatch, Host, Lowering, Param, Part, Rows, State, Tape, Var, Vector, WINDOW_BYTES, Word, vector};
use rayon::prelude::*;
use std::ops::Range;

/// Columns of the projections that [`Tape::wkv7`] reads, in this order; the last is absent in layer 0.
const R: usize = 0;
const K: usize = 1;
const V: usize = 2;
/// Columns of the gates.
const W: usize = 0;
const A: usize = 1;
const G: usize = 2;
const MIX: usize = 3;
/// Columns of the values: v', then this.
const BONUS: usize = 1;

/// What [`Tape::wkv7`] needs beside the projections.
pub struct Wkv7 {
    pub head_size: usize,
    /// Group-norm epsilon.
    pub eps: f32,
    /// w2, a2, g2 and, except in layer 0, v2: `[C, rank]`.
    pub lora: Vec<Part>,
    /// w0, a0 and, except in layer 0, v0.
    pub bias: Vector,
    /// k_k, k_a, r_k, ln_x weight, ln_x bias.
    pub vectors: Vector,
    /// `[heads, head_size (v), head_size (k)]`
    pub state: State,
    /// v of layer 0; `None` in layer 0, which writes it.
    pub v_first: Option<Var>,
}

/// How the recurrence reads what was prepared for it.
enum Feed {
    Storage,
    /// Through a uniform window.
    Window,
}

struct Word7 {
    proj: Var,
    gates: Stack,
    spec: Wkv7,
    v_first: Var,
    /// `[H, 5, head_stride]` a token: kappa, w, b, k', r.
    feed: Var,
    /// v' and bonus.
    values: Var,
    y: Var,
}

impl Tape {
    /// `proj` has the columns r, k, v, then the inputs of w2, a2, g2 and v2. Gives `y [T, C]` and v of layer 0.
    pub fn wkv7(&mut self, proj: Var, mut spec: Wkv7) -> (Var, Var) {
        let width = self.vector_spec(spec.vectors).width;
        let v_first = spec.v_first.unwrap_or_else(|| self.var("v_first", Rows::Tokens, &[width]));
        let y = self.scratch("wkv", Rows::Tokens, &[width]);
        let gates = self.scratch("gates", Rows::Tokens, &[width; 4]);
        let feed = self.device_scratch("feed", Rows::Tokens, &[width / spec.head_size * 5 * padded(spec.head_size)]);
        let values = self.device_scratch("values", Rows::Tokens, &[width; 2]);
        let segment = |i: usize| {
            let (bias, activation) = match i {
                W => (Some(0), Activation::Decay7),
                A => (Some(1), Activation::Sigmoid),
                G => (None, Activation::None),
                _ => (Some(2), Activation::Sigmoid),
            };
            Segment { part: i, plane: 0, x: self.var_spec(proj).column(3 + i), y: self.var_spec(gates).column(i), bias, activation }
        };
        let segments = (0..spec.lora.len()).map(segment).collect();
        let matrix = self.matrix(std::mem::take(&mut spec.lora));
        let gates = Stack { matrix, x: proj, y: gates, bias: Some(spec.bias), segments, accumulate: false, rows: Rows::Tokens };
        self.record(Word7 { proj, gates, spec, v_first, feed, values, y });
        (y, v_first)
    }
}

impl Word for Word7 {
    fn name(&self) -> &'static str {
        "wkv7"
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let (prepare, out) = self.around(cx);
        let mut dispatches = self.gates.lower(cx);
        dispatches.push(prepare);
        match cx.caps.class {
            Class::Groups => dispatches.push(self.recurrence(cx, 0..cx.tokens, 0..self.n_heads(cx.tape), Feed::Storage)),
            Class::Lanes => dispatches.extend(self.windows(cx)),
        }
        dispatches.push(out);
        dispatches
    }

    fn twin(&self, host: &mut Host) {
        self.gates.twin(host);
        let tape = host.tape.clone();
        let (proj, gates) = (tape.var_spec(self.proj), tape.var_spec(self.gates.y));
        let (stride, head_size) = (host.stride(self.y), self.spec.head_size);
        let state_stride = tape.state_spec(self.spec.state).stride();
        let mut y = host.take(self.y);
        let mut v_first = host.take(self.v_first);
        let mut state = host.take_state(self.spec.state);
        let n_heads = tape.vector_spec(self.spec.vectors).width / head_size;
        for run in &host.step.runs {
            if run.page_in != run.page_out {
                let page = run.page_in as usize * state_stride;
                state.copy_within(page..page + state_stride, run.page_out as usize * state_stride);
            }
        }
        for run in &host.step.runs {
            let pages = &mut state[run.page_out as usize * state_stride..][..state_stride];
            let rows = run.first_row as usize..(run.first_row + run.len) as usize;
            // [head][token] outputs and values of layer 0, so that heads run side by side.
            let heads: Vec<(Vec<f32>, Vec<f32>)> = (0..n_heads)
                .into_par_iter()
                .zip(pages.par_chunks_mut(head_size * head_size))
                .map(|(h, s)| {
                    let at = h * head_size;
                    let mut out = (Vec::new(), Vec::new());
                    for t in rows.clone() {
                        let p = |c: usize| &host.var(self.proj)[t * proj.stride() + proj.column(c) + at..][..head_size];
                        let g = |c: usize| &host.var(self.gates.y)[t * gates.stride() + gates.column(c) + at..][..head_size];
                        let first = self.spec.v_first.map(|_| (&v_first[t * stride + at..][..head_size], g(MIX)));
                        let (o, v) = self.head(host, at, s, [p(R), p(K), p(V), g(W), g(A), g(G)], first);
                        out.0.extend(o);
                        out.1.extend(v);
                    }
                    out
                })
                .collect();
            for (h, (o, v)) in heads.iter().enumerate() {
                for (i, t) in rows.clone().enumerate() {
                    let to = t * stride + h * head_size;
                    y[to..to + head_size].copy_from_slice(&o[i * head_size..][..head_size]);
                    if self.spec.v_first.is_none() {
                        v_first[to..to + head_size].copy_from_slice(&v[i * head_size..][..head_size]);
                    }
                }
            }
        }
        host.put(self.y, y);
        host.put(self.v_first, v_first);
        host.put_state(self.spec.state, state);
    }
}

impl Word7 {
    fn n_heads(&self, tape: &Tape) -> usize {
        tape.vector_spec(self.spec.vectors).width / self.spec.head_size
    }

    /// Floats of one of feed's vectors.
    fn head_stride(&self) -> usize {
        padded(self.spec.head_size)
    }

    /// What comes before and after the recurrence.
    fn around(&self, cx: &Lowering<'_>) -> (Dispatch, Dispatch) {
        let stride = cx.tape.vector_spec(self.spec.vectors).stride();
        let spec = |v: Var| cx.tape.var_spec(v);
        let (proj, gates, values) = (spec(self.proj), spec(self.gates.y), spec(self.values));
        let grid = [self.n_heads(cx.tape) as u32, cx.tokens as u32, 1];
        let shared: [(&'static str, Param); 5] = [
            ("head_size", self.spec.head_size.into()),
            ("gates_stride", gates.stride().into()),
            ("values_stride", values.stride().into()),
            ("stride", stride.into()),
            ("bonus", values.column(BONUS).into()),
        ];
        let prepare = [
            ("head_stride", self.head_stride().into()),
            ("proj_stride", proj.stride().into()),
            ("feed_stride", spec(self.feed).stride().into()),
            ("r", proj.column(R).into()),
            ("k", proj.column(K).into()),
            ("v", proj.column(V).into()),
            ("w", gates.column(W).into()),
            ("a", gates.column(A).into()),
            ("mix", gates.column(MIX).into()),
            ("first_layer", self.spec.v_first.is_none().into()),
        ];
        let prepare = Dispatch {
            shader: "rwkv/wkv7_prepare",
            modules: vec![cx.caps.reduce()],
            constants: vec![],
            params: shared.iter().cloned().chain(prepare).collect(),
            bindings: vec![
                ("vectors", Binding::Vector(self.spec.vectors)),
                ("proj", Binding::Var(self.proj)),
                ("gates", Binding::Var(self.gates.y)),
                ("v_first", Binding::Var(self.v_first)),
                ("feed", Binding::Var(self.feed)),
                ("values", Binding::Var(self.values)),
            ],
            grid,
        };
        let out = Dispatch {
            shader: "rwkv/wkv7_out",
            modules: vec![cx.caps.reduce()],
            constants: vec![],
            params: shared.into_iter().chain([("g", gates.column(G).into()), ("eps", self.spec.eps.into())]).collect(),
            bindings: vec![
                ("vectors", Binding::Vector(self.spec.vectors)),
                ("gates", Binding::Var(self.gates.y)),
                ("values", Binding::Var(self.values)),
                ("y", Binding::Var(self.y)),
            ],
            grid,
        };
        (prepare, out)
    }

    /// The recurrence over some rows of the step and some heads.
    fn recurrence(&self, cx: &Lowering<'_>, rows: Range<usize>, heads: Range<usize>, feed: Feed) -> Dispatch {
        let size = self.spec.head_size;
        let spec = cx.tape.var_spec(self.feed);
        let at = rows.start * spec.stride() + heads.start * 5 * self.head_stride();
        let (source, module, feed_at) = match feed {
            Feed::Storage => (Binding::Var(self.feed), "rwkv::feed", at),
            Feed::Window => (Binding::VarWindow(self.feed, at / ALIGN * ALIGN * 4), "rwkv::feed_window", at % ALIGN),
        };
        Dispatch {
            shader: "rwkv/wkv7",
            modules: vec![("rwkv::feed", module.to_string())],
            constants: vec![("HEAD", size as u32), ("QUARTERS", (self.head_stride() / 4) as u32)],
            params: vec![
                ("first_row", rows.start.into()),
                ("n_rows", rows.len().into()),
                ("width", cx.tape.vector_spec(self.spec.vectors).width.into()),
                ("first", (heads.start * size).into()),
                ("end", (heads.end * size).into()),
                ("feed_stride", (spec.stride() / 4).into()),
                ("values_stride", cx.tape.var_spec(self.values).stride().into()),
                ("stride", cx.tape.var_spec(self.y).stride().into()),
                ("feed_at", (feed_at / 4).into()),
            ],
            bindings: vec![
                ("values", Binding::Var(self.values)),
                ("state", Binding::State(self.spec.state)),
                ("y", Binding::Var(self.y)),
                ("feed", source),
            ],
            grid: [(heads.len() * size).div_ceil(8) as u32, cx.runs as u32, 1],
        }
    }

    /// The recurrence in pieces whose feed fits a uniform window: some rows of all heads, or some heads of one row.
    fn windows(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let n_heads = self.n_heads(cx.tape);
        let window = WINDOW_BYTES / 4;
        let rows = window / cx.tape.var_spec(self.feed).stride();
        if rows > 0 {
            return (0..cx.tokens).step_by(rows).map(|t| self.recurrence(cx, t..t + rows, 0..n_heads, Feed::Window)).collect();
        }
        // Where a window begins between two multiples of its alignment, what lies before is lost.
        let heads = (window - ALIGN) / (5 * self.head_stride());
        let of_row =
            |t: usize| (0..n_heads).step_by(heads).map(move |h| self.recurrence(cx, t..t + 1, h..n_heads.min(h + heads), Feed::Window));
        (0..cx.tokens).flat_map(of_row).collect()
    }

    /// One head and token: the output, and v before mixing. `s` is the head's state, `[v][k]`.
    fn head(&self, host: &Host, at: usize, s: &mut [f32], x: [&[f32]; 6], first: Option<(&[f32], &[f32])>) -> (Vec<f32>, Vec<f32>) {
        let [r, k, v_own, w, a, g] = x;
        let n = self.spec.head_size;
        let vector = |i: usize| &host.vector(self.spec.vectors, i)[at..at + n];
        let (k_k, k_a, r_k, ln_g, ln_b) = (vector(0), vector(1), vector(2), vector(3), vector(4));

        let v: Vec<f32> = match first {
            Some((v_first, mix)) => (0..n).map(|i| v_own[i] + (v_first[i] - v_own[i]) * mix[i]).collect(),
            None => v_own.to_vec(),
        };
        let mut kappa: Vec<f32> = (0..n).map(|j| k[j] * k_k[j]).collect();
        let norm = kappa.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-12);
        kappa.iter_mut().for_each(|x| *x /= norm);
        let b: Vec<f32> = (0..n).map(|j| kappa[j] * a[j]).collect();
        let k: Vec<f32> = (0..n).map(|j| k[j] * (1.0 + (a[j] - 1.0) * k_a[j])).collect();

        let mut y = vec![0.0; n];
        for (i, row) in s.chunks_exact_mut(n).enumerate() {
            let sa: f32 = row.iter().zip(&kappa).map(|(s, kappa)| s * kappa).sum();
            for j in 0..n {
                row[j] = row[j] * w[j] - sa * b[j] + v[i] * k[j];
                y[i] += row[j] * r[j];
            }
        }
        let bonus: f32 = (0..n).map(|j| r[j] * k[j] * r_k[j]).sum();
        let (mean, scale) = moments(&y, self.spec.eps);
        let o = (0..n).map(|i| ((y[i] - mean) * scale * ln_g[i] + ln_b[i] + bonus * v[i]) * g[i]).collect();
        (o, v_own.to_vec())
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (heads, head_size, rank) in [(1, 16, 1), (3, 20, 8), (2, 64, 13), (1, 128, 32), (5, 33, 24)] {
        for first_layer in [true, false] {
            let width = heads * head_size;
            let mut tape = Tape::new();
            let proj = tape.var("proj", Rows::Tokens, &[width, width, width, rank, rank + 3, rank + 1, rank]);
            let names = if first_layer { vec!["w", "a", "g"] } else { vec!["w", "a", "g", "v"] };
            let ranks = [rank, rank + 3, rank + 1, rank];
            let lora = names.iter().zip(ranks).map(|(n, r)| Part::in_out(format!("{n}2"), width, r)).collect();
            let bias = tape.vectors(width, vec![vector("w0"), vector("a0"), vector("v0")]);
            let vectors = tape.vectors(width, ["k_k", "k_a", "r_k", "g_x", "b_x"].into_iter().map(vector).collect());
            let state = tape.state("wkv".into(), &[heads, head_size, head_size], false);
            let v_first = (!first_layer).then(|| tape.var("v_first", Rows::Tokens, &[width]));
            tape.wkv7(proj, Wkv7 { head_size, eps: 64e-5, lora, bias, vectors, state, v_first });
            cases.push(Case::new(format!("wkv7/{heads}x{head_size}/first={first_layer}"), tape, steps(2), 1e-9));
        }
    }
    cases
}
