//! Token embedding:  `x[t] = LN0(E[token])`
//!
//! E is `[vocab, width]`, x is `[T, width]`, T is the number of tokens. Each row is normalised after the lookup, which costs almost nothing. A
//! table that is normalised at load time would have to be rounded to the weight format again.
//!
//! For RWKV-4 to 6, the official package normalises embeddings in f16. Here they become f32 first. This alone explains why the logits of the tests'
//! tiny models differ from the package's logits by 6e-9 to 8e-9.

use super::testing::{Case, steps};
use super::{LAYER_NORM_EPS, norm::Norm};
use crate::tape::{Binding, Dispatch, Host, Lowering, Matrix, MatrixPart, Rows, Tape, Var, Word, vector};

struct Embed {
    table: Matrix,
    /// The weight g and the bias b of the norm ln0, or `None` if the file has no ln0.
    norm: Option<Norm>,
    out: Var,
}

impl Tape {
    /// Records the lookup of embeddings and returns x, `[tokens, width]`. `table` must have one part, the matrix of embeddings. `norm` is the
    /// layer norm ln0, or `None` if the model has no ln0.
    pub fn embed(&mut self, table: Matrix, norm: Option<Norm>) -> Var {
        self.embed_into("x", table, norm)
    }

    /// Does what [`Tape::embed`] does, but returns a new activation, called `name`.
    pub fn embed_into(&mut self, name: &'static str, table: Matrix, norm: Option<Norm>) -> Var {
        let width = self.matrix_spec(table).parts[0].k;
        let out = self.var(name, Rows::Tokens, &[width]);
        self.record(Embed { table, norm, out });
        out
    }
}

impl Word for Embed {
    fn name(&self) -> &'static str {
        "embed"
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let spec = cx.tape.matrix_spec(self.table);
        let width = spec.parts[0].k;
        let one = |(i, piece): (usize, &crate::tape::MatrixPiece)| Dispatch {
            shader: "rwkv/embed",
            modules: piece.segments[0].region.modules().into_iter().chain([cx.caps.reduce()]).collect(),
            constants: vec![],
            params: vec![
                ("width", width.into()),
                ("stride", cx.tape.var_spec(self.out).stride().into()),
                ("units", spec.parts[0].units().into()),
                ("scales", piece.segments[0].scales.into()),
                ("first_row", piece.segments[0].first_row.into()),
                ("rows", piece.segments[0].rows.into()),
                ("normalise", self.norm.is_some().into()),
                ("eps", self.norm.map_or(LAYER_NORM_EPS, |norm| norm.eps).into()),
            ],
            bindings: vec![
                ("norm", self.norm.map_or(Binding::Nothing, |norm| Binding::Vector(norm.vectors))),
                ("x", Binding::Var(self.out)),
                ("w0", Binding::Piece(self.table, i)),
            ],
            grid: [cx.tokens as u32, 1, 1],
        };
        spec.pieces(cx.caps.max_binding).iter().enumerate().map(one).collect()
    }

    fn twin(&self, host: &mut Host) {
        let mut out = host.take(self.out);
        let stride = host.stride(self.out);
        let width = host.tape.matrix_spec(self.table).parts[0].k;
        let table = host.matrix(self.table).part(0);
        let mut row = vec![0.0; table.k];
        for (t, &token) in host.step.tokens.iter().enumerate() {
            table.row(token as usize, &mut row);
            let x = &mut out[t * stride..][..width];
            match self.norm {
                Some(norm) => norm.apply(host, &row[..width], x),
                None => x.copy_from_slice(&row[..width]),
            }
        }
        host.put(self.out, out);
    }
}

/// Returns cases with and without ln0.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (vocab, width) in [(1, 1), (7, 5), (50, 63), (33, 64), (20, 200)] {
        for normed in [true, false] {
            let mut tape = Tape::new();
            let table = tape.table(MatrixPart::new("e", vocab, width));
            let eps = if width == 64 { 1e-3 } else { LAYER_NORM_EPS };
            let norm = normed.then(|| Norm::layer(tape.vectors(width, vec![vector("g"), vector("b")]), eps));
            tape.embed(table, norm);
            cases.push(Case::new(format!("embed/{vocab}x{width}/norm={normed}"), tape, steps(vocab), 1e-10));
        }
    }
    cases
}
