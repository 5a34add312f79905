//! Queries, keys and values of the attention of RWKV-7b. They depend on the token, the token before, and the residual stream x, but not on the
//! position:
//!
//!   q = W_q x                                            [T, D]
//!   k = (K2 K1 x) ⊙ (S_k[token] + W_k x0)                [T, D]
//!   v = tanh(V2 V1 x) ⊙ (S_v[token] + W_v x0)            [T, C]
//!   m ← LN_m(m + (m₋ − m) ⊙ x_m)                         for m of q, k, v; m₋ is m of the previous token, before the norm
//! x and x0, the embedding of each token, are `[T, C]`. T is the number of tokens, C the width of x, D the width of a query and of a key. S_k
//! and S_v are tables with one row per token of the vocabulary. K1 and K2, V1 and V2 are low-rank pairs. The official implementation adds W_k x0
//! and W_v x0 to the tables at load time, and computes keys and values of all tokens again in each step. Here these products are computed for
//! each token, for the reasons in `deep_embed.rs`, and the caches keep the normalised keys and values.

use super::moments;
use super::stack::{Activation, Segment, Stack, Store};
use super::testing::{Case, batches, steps};
use crate::tape::{
    Binding, Dispatch, Host, Lowering, Matrix, MatrixPart, MatrixPiece, Param, Rows, State, Tape, Var, Vector, VectorPart, Word, vector,
};

/// The weights of keys, or of values. `width` is the width of a key, or of a value. C is the width of x, R the rank of the low-rank pair.
pub struct TokenColumn {
    /// The low-rank pair: `[R, C]`, then `[width, R]`.
    pub pair: [MatrixPart; 2],
    /// The table, `[vocab, width]`.
    pub table: MatrixPart,
    /// W_k or W_v, the matrix that multiplies x0, `[width, C]`.
    pub residual: MatrixPart,
}

/// The weights of the word `deep_embed_qkv`.
pub struct DeepEmbedQkv {
    /// The matrix W_q, `[width of a query, width of x]`.
    pub query: MatrixPart,
    pub keys: TokenColumn,
    pub values: TokenColumn,
    /// For each of q, k and v: weight and bias of the layer norm, and the mix x_m.
    pub norms: [[VectorPart; 3]; 3],
    pub eps: f32,
    /// The state with q, k and v of the previous token, before the norm. Its pages must have two halves
    /// ([`StateSpec::halves`](crate::tape::StateSpec::halves)).
    pub shift: State,
}

struct DeepEmbedQkvWord {
    /// The product whose output has the columns q = W_q x, K1 x and V1 x.
    down: Stack,
    /// The product whose output has the columns W_k x0 and W_v x0.
    residual: Stack,
    /// The product whose output has the columns K2 K1 x and tanh(V2 V1 x). The factors S[token] + W x0 then turn these columns into k and v.
    up: Stack,
    /// S_k and S_v.
    tables: [Matrix; 2],
    /// Weight, bias and mix of q, then of k, then of v.
    vectors: Vector,
    eps: f32,
    shift: State,
    /// The normalised columns q, k and v.
    qkv: Var,
}

impl Tape {
    /// Records queries, keys and values of the residual stream `x`. `x0` is the embedding of each token. Returns an activation with the columns
    /// q, k and v.
    pub fn deep_embed_qkv(&mut self, weights: DeepEmbedQkv, x0: Var, x: Var) -> Var {
        let DeepEmbedQkv { query, keys, values, norms, eps, shift } = weights;
        let (size, width) = (query.rows, values.table.k);
        let [k1, k2] = keys.pair;
        let [v1, v2] = values.pair;
        let low = self.internal("deep_qkv_low", Rows::Tokens, &[size, k1.rows, v1.rows]);
        let z = self.internal("deep_qkv_z", Rows::Tokens, &[size, width]);
        let kv = self.internal("deep_qkv_kv", Rows::Tokens, &[size, width]);
        let qkv = self.scratch("deep_qkv", Rows::Tokens, &[size, size, width]);
        let tables = [keys.table, values.table].map(|table| self.table(table));
        let mut stack = |parts: Vec<MatrixPart>, x: Var, y: Var| {
            let segments = (0..parts.len()).map(|i| Segment { y: self.var_spec(y).column(i), ..Segment::of(i) }).collect();
            Stack { matrix: self.matrix(parts), x, y, bias: None, segments, store: Store::Set, rows: Rows::Tokens }
        };
        let down = stack(vec![query, k1, v1], x, low);
        let residual = stack(vec![keys.residual, values.residual], x0, z);
        let mut up = stack(vec![k2, v2], low, kv);
        up.segments[1].activation = Activation::Tanh;
        for (segment, column) in up.segments.iter_mut().zip([1, 2]) {
            segment.x = self.var_spec(low).column(column);
        }
        let widths = [size, size, width];
        let rows = norms.into_iter().zip(widths).flat_map(|(parts, width)| parts.map(|part| part.short(width)));
        let vectors = self.vectors(size.max(width), rows.collect());
        self.record(DeepEmbedQkvWord { down, residual, up, tables, vectors, eps, shift, qkv });
        qkv
    }
}

impl DeepEmbedQkvWord {
    /// Returns the dispatches that multiply k (`i` = 0) or v (`i` = 1) by the factors of each token, S[token] + W x0.
    fn gates(&self, cx: &Lowering<'_>, i: usize) -> Vec<Dispatch> {
        let spec = cx.tape.matrix_spec(self.tables[i]);
        let [y, z] = [self.up.y, self.residual.y].map(|var| cx.tape.var_spec(var));
        let one = |(index, piece): (usize, &MatrixPiece)| Dispatch {
            shader: "rwkv/token_gate",
            modules: piece.segments[0].region.modules().into_iter().chain([cx.caps.reduce()]).collect(),
            constants: vec![],
            params: vec![
                ("y_at", y.column(i).into()),
                ("y_stride", y.stride().into()),
                ("z_at", z.column(i).into()),
                ("z_stride", z.stride().into()),
                ("units", spec.parts[0].units().into()),
                ("scales", piece.segments[0].scales.into()),
                ("first_row", piece.segments[0].first_row.into()),
                ("rows", piece.segments[0].rows.into()),
            ],
            bindings: vec![
                ("z", Binding::Var(self.residual.y)),
                ("y", Binding::Var(self.up.y)),
                ("w0", Binding::Piece(self.tables[i], index)),
            ],
            grid: [cx.tokens as u32, 1, 1],
        };
        spec.pieces(cx.caps.max_binding).iter().enumerate().map(one).collect()
    }

    /// Describes the column q (`i` = 0), k (`i` = 1) or v (`i` = 2). Returns its width, the activation that holds it before the norm, its offset
    /// in a row of that activation, and its offset in a row of the result or of the state.
    fn column(&self, tape: &Tape, i: usize) -> (usize, Var, usize, usize) {
        let spec = tape.var_spec(self.qkv);
        let (var, index) = if i == 0 { (self.down.y, 0) } else { (self.up.y, i - 1) };
        (spec.columns[i], var, tape.var_spec(var).column(index), spec.column(i))
    }

    /// Returns the dispatch of token shift and norms.
    fn norm(&self, cx: &Lowering<'_>) -> Dispatch {
        let stride = |var: Var| cx.tape.var_spec(var).stride();
        let columns = (0..3).map(|i| self.column(cx.tape, i)).map(|(width, _, from, to)| [width as u32, from as u32, to as u32, 0]);
        Dispatch {
            shader: "norm/shift_norm",
            modules: vec![cx.caps.reduce()],
            constants: vec![],
            params: vec![
                ("columns", Param::Rows(columns.collect())),
                ("a_stride", stride(self.down.y).into()),
                ("b_stride", stride(self.up.y).into()),
                ("y_stride", stride(self.qkv).into()),
                ("state_stride", cx.tape.state_spec(self.shift).stride().into()),
                ("stride", cx.tape.vector_spec(self.vectors).stride().into()),
                ("eps", self.eps.into()),
            ],
            bindings: vec![
                ("vectors", Binding::Vector(self.vectors)),
                ("a", Binding::Var(self.down.y)),
                ("b", Binding::Var(self.up.y)),
                ("shift", Binding::State(self.shift)),
                ("y", Binding::Var(self.qkv)),
            ],
            grid: [cx.tokens as u32, 3, 1],
        }
    }

    /// Multiplies k (`i` = 0) or v (`i` = 1) by the factors of each token, S[token] + W x0, on the host.
    fn gate_twin(&self, host: &mut Host, i: usize) {
        let [y, z] = [self.up.y, self.residual.y].map(|var| host.tape.var_spec(var).clone());
        let mut out = host.take(self.up.y);
        let table = host.matrix(self.tables[i]).part(0);
        let mut row = vec![0.0; table.k];
        for (t, &token) in host.step.tokens.iter().enumerate() {
            table.row(token as usize, &mut row);
            let z = &host.var(self.residual.y)[t * z.stride() + z.column(i)..][..z.columns[i]];
            let y = &mut out[t * y.stride() + y.column(i)..][..z.len()];
            y.iter_mut().zip(row.iter().zip(z)).for_each(|(y, (s, z))| *y *= s + z);
        }
        host.put(self.up.y, out);
    }

    /// Computes token shift and norm of q (`i` = 0), k (`i` = 1) or v (`i` = 2), on the host.
    fn norm_twin(&self, host: &mut Host, i: usize) {
        let tape = host.tape.clone();
        let (width, var, from, to) = self.column(&tape, i);
        let (x_stride, stride, page) = (host.stride(var), host.stride(self.qkv), tape.state_spec(self.shift).stride());
        let (mut out, mut shift) = (host.take(self.qkv), host.take_state(self.shift));
        let [g, b, mix] = [0, 1, 2].map(|row| host.vector(self.vectors, 3 * i + row));
        for run in &host.step.runs {
            let mut p = &shift[run.shift_in as usize * page + to..][..width];
            for t in (run.first_row as usize..).take(run.len as usize) {
                let x = &host.var(var)[t * x_stride + from..][..width];
                let mixed: Vec<f32> = (0..width).map(|c| x[c] + (p[c] - x[c]) * mix[c]).collect();
                let (mean, scale) = moments(&mixed, self.eps);
                let y = &mut out[t * stride + to..][..width];
                y.iter_mut().enumerate().for_each(|(c, y)| *y = (mixed[c] - mean) * scale * g[c] + b[c]);
                p = x;
            }
            let last = p.to_vec();
            shift[run.shift_out as usize * page + to..][..width].copy_from_slice(&last);
        }
        host.put(self.qkv, out);
        host.put_state(self.shift, shift);
    }
}

impl Word for DeepEmbedQkvWord {
    fn name(&self) -> &'static str {
        "deep_embed_qkv"
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let products = [&self.down, &self.residual, &self.up].into_iter().flat_map(|stack| stack.lower(cx));
        let gates = (0..2).flat_map(|i| self.gates(cx, i));
        products.chain(gates).chain([self.norm(cx)]).collect()
    }

    fn twin(&self, host: &mut Host) {
        [&self.down, &self.residual, &self.up].into_iter().for_each(|stack| stack.twin(host));
        (0..2).for_each(|i| self.gate_twin(host, i));
        (0..3).for_each(|i| self.norm_twin(host, i));
    }
}

/// Returns cases with keys that are narrower and wider than values.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (vocab, size, width, rank) in [(1, 8, 8, 1), (7, 16, 40, 5), (50, 72, 24, 8), (20, 256, 136, 32)] {
        let mut tape = Tape::new();
        let x = tape.var("x", Rows::Tokens, &[width]);
        let x0 = tape.var("x0", Rows::Tokens, &[width]);
        let column = |name: &str, out: usize| TokenColumn {
            pair: [MatrixPart::in_out(format!("{name}1"), rank, width), MatrixPart::in_out(format!("{name}2"), out, rank)],
            table: MatrixPart::new(format!("{name}_emb.weight"), vocab, out),
            residual: MatrixPart::new(format!("{name}_emb_x.weight"), out, width),
        };
        let weights = DeepEmbedQkv {
            query: MatrixPart::new("qq.weight", size, width),
            keys: column("k", size),
            values: column("v", width),
            norms: ["q", "k", "v"].map(|m| [format!("ln{m}.weight"), format!("ln{m}.bias"), format!("x_{m}")].map(vector)),
            eps: super::LAYER_NORM_EPS,
            shift: tape.state("shift".into(), &[2 * size + width], true),
        };
        tape.deep_embed_qkv(weights, x0, x);
        let steps = if size == 72 { batches() } else { steps(vocab) };
        cases.push(Case::new(format!("deep_embed_qkv/{vocab}/{size}x{width}/{rank}"), tape, steps, 1e-9));
    }
    cases
}
