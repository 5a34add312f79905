//! A product that is normalised and added to the residual stream:  x += norm(W y)
//!
//! x is `[T, C]`, W is `[C, K]`, y is `[T, K]`. T is the number of tokens, C the width of x, K the width of y. GLM-4-0414 ends attention and ffn
//! with this word.

use super::norm::Norm;
use super::stack::{Segment, Stack, Store};
use super::testing::{Case, batches, steps};
use crate::tape::{Dispatch, Host, Lowering, MatrixPart, Rows, Tape, Var, Word, vector};

struct LinearNormAdd {
    norm: Norm,
    product: Stack,
    x: Var,
}

impl Tape {
    /// Records `x += norm(W y)`. `part` is W, `[width of x, width of y]`. x and y have one row per token.
    pub fn linear_norm_add(&mut self, part: MatrixPart, y: Var, norm: Norm, x: Var) {
        let product = self.scratch("product", Rows::Tokens, &[part.rows]);
        let (matrix, segments) = (self.matrix(vec![part]), vec![Segment::of(0)]);
        let product = Stack { matrix, x: y, y: product, bias: None, segments, store: Store::Set, rows: Rows::Tokens };
        self.record(LinearNormAdd { norm, product, x });
    }
}

impl Word for LinearNormAdd {
    fn name(&self) -> &'static str {
        "linear_norm_add"
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let norm = self.norm.lower(cx, self.product.y, self.x, true);
        self.product.lower(cx).into_iter().chain([norm]).collect()
    }

    fn twin(&self, host: &mut Host) {
        self.product.twin(host);
        self.norm.twin(host, self.product.y, self.x, true);
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (rows, k, steps) in [(1, 1, steps(2)), (5, 7, steps(2)), (67, 53, batches()), (130, 24, steps(2))] {
        let mut tape = Tape::new();
        let y = tape.var("y", Rows::Tokens, &[k]);
        let x = tape.var("x", Rows::Tokens, &[rows]);
        let norm = Norm::rms(tape.vectors(rows, vec![vector("g")]), 1e-6);
        tape.linear_norm_add(MatrixPart::new("w", rows, k), y, norm, x);
        cases.push(Case::new(format!("linear_norm_add/{rows}x{k}"), tape, steps, 1e-10));
    }
    cases
}
