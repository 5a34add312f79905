//! The gated input of GLM's ffn:  y = silu(W_gate x̂) ⊙ W_up x̂,  x̂ = norm(x)
//!
//! x is `[T, width]`, both matrices are `[F, width]`, y is `[T, F]`. T is the number of tokens, F the width of the ffn. The word has two
//! products. The first product stores silu(W_gate x̂) in y. The second product multiplies y by W_up x̂.

use super::norm::Norm;
use super::norm_linear::NormLinear;
use super::stack::{Activation, Segment, Stack, Store};
use super::testing::{Case, batches, steps};
use crate::tape::{MatrixPart, Rows, Tape, Var, vector};

impl Tape {
    /// Records y = silu(W_gate norm(x)) ⊙ W_up norm(x) and returns y, `[tokens, width of the ffn]`. `gate` and `up` are W_gate and W_up,
    /// `[width of the ffn, width of x]`.
    pub fn swiglu(&mut self, name: &'static str, x: Var, norm: Norm, gate: MatrixPart, up: MatrixPart) -> Var {
        let y = self.scratch(name, Rows::Tokens, &[gate.rows]);
        let normed = self.internal("normed", Rows::Tokens, &[norm.width(self)]);
        let mut stack = |part, activation, store| {
            let segments = vec![Segment { activation, ..Segment::of(0) }];
            Stack { matrix: self.matrix(vec![part]), x: normed, y, bias: None, segments, store, rows: Rows::Tokens }
        };
        let stacks = vec![stack(gate, Activation::Silu, Store::Set), stack(up, Activation::None, Store::Gate)];
        self.record(NormLinear { name: "swiglu", x, norm, normed, stacks });
        y
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (width, rows, steps) in [(1, 1, steps(2)), (7, 3, steps(2)), (64, 65, steps(2)), (130, 33, batches()), (96, 200, batches())] {
        let mut tape = Tape::new();
        let x = tape.var("x", Rows::Tokens, &[width]);
        let norm = Norm::rms(tape.vectors(width, vec![vector("g")]), 1e-6);
        let part = |i| MatrixPart::new("gate_up", rows, width).slice(i, 2);
        tape.swiglu("y", x, norm, part(0), part(1));
        cases.push(Case::new(format!("swiglu/{width}x{rows}"), tape, steps, 1e-10));
    }
    cases
}
