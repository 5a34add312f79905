//! A norm and a stack of matrices:  y_i = W_i norm(x) + b_i
//!
//! x is `[T, width]`, T is the number of tokens, W_i is `[rows_i, width]`, y has one column per matrix.

use super::norm::Norm;
use super::stack::{Segment, Stack, Store, fuses};
use super::testing::{Case, batches, steps};
use crate::tape::{Dispatch, Host, Lowering, MatrixPart, Rows, Tape, Var, VectorPart, Word, vector};

/// A norm and products of the normalised rows. This type implements the words `norm_linear`, `swiglu`, `head` and, without products, `hidden`.
pub(super) struct NormLinear {
    pub name: &'static str,
    pub x: Var,
    pub norm: Norm,
    /// norm(x), with one row per token. In the words `head` and `hidden`, one row per token whose logits are requested.
    pub normed: Var,
    pub stacks: Vec<Stack>,
}

impl Tape {
    /// Records y_i = W_i norm(x) + b_i. Returns y, which has one row per token and one column per part. `parts` are the matrices W_i.
    /// `bias` are the vectors b_i, one per part, or an empty list.
    pub fn norm_linear(&mut self, name: &'static str, x: Var, norm: Norm, parts: Vec<MatrixPart>, bias: Vec<VectorPart>) -> Var {
        let columns: Vec<usize> = parts.iter().map(|p| p.rows).collect();
        let y = self.scratch(name, Rows::Tokens, &columns);
        let normed = self.internal("normed", Rows::Tokens, &[norm.width(self)]);
        let has_bias = !bias.is_empty();
        let segment = |i: usize| Segment { y: self.var_spec(y).column(i), bias: has_bias.then_some(i), ..Segment::of(i) };
        let segments = (0..parts.len()).map(segment).collect();
        let width = columns.iter().copied().max().unwrap_or(0);
        let bias = has_bias.then(|| self.vectors(width, bias.into_iter().zip(columns).map(|(part, len)| part.short(len)).collect()));
        let matrix = self.matrix(parts);
        let stack = Stack { matrix, x: normed, y, bias, segments, store: Store::Set, rows: Rows::Tokens };
        self.record(NormLinear { name: "norm_linear", x, norm, normed, stacks: vec![stack] });
        y
    }
}

impl Word for NormLinear {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        if fuses(cx) && !self.stacks.is_empty() {
            let keep = |is_first: bool| (is_first && self.is_head()).then_some(self.normed);
            return self.stacks.iter().flat_map(|s| s.lower_from(cx, &|is_first| self.norm.input(cx, self.x, keep(is_first)))).collect();
        }
        let norm = self.norm.lower(cx, self.x, self.normed, false);
        std::iter::once(norm).chain(self.stacks.iter().flat_map(|s| s.lower(cx))).collect()
    }

    fn twin(&self, host: &mut Host) {
        self.norm.twin(host, self.x, self.normed, false);
        self.stacks.iter().for_each(|s| s.twin(host));
    }

    /// Returns `true` for the words `head` and `hidden`, which compute only tokens whose logits are requested. Both store norm(x), which is the
    /// tape's `hidden`.
    fn is_head(&self) -> bool {
        self.stacks.iter().all(|s| s.rows == Rows::Outputs)
    }
}

/// Returns cases with and without biases.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (width, rows) in [(1, vec![1]), (7, vec![3, 1]), (64, vec![65, 16, 16]), (130, vec![7, 130, 33])] {
        for has_bias in [true, false] {
            let mut tape = Tape::new();
            let x = tape.var("x", Rows::Tokens, &[width]);
            let norm = Norm::rms(tape.vectors(width, vec![vector("g")]), 1e-6);
            let parts = rows.iter().enumerate().map(|(i, &n)| MatrixPart::new(format!("w{i}"), n, width)).collect();
            let bias = (0..rows.len()).filter(|_| has_bias).map(|i| vector(format!("b{i}"))).collect();
            tape.norm_linear("y", x, norm, parts, bias);
            let steps = if has_bias { steps(2) } else { batches() };
            cases.push(Case::new(format!("norm_linear/{width}/bias={has_bias}"), tape, steps, 1e-10));
        }
    }
    cases
}
