//! The recurrence of RWKV-5, 6 and 7, then its norm and gate. The words `wkv6` and `wkv7` share this code.
//!
//!   Decay (5, 6):  o = S r + bonus   S = S diag(w) + v kᵀ            y = GN(o) ⊙ g
//!   Delta (7):     S = S diag(w) − (S κ) bᵀ + v kᵀ   o = S r         y = (GN(o) + bonus) ⊙ g
//! Every head has a state S `[value][key]` and takes its tokens in order. GN is the norm of each head, g the gate. Some relatives of RWKV have no
//! norm or no gate. The words compute the vectors r, w, k, v (and κ, b) and the bonus of each token; their files have the formulas. In long steps,
//! GPUs compute the recurrence in spans of 16 tokens (`spans.rs`).

use super::moments;
use super::windows::ALIGN;
use crate::quant::padded;
use crate::tape::{Binding, Class, Dispatch, Host, Lowering, Rows, Run, State, Tape, Var, Vector, WINDOW_BYTES};
use rayon::prelude::*;
use std::ops::Range;

/// The rule that updates the state. The rule determines the vectors of a token and their order in [`Recurrence::feed`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum StateRule {
    /// RWKV-5 and 6. The vectors in `feed` are r, w, k. The bonus is added before the norm.
    Decay,
    /// RWKV-7. The vectors in `feed` are kappa, w, b, k, r. The bonus is added after the norm.
    Delta,
}

impl StateRule {
    /// Returns the number of vectors per head and token.
    pub fn n_vectors(self) -> usize {
        match self {
            StateRule::Decay => 3,
            StateRule::Delta => 5,
        }
    }
}

/// The gate g, which is a column of an activation.
#[derive(Clone, Copy)]
pub struct Gate {
    /// The activation that has the column.
    pub of: Var,
    /// The index of the column.
    pub column: usize,
}

/// The norm of each head.
#[derive(Clone, Copy)]
pub struct GroupNorm {
    /// The row of [`Recurrence::vectors`] that holds the weight. The next row holds the bias.
    pub row: usize,
    pub eps: f32,
}

/// The recurrence, its norm and its gate, with the activations that they use.
pub struct Recurrence {
    pub rule: StateRule,
    /// The number of channels of all heads together.
    pub width: usize,
    pub head_size: usize,
    /// The norm of each head, or `None` if the model has no such norm.
    pub norm: Option<GroupNorm>,
    /// The recurrent state S, `[heads, head_size (v), head_size (k)]`.
    pub state: State,
    /// The word's packed vectors, or `None` if the word has no vectors.
    pub vectors: Option<Vector>,
    /// The gate, or `None` if the output has no gate.
    pub gate: Option<Gate>,
    /// The vectors that the rule reads, `[tokens, heads, n_vectors, head_stride]`.
    pub feed: Var,
    /// The columns v and bonus, `[tokens, 2, width]`.
    pub values: Var,
    /// The output, `[tokens, width]`.
    pub y: Var,
}

/// Index of the column r in the activation `proj`, in all versions of RWKV. The columns k and v follow.
pub const R: usize = 0;
pub const K: usize = 1;
pub const V: usize = 2;
/// The column of `values` that holds the bonus.
pub const BONUS: usize = 1;

/// Declares and returns the activations `feed`, `values` and `y` of a [`Recurrence`].
pub fn vars(tape: &mut Tape, rule: StateRule, width: usize, head_size: usize) -> [Var; 3] {
    let feed = tape.device_scratch("feed", Rows::Tokens, &[width / head_size * rule.n_vectors() * padded(head_size)]);
    let values = tape.device_scratch("values", Rows::Tokens, &[width; 2]);
    [feed, values, tape.scratch("wkv", Rows::Tokens, &[width])]
}

/// The largest number of state columns that a lane of rwkv/wkv keeps in registers on GPUs, for [`StateRule::Decay`]. With 128 columns, the compiler
/// for Apple's GPUs would keep most of them in memory.
const COLUMNS: usize = 64;
/// The number of state rows per workgroup of rwkv/wkv with the module rwkv/feed: the module's constant LANES.
const ROWS: usize = 64;
/// The number of state rows per workgroup of rwkv/wkv with the module rwkv/feed_window: the module's constant LANES.
const WINDOW_ROWS: usize = 8;
/// The largest number of tokens whose vectors rwkv/wkv keeps in workgroup memory.
const STAGE: usize = 4;
/// The most workgroup memory, in bytes, in which rwkv/wkv keeps the vectors of tokens. The vectors of a single token may exceed this limit.
const STAGE_BYTES: usize = 8 << 10;

/// How the recurrence reads the vectors of a token.
enum Feed {
    /// Through a storage binding.
    Storage,
    /// Through a window: a uniform binding of 64 KiB, for software adapters.
    Window,
}

impl Recurrence {
    /// Returns the number of heads.
    pub fn n_heads(&self) -> usize {
        self.width / self.head_size
    }

    /// Returns the number of floats from one row of the word's vectors, and of `y`, to the next row.
    pub fn stride(&self, tape: &Tape) -> usize {
        tape.var_spec(self.y).stride()
    }

    /// Returns the binding of the word's vectors.
    pub fn vectors(&self) -> Binding {
        self.vectors.map_or(Binding::Nothing, Binding::Vector)
    }

    /// Returns the number of floats from one vector of `feed` to the next.
    pub fn head_stride(&self) -> usize {
        padded(self.head_size)
    }

    /// Returns the shader slot `state`, and the module that fills it for the state's format.
    pub fn state_module(&self, tape: &Tape) -> (&'static str, String) {
        ("state", format!("rwkv::state_{}", tape.state_spec(self.state).format.name()))
    }

    /// Returns a grid of one workgroup per head and token.
    pub fn grid(&self, cx: &Lowering<'_>) -> [u32; 3] {
        [self.n_heads() as u32, cx.tokens as u32, 1]
    }

    /// Returns the dispatches of the recurrence, then one dispatch for the norm and the gate. In RWKV-7, this last dispatch also adds the bonus.
    pub fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let mut dispatches = match (self.lower_spans(cx), cx.caps.class) {
            (Some(spans), _) => spans.into(),
            (None, Class::Groups) => {
                let columns = match self.rule {
                    StateRule::Decay => COLUMNS,
                    StateRule::Delta => self.head_stride(),
                };
                let parts = (0..self.head_stride()).step_by(columns);
                parts
                    .map(|first| {
                        self.part(cx, 0..cx.tokens, 0..self.n_heads(), first..(first + columns).min(self.head_stride()), Feed::Storage)
                    })
                    .collect()
            }
            (None, Class::Lanes) => self.windows(cx),
        };
        dispatches.push(self.out(cx));
        dispatches
    }

    /// Returns the dispatch of the recurrence for a range of the step's rows, a range of heads, and a range of a head's padded columns.
    fn part(&self, cx: &Lowering<'_>, rows: Range<usize>, heads: Range<usize>, columns: Range<usize>, feed: Feed) -> Dispatch {
        let (size, n_vectors) = (self.head_size, self.rule.n_vectors());
        let (spec, values) = (cx.tape.var_spec(self.feed), cx.tape.var_spec(self.values));
        let at = rows.start * spec.stride() + heads.start * n_vectors * self.head_stride() + columns.start;
        let (source, module, feed_at, lanes) = match feed {
            Feed::Storage => (Binding::Var(self.feed), "rwkv::feed", at, ROWS),
            Feed::Window => (Binding::VarWindow(self.feed, at / ALIGN * ALIGN * 4), "rwkv::feed_window", at % ALIGN, WINDOW_ROWS),
        };
        let mut constants = vec![
            ("HEAD", size as u32),
            ("ROW", (self.head_stride() / 4) as u32),
            ("QUARTERS", (columns.len() / 4) as u32),
            ("VECTORS", n_vectors as u32),
            ("DELTA", u32::from(self.rule == StateRule::Delta)),
        ];
        if let Feed::Storage = feed {
            let elements = n_vectors * columns.len() / 4;
            let stage = (STAGE_BYTES / 16 / elements).clamp(1, STAGE);
            constants.extend([("STAGE", stage as u32), ("LOADS", (stage * elements).div_ceil(ROWS) as u32)]);
        }
        Dispatch {
            shader: "rwkv/wkv",
            modules: vec![("feed", module.to_string()), self.state_module(cx.tape)],
            constants,
            params: vec![
                ("first_row", rows.start.into()),
                ("n_rows", rows.len().into()),
                ("width", self.width.into()),
                ("first", (heads.start * size).into()),
                ("feed_stride", (spec.stride() / 4).into()),
                ("values_stride", values.stride().into()),
                ("stride", cx.tape.var_spec(self.y).stride().into()),
                ("bonus", values.column(BONUS).into()),
                ("feed_at", (feed_at / 4).into()),
                ("column", (columns.start / 4).into()),
            ],
            bindings: vec![
                ("values", Binding::Var(self.values)),
                ("state", Binding::State(self.state)),
                ("y", Binding::Var(self.y)),
                ("feed", source),
            ],
            grid: [(heads.len() * size.div_ceil(lanes)) as u32, cx.runs as u32, 1],
        }
    }

    /// Returns dispatches of the recurrence. Each dispatch reads a part of `feed` that fits a window, a uniform binding of 64 KiB. This part has
    /// several tokens with all heads, or one token with several heads.
    fn windows(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let n_heads = self.n_heads();
        let window = WINDOW_BYTES / 4;
        let rows = window / cx.tape.var_spec(self.feed).stride();
        if rows > 0 {
            return (0..cx.tokens)
                .step_by(rows)
                .map(|t| self.part(cx, t..t + rows, 0..n_heads, 0..self.head_stride(), Feed::Window))
                .collect();
        }
        // A window begins at a multiple of the alignment, so up to ALIGN floats before the first vector are wasted.
        let heads = (window - ALIGN) / (self.rule.n_vectors() * self.head_stride());
        let of_row = |t: usize| {
            (0..n_heads)
                .step_by(heads)
                .map(move |h| self.part(cx, t..t + 1, h..n_heads.min(h + heads), 0..self.head_stride(), Feed::Window))
        };
        (0..cx.tokens).flat_map(of_row).collect()
    }

    /// Returns the dispatch of norm and gate. In RWKV-7, the dispatch also adds the bonus after the norm.
    fn out(&self, cx: &Lowering<'_>) -> Dispatch {
        let (stride, values) = (self.stride(cx.tape), cx.tape.var_spec(self.values));
        let gates = self.gate.map(|g| (cx.tape.var_spec(g.of), g.column));
        Dispatch {
            shader: "rwkv/wkv_out",
            modules: vec![cx.caps.reduce()],
            constants: vec![],
            params: vec![
                ("head_size", self.head_size.into()),
                ("norm", self.norm.map_or(0, |norm| norm.row * stride).into()),
                ("values_stride", values.stride().into()),
                ("gates_stride", gates.map_or(0, |(spec, _)| spec.stride()).into()),
                ("stride", stride.into()),
                ("bonus", values.column(BONUS).into()),
                ("g", gates.map_or(0, |(spec, column)| spec.column(column)).into()),
                ("add_bonus", (self.rule == StateRule::Delta).into()),
                ("is_gated", self.gate.is_some().into()),
                ("is_normed", self.norm.is_some().into()),
                ("eps", self.norm.map_or(0.0, |norm| norm.eps).into()),
            ],
            bindings: vec![
                ("vectors", self.vectors()),
                ("gates", self.gate.map_or(Binding::Nothing, |g| Binding::Var(g.of))),
                ("values", Binding::Var(self.values)),
                ("y", Binding::Var(self.y)),
            ],
            grid: self.grid(cx),
        }
    }

    /// Computes the recurrence on the host. Calls `head` for every head and token, and rounds the state to its storage format after each call. Heads
    /// run in parallel, and each head takes its tokens in order.
    pub fn twin(&self, host: &mut Host, head: impl Fn(HeadTask<'_>) + Sync) {
        let tape = host.tape.clone();
        let (n, stride, n_heads) = (self.head_size, host.stride(self.y), self.n_heads());
        let spec = tape.state_spec(self.state);
        let page = spec.stride();
        let mut y = host.take(self.y);
        let mut state = host.take_state(self.state);
        for run in &host.step.runs {
            if run.page_in != run.page_out {
                let from = run.page_in as usize * page;
                state.copy_within(from..from + page, run.page_out as usize * page);
            }
        }
        let host_ref: &Host = host;
        let runs = &host_ref.step.runs;
        let rows = |run: &Run| run.first_row as usize..(run.first_row + run.len) as usize;
        let mut outputs = vec![0.0; runs.iter().map(|run| run.len as usize * n * n_heads).sum()];
        let mut pages: Vec<Option<&mut [f32]>> = state.chunks_mut(page).map(Some).collect();
        let (mut tasks, mut rest) = (Vec::with_capacity(runs.len() * n_heads), &mut outputs[..]);
        for run in runs {
            let states = pages[run.page_out as usize].take().expect("every run has its own page");
            for (h, s) in states.chunks_exact_mut(n * n).take(n_heads).enumerate() {
                let (out, later) = rest.split_at_mut(run.len as usize * n);
                rest = later;
                tasks.push((h, s, rows(run), out));
            }
        }
        tasks.into_par_iter().for_each_init(
            || vec![0.0; self.rule.n_vectors() * n],
            |scratch, (h, s, rows, out)| {
                for (t, y) in rows.zip(out.chunks_exact_mut(n)) {
                    head(HeadTask { host: host_ref, h, t, s: &mut *s, scratch: &mut *scratch, y });
                    spec.round(s);
                }
            },
        );
        let mut outputs = outputs.chunks_exact(n);
        for run in runs {
            for (h, t) in (0..n_heads).flat_map(|h| rows(run).map(move |t| (h, t))) {
                y[t * stride + h * n..][..n].copy_from_slice(outputs.next().expect("one output per head and token"));
            }
        }
        host.put(self.y, y);
        host.put_state(self.state, state);
    }

    /// Computes y = (GN(y) + bonus v) ⊙ gate in place, for head `h` and token `t`. `bonus` is a number, `v` and `y` are `[head_size]`. A missing norm
    /// or gate is left out.
    #[inline(always)]
    pub fn finish(&self, host: &Host, h: usize, t: usize, bonus: f32, v: &[f32], y: &mut [f32]) {
        let (at, n) = (h * self.head_size, self.head_size);
        if let (Some(norm), Some(vectors)) = (self.norm, self.vectors) {
            let [g, b] = [0, 1].map(|i| &host.vector(vectors, norm.row + i)[at..]);
            let (mean, scale) = moments(y, norm.eps);
            y.iter_mut().zip(g).zip(b).for_each(|((y, g), b)| *y = (*y - mean) * scale * g + b);
        }
        y.iter_mut().zip(v).for_each(|(y, v)| *y += bonus * v);
        if let Some(gate) = self.gate {
            let gate = column(host, gate.of, gate.column, t, at, n);
            y.iter_mut().zip(gate).for_each(|(y, g)| *y *= g);
        }
    }
}

/// One token of one head, on the CPU.
pub struct HeadTask<'a> {
    pub host: &'a Host,
    /// The index of the head.
    pub h: usize,
    /// The row of the token in the step.
    pub t: usize,
    /// The head's state, `[value][key]`.
    pub s: &'a mut [f32],
    /// Room for the vectors of the rule, `[n_vectors, head_size]`. Its contents are undefined.
    pub scratch: &'a mut [f32],
    /// The head's output, `[head_size]`.
    pub y: &'a mut [f32],
}

/// Returns the elements `at .. at + n` of column `i` of the activation `var`, for token `t`.
pub fn column(host: &Host, var: Var, i: usize, t: usize, at: usize, n: usize) -> &[f32] {
    let spec = host.tape.var_spec(var);
    &host.var(var)[t * spec.stride() + spec.column(i) + at..][..n]
}
