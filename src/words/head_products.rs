//! Products per head:  y_h = W_h x_h
//!
//! x_h and y_h are ranges of a row of x and y. W_h is `[rows, k]`, the same size for every head. k is a multiple of 8, because a product reads whole
//! units of 8 floats, and the next floats belong to another head.

use super::stack::{Segment, Stack, Store};
use super::testing::{Case, batches, steps};
use crate::tape::{Dispatch, Host, Lowering, MatrixPart, Rows, Tape, Var, Word};

/// The offsets of the heads in the rows of an activation, in floats: `first + head * stride`. Offsets of inputs are multiples of 4.
#[derive(Debug, Clone, Copy)]
pub struct HeadPlaces {
    pub first: usize,
    pub stride: usize,
}

struct HeadProducts(Stack);

impl Tape {
    /// Records y_h = W_h x_h for every head h. `parts` are the matrices W_h. The other floats of y do not change.
    pub fn head_products(&mut self, parts: Vec<MatrixPart>, (x, from): (Var, HeadPlaces), (y, to): (Var, HeadPlaces)) {
        let segment = |i| Segment { x: from.first + i * from.stride, y: to.first + i * to.stride, ..Segment::of(i) };
        let segments = (0..parts.len()).map(segment).collect();
        let matrix = self.matrix(parts);
        self.record(HeadProducts(Stack { matrix, x, y, bias: None, segments, store: Store::Set, rows: Rows::Tokens }));
    }
}

impl Word for HeadProducts {
    fn name(&self) -> &'static str {
        "head_products"
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
    for (heads, rows, k, steps) in
        [(1, 3, 8, steps(2)), (3, 16, 24, steps(2)), (2, 67, 136, steps(2)), (9, 8, 64, steps(2)), (20, 40, 16, batches())]
    {
        let mut tape = Tape::new();
        let x = tape.var("x", Rows::Tokens, &[heads * (k + 8)]);
        let y = tape.var("y", Rows::Tokens, &[heads * (rows + 5)]);
        let parts = (0..heads).map(|h| MatrixPart::new(format!("w{h}"), rows, k)).collect();
        tape.head_products(parts, (x, HeadPlaces { first: 8, stride: k + 8 }), (y, HeadPlaces { first: 4, stride: rows + 5 }));
        cases.push(Case::new(format!("head_products/{heads}/{rows}x{k}"), tape, steps, 1e-10));
    }
    cases
}
