//! The recurrence of RWKV-4 over decayed exponentials of k, and then the output matrix:  x += W (r ⊙ wkv)
//! Source: RWKV paper, appendix D. Exponents are relative to p, the largest exponent so far, so all values stay finite. Per channel and
//! token:
//!
//!   q = max(p, u + k)   wkv = (e^(p − q) a + e^(u + k − q) v) / (e^(p − q) b + e^(u + k − q))
//!   q = max(p + w, k)   a = e^(p + w − q) a + e^(k − q) v   b = e^(p + w − q) b + e^(k − q)   p = q
//! x is `[T, C]`, W is `[C, A]`. r, k and v are `[T, A]`, w and u are `[A]`. T is the number of tokens, C the width of x, A the width of the
//! time mix. The state consists of a, b and p, `[A]` each.

use super::stack::{ProductInput, Segment, Stack, Store, fuses};
use super::testing::{Case, steps};
use crate::tape::{Binding, Dispatch, Host, Initial, Lowering, MatrixPart, Rows, State, Tape, Var, Vector, Word, vector};

/// Index of the column r in the activation `proj`. The columns k and v follow.
const R: usize = 0;
const K: usize = 1;
const V: usize = 2;
/// Index of the row w in the packed vectors. The row u follows.
const W: usize = 0;
const U: usize = 1;
/// The exponent p before the first token. This value acts as minus infinity and causes no overflow.
const NO_EXPONENT: f32 = -1e30;

struct Wkv4 {
    proj: Var,
    /// The packed rows w = −exp(time_decay) and u.
    vectors: Vector,
    /// The recurrent state: the vectors a, b and p, `[3, width]`. The state's pages have two halves: a step reads one half and writes the other half.
    state: State,
    /// r ⊙ wkv, `[tokens, width]`.
    y: Var,
    output: Stack,
}

impl Tape {
    /// Declares the recurrent state of a layer: numerator a, denominator b and exponent p of every channel, `[3, width]`. The state's pages have two
    /// halves: a step reads one half and writes the other half.
    pub fn wkv4_state(&mut self, name: String, width: usize) -> State {
        let state = self.state(name, &[3, width], true);
        self.begin_with(state, Initial::Rows(vec![0.0, 0.0, NO_EXPONENT]));
        state
    }

    /// Records `x += W (r ⊙ wkv)`. `part` is W, `[width of x, width of the time mix]`. `proj` has the columns r (after the sigmoid), k and
    /// v. `vectors` has the rows w = −exp(time_decay) and u.
    pub fn wkv4_linear_add(&mut self, proj: Var, vectors: Vector, state: State, part: MatrixPart, x: Var) {
        let width = self.vector_spec(vectors).width;
        let y = self.internal("wkv", Rows::Tokens, &[width]);
        let matrix = self.matrix(vec![part]);
        let segments = vec![Segment::of(0)];
        let output = Stack { matrix, x: y, y: x, bias: None, segments, store: Store::Add, rows: Rows::Tokens };
        self.record(Wkv4 { proj, vectors, state, y, output });
    }
}

impl Word for Wkv4 {
    fn name(&self) -> &'static str {
        "wkv4_linear_add"
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let (proj, vectors) = (cx.tape.var_spec(self.proj), cx.tape.vector_spec(self.vectors));
        let (width, half_stride) = (vectors.width, cx.tape.state_spec(self.state).stride());
        if fuses(cx) {
            return self.output.lower_from(cx, &|keeps| ProductInput {
                module: "linear::input_wkv4",
                params: vec![
                    ("width", width.into()),
                    ("proj_stride", proj.stride().into()),
                    ("stride", vectors.stride().into()),
                    ("half_stride", half_stride.into()),
                    ("r", proj.column(R).into()),
                    ("k", proj.column(K).into()),
                    ("v", proj.column(V).into()),
                    ("keeps", keeps.into()),
                ],
                bindings: vec![
                    ("proj", Binding::Var(self.proj)),
                    ("vectors", Binding::Vector(self.vectors)),
                    ("state", Binding::State(self.state)),
                ],
            });
        }
        let recurrence = Dispatch {
            shader: "rwkv/wkv4",
            modules: vec![],
            constants: vec![],
            params: vec![
                ("width", width.into()),
                ("proj_stride", proj.stride().into()),
                ("r", proj.column(R).into()),
                ("k", proj.column(K).into()),
                ("v", proj.column(V).into()),
                ("stride", cx.tape.var_spec(self.y).stride().into()),
                ("half_stride", half_stride.into()),
            ],
            bindings: vec![
                ("vectors", Binding::Vector(self.vectors)),
                ("proj", Binding::Var(self.proj)),
                ("state", Binding::State(self.state)),
                ("y", Binding::Var(self.y)),
            ],
            grid: [width.div_ceil(8) as u32, cx.runs as u32, 1],
        };
        std::iter::once(recurrence).chain(self.output.lower(cx)).collect()
    }

    fn twin(&self, host: &mut Host) {
        let tape = host.tape.clone();
        let (proj, stride) = (tape.var_spec(self.proj), host.stride(self.y));
        let width = tape.vector_spec(self.vectors).width;
        let half = tape.state_spec(self.state).stride();
        let mut y = host.take(self.y);
        let mut state = host.take_state(self.state);
        let (w, u) = (host.vector(self.vectors, W), host.vector(self.vectors, U));
        for run in &host.step.runs {
            for c in 0..width {
                let from = |row: usize| run.shift_in as usize * half + row * width + c;
                let (mut a, mut b, mut p) = (state[from(0)], state[from(1)], state[from(2)]);
                for t in (run.first_row as usize..).take(run.len as usize) {
                    let x = |column: usize| host.var(self.proj)[t * proj.stride() + proj.column(column) + c];
                    let (r, k, v) = (x(R), x(K), x(V));
                    let q = p.max(u[c] + k);
                    let (before, now) = ((p - q).exp(), (u[c] + k - q).exp());
                    y[t * stride + c] = r * (before * a + now * v) / (before * b + now);
                    let q = (p + w[c]).max(k);
                    let (before, now) = ((p + w[c] - q).exp(), (k - q).exp());
                    (a, b, p) = (before * a + now * v, before * b + now, q);
                }
                for (row, value) in [a, b, p].into_iter().enumerate() {
                    state[run.shift_out as usize * half + row * width + c] = value;
                }
            }
        }
        host.put(self.y, y);
        host.put_state(self.state, state);
        self.output.twin(host);
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for width in [1, 7, 64, 130] {
        let mut tape = Tape::new();
        let proj = tape.var("proj", Rows::Tokens, &[width; 3]);
        let vectors = tape.vectors(width, vec![vector("time_decay").map(|d| -d.exp()), vector("time_first")]);
        let state = tape.wkv4_state("wkv".into(), width);
        let x = tape.var("x", Rows::Tokens, &[width + 3]);
        tape.wkv4_linear_add(proj, vectors, state, MatrixPart::new("w", width + 3, width), x);
        // A state of random numbers could have denominators that are negative or near zero, so these cases start from the initial state.
        cases.push(Case { from_nothing: true, ..Case::new(format!("wkv4_linear_add/{width}"), tape, steps(2), 1e-9) });
    }
    cases
}
