//! Product of a matrix and a vector that is mostly zeros:  x += W y  or  x += gate ⊙ W y
//!
//! x is `[T, C]`, W is `[C, K]`, y is `[T, K]`. T is the number of tokens, C the width of x, K the width of y. W is the value matrix of the channel
//! mix, and y comes from relu². If an adapter stores W column-major, a step of a few tokens reads only the columns of W whose input is not zero. With
//! many tokens, almost every column has a non-zero input for some token, so the dense tiled product is used. [`DenseFrom`](crate::tape::DenseFrom)
//! has the least number of tokens for the dense product. Only GPUs store W column-major. On llvmpipe the sparse product was 1.3 to 2 times slower
//! than the dense product, and the CPU would need a transposed copy of W.

use super::shape::{BY_COLUMNS, Shape};
use super::stack::{Segment, Stack, Store};
use super::testing::{Case, steps};
use crate::quant::PAD;
use crate::tape::{Dispatch, Host, Lowering, MatrixPart, MatrixPiece, Rows, Tape, Var, Word};
use std::ops::Range;

struct LinearAddSparse(Stack);

impl Tape {
    /// Records `x += W y` for a y that is mostly zeros. `part` is W, `[width of x, width of y]`. x and y have one row per token.
    pub fn linear_add_sparse(&mut self, part: MatrixPart, y: Var, x: Var) {
        self.sparse_into(part, y, x, Store::Add);
    }

    /// Records `x += g ⊙ W k` for a k that is mostly zeros. k is column 0 of y, g is column `gate` of y. `part` is W, `[width of x, width
    /// of k]`.
    pub fn linear_add_sparse_gated(&mut self, part: MatrixPart, y: Var, gate: usize, x: Var) {
        self.sparse_into(part, y, x, Store::AddGated { a: y, column: gate });
    }

    fn sparse_into(&mut self, part: MatrixPart, y: Var, x: Var, store: Store) {
        let matrix = self.matrix_of_sparse_input(part);
        let segments = vec![Segment::of(0)];
        self.record(LinearAddSparse(Stack { matrix, x: y, y: x, bias: None, segments, store, rows: Rows::Tokens }));
    }
}

/// The number of consecutive bytes that a workgroup should read from one column of W.
const CHANNEL_BYTES: usize = 64;

/// Returns the sparse kernel for a piece. The size of a weight determines the number of rows per workgroup.
fn sparse(piece: &MatrixPiece) -> Shape {
    let units = (CHANNEL_BYTES / piece.format.size_bytes(PAD)).next_power_of_two().clamp(4, 16);
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
        if cx.tokens < cx.caps.tuning.dense_from.of(spec.parts[0].format) {
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

/// Returns cases with and without a gate. The fraction of zeros in the inputs is 85 %, 0 % or 100 %.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // Pairs (rows, k). Some k exceed two limits of the kernel: chunks of 2048 inputs, and a list with room for 2560 non-zero inputs.
    let sizes = [(1, 1), (5, 7), (63, 8), (64, 65), (65, 1000), (300, 127), (33, 2049), (17, 6001)];
    for (rows, k) in sizes {
        // Inputs without zeros fill the list. Inputs of zeros alone leave the list empty.
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
