//! The first word of RWKV-6's time mix: norm, token shift, lerps whose weights depend on the token (ddlerp), and a stack of matrices. Source:
//! Eagle and Finch paper, section 4.
//!
//!   x̂ = norm(x)   p = x̂ of the previous token   z = tanh(W1 lerp(x̂, p, m_x))
//!   X_i = lerp(x̂, p, m_i + W2_i z_i)   y_j = activation_j(W_j X_i(j))
//! x and X_i are `[T, C]`, z is `[T, n rank]`, y has one column per matrix W_j. W_j reads the lerp X_i(j). T is the number of tokens, C the
//! width of x, n the number of lerps X_i.

use super::LAYER_NORM_EPS;
use super::norm::Norm;
use super::norm_shift_linear::{Projection, projections_of};
use super::shift_mix::{Inputs, ShiftMix};
use super::stack::{Activation, Segment, Stack, Store, fuses};
use super::testing::{Case, steps};
use crate::quant::PAD;
use crate::tape::{Dispatch, Host, Lowering, MatrixPart, Rows, State, Tape, Var, Vector, Word, vector};

/// The weights of ddlerp, RWKV-6's lerp. A lerp weight has a constant part and a part that depends on the token.
pub struct DdLerp {
    /// The number of channels of z_i, the low-rank vector of one lerp.
    pub rank: usize,
    /// The tensor name of W1, `[C, n rank]` (inputs, outputs). C is the width of x, n the number of lerps. Each lerp has `rank` columns, in the order
    /// of `mixes`.
    pub w1: String,
    /// The tensor name of W2, `[n, rank, C]`: for each of the n lerps, one matrix `[rank, C]` (inputs, outputs). C is the width of x.
    pub w2: String,
    /// The vectors m_i, one per lerp: the parts of the lerp weights that do not depend on the token.
    pub mixes: Vector,
}

struct NormDdLerpLinear {
    mix: ShiftMix,
    /// The products that compute z, X and y, in this order.
    stacks: [Stack; 3],
}

impl Tape {
    /// Records the word `norm_ddlerp_linear`. Returns y, which has one row per token and one column per projection. The vectors of `norm` are weight,
    /// bias and m_x. The field `mix` of a projection is an index in `lerp.mixes`. `shift` is the state with x̂ of the previous token. Its pages must
    /// have two halves, for the reason in [`StateSpec::halves`](crate::tape::StateSpec::halves).
    pub fn norm_ddlerp_linear(
        &mut self,
        name: &'static str,
        x: Var,
        norm: Norm,
        lerp: DdLerp,
        projections: Vec<Projection>,
        shift: State,
    ) -> Var {
        let width = self.vector_spec(norm.vectors).width;
        let n = self.vector_spec(lerp.mixes).parts.len();
        let mix = ShiftMix::new(self, x, norm, shift, Inputs::Kept);

        let z = self.scratch("ddlerp", Rows::Tokens, &vec![lerp.rank; n]);
        // If the rank needs no padding, the columns of z are adjacent, and one matrix writes all of them.
        let slices = if lerp.rank.is_multiple_of(PAD) { 1 } else { n };
        let rows = n * lerp.rank / slices;
        let columns: Vec<usize> = (0..n).map(|i| self.var_spec(z).column(i)).collect();
        let w1 = self.matrix((0..slices).map(|i| MatrixPart::in_out(&lerp.w1, rows, width).slice(i, slices)).collect());
        let into = |i| Segment { y: columns[i], activation: Activation::Tanh, ..Segment::of(i) };
        let segments = (0..slices).map(into).collect();
        let z_of = Stack { matrix: w1, x: mix.mixed, y: z, bias: None, segments, store: Store::Set, rows: Rows::Tokens };

        let from = |i| Segment { x: columns[i], y_plane: i, bias: Some(i), ..Segment::of(i) };
        let segments = (0..n).map(from).collect();
        let w2 = self.matrix((0..n).map(|i| MatrixPart::in_out(&lerp.w2, width, lerp.rank).plane(i, n)).collect());
        let lerped = self.planes("lerped", width, n);
        let store = Store::Lerp { of: mix.mixed, a: mix.x_hat(), b: mix.x_hat() + 1 };
        let lerps = Stack { matrix: w2, x: z, y: lerped, bias: Some(lerp.mixes), segments, store, rows: Rows::Tokens };

        let projected = projections_of(self, name, lerped, projections);
        let y = projected.y;
        self.record(NormDdLerpLinear { mix, stacks: [z_of, lerps, projected] });
        y
    }
}

impl Word for NormDdLerpLinear {
    fn name(&self) -> &'static str {
        "norm_ddlerp_linear"
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        if fuses(cx) {
            let [z, rest @ ..] = &self.stacks;
            let first = z.lower_from(cx, &|keeps| self.mix.input(cx, keeps));
            return first.into_iter().chain(rest.iter().flat_map(|s| s.lower(cx))).collect();
        }
        std::iter::once(self.mix.lower(cx)).chain(self.stacks.iter().flat_map(|s| s.lower(cx))).collect()
    }

    fn twin(&self, host: &mut Host) {
        self.mix.twin(host);
        self.stacks.iter().for_each(|s| s.twin(host));
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (width, rank, rows) in [(1, 1, vec![1]), (24, 3, vec![24, 7, 1]), (64, 8, vec![64; 5]), (130, 32, vec![65, 130, 33, 5])] {
        let mut tape = Tape::new();
        let x = tape.var("x", Rows::Tokens, &[width]);
        let vectors = tape.vectors(width, ["g", "b", "x_x"].map(vector).into());
        let n = rows.len();
        let mixes = tape.vectors(width, (0..n).map(|i| vector(format!("x_{i}"))).collect());
        let lerp = DdLerp { rank, w1: "time_maa_w1".into(), w2: "time_maa_w2".into(), mixes };
        let shift = tape.state("shift".into(), &[width], true);
        let projection = |(i, &r): (usize, &usize)| {
            let activation = Activation::ALL[i % Activation::ALL.len()];
            let bias = (width == 24).then(|| vector(format!("bias{i}")));
            Projection { part: MatrixPart::new(format!("w{i}"), r, width), mix: n - 1 - i, activation, bias }
        };
        let norm = Norm::layer(vectors, if width == 64 { 1e-3 } else { LAYER_NORM_EPS });
        tape.norm_ddlerp_linear("y", x, norm, lerp, rows.iter().enumerate().map(projection).collect(), shift);
        cases.push(Case::new(format!("norm_ddlerp_linear/{width}/{rank}"), tape, steps(2), 1e-10));
    }
    cases
}
