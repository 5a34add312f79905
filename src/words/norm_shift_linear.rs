//! LN, token shift, one lerp a mix, and a stack of matrices that each read one of the mixes.
//!
//!   x̂ = LN(x)   p = x̂ of the token before   X_m = x̂ + (p − x̂) ⊙ mix_m   y_i = activation_i(W_i X_m(i))

use super::layer_norm;
use super::stack::{Activation, Segment, Stack};
use super::testing::{Case, steps};
use crate::tape::{Binding, Dispatch, Host, Lowering, Part, Rows, State, Tape, Var, Vector, Word, optional_vector, vector};

/// One matrix of the stack.
pub struct Projection {
    pub part: Part,
    /// Index of the mix that it reads.
    pub mix: usize,
    pub activation: Activation,
}

struct NormShiftLinear {
    x: Var,
    /// g, b, then the mixes.
    vectors: Vector,
    n_mixes: usize,
    shift: State,
    mixed: Var,
    stack: Stack,
}

impl Tape {
    /// One column a projection. `vectors`: norm weight, norm bias, then one row a mix (`m` convention of RWKV-6 and 7).
    /// `shift` holds x̂ of the last token, `[width]`, in halves.
    pub fn norm_shift_linear(&mut self, name: &'static str, x: Var, vectors: Vector, projections: Vec<Projection>, shift: State) -> Var {
        let n_mixes = self.vector_spec(vectors).parts.len() - 2;
        let width = self.vector_spec(vectors).width;
        let mixed = self.planes("mixed", width, n_mixes);
        let columns: Vec<usize> = projections.iter().map(|p| p.part.rows).collect();
        let y = self.scratch(name, Rows::Tokens, &columns);
        let segments = projections
            .iter()
            .enumerate()
            .map(|(i, p)| Segment { part: i, plane: p.mix, x: 0, y: self.var_spec(y).column(i), bias: None, activation: p.activation })
            .collect();
        let matrix = self.matrix(projections.into_iter().map(|p| p.part).collect());
        let stack = Stack { matrix, x: mixed, y, bias: None, segments, accumulate: false, rows: Rows::Tokens };
        self.record(NormShiftLinear { x, vectors, n_mixes, shift, mixed, stack });
        y
    }
}

const EPS: f32 = 1e-5;

impl Word for NormShiftLinear {
    fn name(&self) -> &'static str {
        "norm_shift_linear"
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let spec = cx.tape.vector_spec(self.vectors);
        let mix = Dispatch {
            shader: "norm/shift_mix",
            modules: vec![cx.caps.reduce()],
            constants: vec![],
            params: vec![
                ("width", spec.width.into()),
                ("stride", spec.stride().into()),
                ("n_mixes", self.n_mixes.into()),
                ("capacity", cx.capacity.into()),
                ("eps", EPS.into()),
            ],
            bindings: vec![
                ("vectors", Binding::Vector(self.vectors)),
                ("x", Binding::Var(self.x)),
                ("shift", Binding::State(self.shift)),
                ("mixed", Binding::Var(self.mixed)),
            ],
            grid: [cx.tokens as u32, 1, 1],
        };
        std::iter::once(mix).chain(self.stack.lower(cx)).collect()
    }

    fn twin(&self, host: &mut Host) {
        let (x_stride, stride) = (host.stride(self.x), host.tape.vector_spec(self.vectors).stride());
        let width = host.tape.vector_spec(self.vectors).width;
        let mut mixed = host.take(self.mixed);
        let mut shift = host.take_state(self.shift);
        for run in &host.step.runs {
            let mut p = shift[run.shift_in as usize * stride..][..width].to_vec();
            let mut x_hat = vec![0.0; width];
            for t in (run.first_row as usize..).take(run.len as usize) {
                let x = &host.var(self.x)[t * x_stride..][..width];
                layer_norm(x, host.vector(self.vectors, 0), host.vector(self.vectors, 1), EPS, &mut x_hat);
                for m in 0..self.n_mixes {
                    let mix = host.vector(self.vectors, 2 + m);
                    for (i, o) in mixed[(m * host.capacity + t) * stride..][..width].iter_mut().enumerate() {
                        *o = x_hat[i] + (p[i] - x_hat[i]) * mix[i];
                    }
                }
                std::mem::swap(&mut p, &mut x_hat);
            }
            shift[run.shift_out as usize * stride..][..width].copy_from_slice(&p);
        }
        host.put(self.mixed, mixed);
        host.put_state(self.shift, shift);
        self.stack.twin(host);
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (width, rows) in [(1, vec![1]), (7, vec![3, 1]), (64, vec![65, 64, 63]), (60, vec![8; 11]), (130, vec![7, 130, 33, 5, 64, 31, 1])] {
        let mut tape = Tape::new();
        let x = tape.var("x", Rows::Tokens, &[width]);
        let n_mixes = rows.len().min(6);
        let mixes = (0..n_mixes).map(|i| optional_vector(format!("mix{i}")));
        let vectors = tape.vectors(width, [vector("g"), vector("b")].into_iter().chain(mixes).collect());
        let shift = tape.state("shift".into(), &[width], true);
        let projection = |(i, &n): (usize, &usize)| Projection {
            part: if i % 2 == 0 { Part::new(format!("w{i}"), n, width) } else { Part::in_out(format!("w{i}"), n, width) },
            mix: i % n_mixes,
            activation: Activation::ALL[i % Activation::ALL.len()],
        };
        let projections = rows.iter().enumerate().map(projection).collect();
        tape.norm_shift_linear("y", x, vectors, projections, shift);
        cases.push(Case::new(format!("norm_shift_linear/{width}/{}", rows.len()), tape, steps(2), 1e-10));
    }
    cases
}
