//! x += W y, or x += gate ⊙ W y, where most of y is zero: the value matrix of the channel mix, behind relu².
//!
//! Where an adapter stores such a matrix by columns, a few tokens read only the channels that have an input. Many tokens have
//! some input in almost every channel, and take the dense tiled product, on the same columns.

use super::stack::{BY_COLUMNS, Segment, Shape, Stack, Store};
use super::testing::{Case, steps};
use crate::quant::PAD;
use crate::tape::{Dispatch, Host, Lowering, MatrixPart, MatrixPiece, Rows, Tape, Var, Word};
use std::ops::Range;

struct LinearAddSparse(Stack);

impl Tape {
    /// `x [T, C] += W [C, K] y [T, K]`, where most of y is zero.
    pub fn linear_add_sparse(&mut self, part: MatrixPart, y: Var, x: Var) {
        self.sparse_into(part, y, x, Store::Add);
    }

    /// `x [T, C] += y's column gate [T, C] ⊙ W [C, K] y's first column [T, K]`, where most of that is zero.
    pub fn linear_add_sparse_gated(&mut self, part: MatrixPart, y: Var, gate: usize, x: Var) {
        self.sparse_into(part, y, x, Store::AddGated { a: y, column: gate });
    }

    fn sparse_into(&mut self, part: MatrixPart, y: Var, x: Var, store: Store) {
        let matrix = self.matrix_of_sparse_input(part);
        let segments = vec![Segment::of(0)];
        self.record(LinearAddSparse(Stack { matrix, x: y, y: x, bias: None, segments, store, rows: Rows::Tokens }));
    }
}

/// From so many tokens on all channels are read, once for all of them: so many read as much one by one, at nine zeros in ten.
const DENSE_FROM: usize = 8;
/// Bytes of one channel that a workgroup reads side by side.
const STRETCH: usize = 64;

/// The kernel for a few tokens: rows of a workgroup by how wide eight weights are.
fn sparse(piece: &MatrixPiece) -> Shape {
    let units = (STRETCH / piece.format.size_bytes(PAD)).next_power_of_two().clamp(4, 16);
    Shape { shader: "linear/sparse", block_rows: PAD * units, tokens: 1, constants: vec![("UNITS", units as u32)], modules: vec![] }
}

impl Word for LinearAddSparse {
    fn name(&self) -> &'static str {
        "linear_add_sparse"
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let spec = cx.tape.matrix_spec(self.0.matrix);
        if !cx.caps.by_columns(spec) {
            return self.0.lower(cx);
        }
        let pieces = spec.column_pieces(cx.caps.max_binding);
        if cx.tokens < DENSE_FROM {
            return self.0.lower_pieces(cx, &sparse, &pieces);
        }
        let by_columns = |piece: &MatrixPiece| {
            let mut shape = Shape::tiled(cx, spec, piece, cx.tokens);
            shape.modules.iter_mut().filter(|(slot, _)| *slot == "tile").for_each(|tile| *tile = BY_COLUMNS);
            shape
        };
        self.0.lower_pieces(cx, &by_columns, &pieces)
    }

    fn twin(&self, host: &mut Host) {
        self.0.twin(host);
    }

    fn sparse_input(&self, tape: &Tape) -> Option<(Var, Range<usize>)> {
        Some((self.0.x, 0..tape.matrix_spec(self.0.matrix).parts[0].k))
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // Widths around the lanes, the chunks and the room of the kernel's list, with as many inputs as fill it, and none.
    let sizes = [(1, 1), (5, 7), (63, 8), (64, 65), (65, 1000), (300, 127), (33, 2049), (17, 6001)];
    for (rows, k) in sizes {
        // All and none of them is what fills the list, and what leaves it empty.
        let shares: &[f32] = if k >= 1000 { &[0.85, 0.0, 1.0] } else { &[0.85] };
        for &zeros in shares {
            let mut tape = Tape::new();
            let y = tape.var("y", Rows::Tokens, &[k]);
            let x = tape.var("x", Rows::Tokens, &[rows]);
            tape.linear_add_sparse(MatrixPart::new("w", rows, k), y, x);
            let case = Case::new(format!("linear_add_sparse/{rows}x{k}/{zeros}"), tape, steps(2), 1e-10);
            cases.push(Case { zeros: Some((y, zeros)), ..case });
        }
    }
    for (rows, k) in [(5, 7), (65, 1000), (17, 6001)] {
        let mut tape = Tape::new();
        let y = tape.var("y", Rows::Tokens, &[k, 3, rows]);
        let x = tape.var("x", Rows::Tokens, &[rows]);
        tape.linear_add_sparse_gated(MatrixPart::new("w", rows, k), y, 2, x);
        cases.push(Case { zeros: Some((y, 0.85)), ..Case::new(format!("linear_add_sparse/gated/{rows}x{k}"), tape, steps(2), 1e-10) });
    }
    cases
}
