//! A product that is added to the residual stream:  x += W y
//!
//! x is `[T, C]`, W is `[C, K]`, y is `[T, K]`. T is the number of tokens, C the width of x, K the width of y.

use super::stack::{Segment, Stack, Store};
use super::testing::{Case, batches, steps};
use crate::quant::Activations;
use crate::tape::{BATCH, Dispatch, Host, Lowering, MatrixPart, Rows, Tape, Var, Word};

struct LinearAdd(Stack);

impl Tape {
    /// Records `x += W y`. `part` is W, `[width of x, width of y]`. x and y have one row per token.
    pub fn linear_add(&mut self, part: MatrixPart, y: Var, x: Var) {
        let matrix = self.matrix(vec![part]);
        let segments = vec![Segment::of(0)];
        self.record(LinearAdd(Stack { matrix, x: y, y: x, bias: None, segments, store: Store::Add, rows: Rows::Tokens }));
    }
}

impl Word for LinearAdd {
    fn name(&self) -> &'static str {
        "linear_add"
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        self.0.lower(cx)
    }

    fn twin(&self, host: &mut Host) {
        self.0.twin(host);
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (rows, k) in [(3, 17), (67, 530), (130, 24)] {
        let mut tape = Tape::new();
        let y = tape.var("y", Rows::Tokens, &[k]);
        let x = tape.var("x", Rows::Tokens, &[rows]);
        tape.linear_add(MatrixPart::new("w", rows, k), y, x);
        cases.push(Case::new(format!("linear_add/batches/{rows}x{k}"), tape, batches(), 1e-10));
    }
    for (rows, k) in [(5, 32), (130, 24), (67, 530)] {
        let mut tape = Tape::new();
        let y = tape.var("y", Rows::Tokens, &[k]);
        let x = tape.var("x", Rows::Tokens, &[rows]);
        tape.linear_add(MatrixPart::new("w", rows, k), y, x);
        tape.activations = Activations::I8;
        let steps = batches().into_iter().filter(|step| step.tokens.len() > BATCH).collect();
        // A GPU's division may have an error in its last bit, which rarely rounds an input to the next number.
        cases.push(Case::new(format!("linear_add/rounded/{rows}x{k}"), tape, steps, 1e-6));
    }
    for (rows, k) in [(1, 1), (5, 7), (63, 8), (64, 65), (65, 1000), (300, 127)] {
        let mut tape = Tape::new();
        let y = tape.var("y", Rows::Tokens, &[k]);
        let x = tape.var("x", Rows::Tokens, &[rows]);
        tape.linear_add(MatrixPart::new("w", rows, k), y, x);
        cases.push(Case::new(format!("linear_add/{rows}x{k}"), tape, steps(2), 1e-10));
    }
    cases
}
