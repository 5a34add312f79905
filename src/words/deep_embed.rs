//! Multiplies activations by a gate that depends on the token's id (DeepEmbed of RWKV-7a):
//!
//!   M = S[token] + W x0        one matrix `[R, R]` per token
//!   k ← k ⊙ (b + V (q M))
//!
//! k is `[T, F]`, q is `[T, R]`, x0 is `[T, C]`. T is the number of tokens, F the width of the channel mix, C the width of the residual stream. x0 is
//! the embedding of each token. S is a table `[vocab, R R]`: each row of the table is a matrix `[R, R]`, stored row by row. W is `[R R, C]`, V is
//! `[F, R]`, b is `[F]`.
//!
//! x0 depends only on the token, so the official implementation adds W x0 to the table when it loads a model. Here, W x0 is computed in every step.
//! The table then keeps the file's format and stays in the mapped file or in host memory. The product W x0 takes about a tenth of the time of a layer
//! in a small model, and a smaller share in a larger model.

use super::stack::{Segment, Stack, Store};
use super::testing::{Case, batches, steps};
use crate::tape::{
    Binding, Dispatch, Host, Lowering, Matrix, MatrixPart, MatrixPiece, Rows, Tape, Var, VectorPart, Word, optional_vector, vector,
};

/// The weights of the word `deep_embed`.
pub struct DeepEmbed {
    /// The matrices S of all tokens, one per row, `[vocab, R R]`.
    pub table: MatrixPart,
    /// The matrix W, `[R R, C]`.
    pub residual: MatrixPart,
    /// The matrix V, `[F, R]`.
    pub gate: MatrixPart,
    /// The bias b, `[F]`.
    pub bias: VectorPart,
}

struct DeepEmbedWord {
    table: Matrix,
    /// R, the width of q.
    rank: usize,
    /// The activation with the columns k and q.
    kq: Var,
    /// The product z = W x0, `[T, R R]`.
    residual: Stack,
    /// The product that updates k: k ← k ⊙ (b + V y). Its input is y = q M, `[T, R]`.
    gate: Stack,
}

impl Tape {
    /// Records `k ← k ⊙ (b + V (q M))` with `M = S[token] + W x0`. `kq` has the columns k, `[T, F]`, and q, `[T, R]`. `x0` is the embedding
    /// of each token, `[T, C]`.
    pub fn deep_embed(&mut self, weights: DeepEmbed, x0: Var, kq: Var) {
        let DeepEmbed { table, residual, gate, bias } = weights;
        let (rank, width) = (gate.k, gate.rows);
        let z = self.internal("deep_embed_z", Rows::Tokens, &[rank * rank]);
        let y = self.internal("deep_embed_y", Rows::Tokens, &[rank]);
        let bias = self.vectors(width, vec![bias]);
        let mut stack = |part, x, y, bias: Option<_>, store| {
            let segments = vec![Segment { bias: bias.map(|_| 0), ..Segment::of(0) }];
            Stack { matrix: self.matrix(vec![part]), x, y, bias, segments, store, rows: Rows::Tokens }
        };
        let residual = stack(residual, x0, z, None, Store::Set);
        let gate = stack(gate, y, kq, Some(bias), Store::Gate);
        let table = self.table(table);
        self.record(DeepEmbedWord { table, rank, kq, residual, gate });
    }
}

impl Word for DeepEmbedWord {
    fn name(&self) -> &'static str {
        "deep_embed"
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let spec = cx.tape.matrix_spec(self.table);
        let stride = |var: Var| cx.tape.var_spec(var).stride();
        let one = |(i, piece): (usize, &MatrixPiece)| Dispatch {
            shader: "rwkv/deep_embed",
            modules: piece.segments[0].region.modules().into_iter().chain([cx.caps.reduce()]).collect(),
            constants: vec![],
            params: vec![
                ("rank", self.rank.into()),
                ("q_at", cx.tape.var_spec(self.kq).column(1).into()),
                ("q_stride", stride(self.kq).into()),
                ("z_stride", stride(self.residual.y).into()),
                ("y_stride", stride(self.gate.x).into()),
                ("units", spec.parts[0].units().into()),
                ("scales", piece.segments[0].scales.into()),
                ("first_row", piece.segments[0].first_row.into()),
                ("rows", piece.segments[0].rows.into()),
            ],
            bindings: vec![
                ("q", Binding::Var(self.kq)),
                ("z", Binding::Var(self.residual.y)),
                ("y", Binding::Var(self.gate.x)),
                ("w0", Binding::Piece(self.table, i)),
            ],
            grid: [cx.tokens as u32, 1, 1],
        };
        let pieces = spec.pieces(cx.caps.max_binding);
        let gathers = pieces.iter().enumerate().map(one);
        self.residual.lower(cx).into_iter().chain(gathers).chain(self.gate.lower(cx)).collect()
    }

    fn twin(&self, host: &mut Host) {
        self.residual.twin(host);
        let (kq, z, y) = (self.kq, self.residual.y, self.gate.x);
        let (kq_stride, z_stride, y_stride) = (host.stride(kq), host.stride(z), host.stride(y));
        let q_at = host.tape.var_spec(kq).column(1);
        let mut out = host.take(y);
        let table = host.matrix(self.table).part(0);
        let mut row = vec![0.0; table.k];
        for (t, &token) in host.step.tokens.iter().enumerate() {
            table.row(token as usize, &mut row);
            let q = &host.var(kq)[t * kq_stride + q_at..][..self.rank];
            let z = &host.var(z)[t * z_stride..][..self.rank * self.rank];
            let matrix = |i: usize, j: usize| row[i * self.rank + j] + z[i * self.rank + j];
            let y = &mut out[t * y_stride..][..self.rank];
            y.iter_mut().enumerate().for_each(|(j, y)| *y = q.iter().enumerate().map(|(i, q)| q * matrix(i, j)).sum());
        }
        host.put(y, out);
        self.gate.twin(host);
    }
}

/// Returns the test cases. In one case, the file has no bias.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (vocab, rank, width, inputs) in [(1, 1, 1, 1), (7, 3, 9, 5), (50, 5, 64, 63), (20, 32, 130, 64), (9, 70, 33, 31)] {
        let mut tape = Tape::new();
        let kq = tape.var("kq", Rows::Tokens, &[width, rank]);
        let x0 = tape.var("x0", Rows::Tokens, &[inputs]);
        let weights = DeepEmbed {
            table: MatrixPart::new("s", vocab, rank * rank),
            residual: MatrixPart::new("w", rank * rank, inputs),
            gate: MatrixPart::in_out("v", width, rank),
            bias: if rank == 5 { optional_vector("b") } else { vector("b") },
        };
        tape.deep_embed(weights, x0, kq);
        let steps = if rank == 3 { batches() } else { steps(vocab) };
        cases.push(Case::new(format!("deep_embed/{vocab}x{rank}/{width}x{inputs}"), tape, steps, 1e-10));
    }
    cases
}
