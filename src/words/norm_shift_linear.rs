//! The first word of a time mix or channel mix: norm, token shift, several lerps, and a stack of matrices. Each lerp has its own vector of lerp
//! weights, mix_m. Each matrix reads one lerp.
//!
//!   x̂ = norm(x)   X_m = lerp(x̂, x̂ of the previous token, mix_m)   y_i = activation_i(W_i X_m(i))
//! x and X_m are `[T, C]`, W_i is `[rows_i, C]`, y has one column per matrix. W_i reads the lerp X_m(i). T is the number of tokens, C the width
//! of x.

use super::LAYER_NORM_EPS;
use super::norm::Norm;
use super::shift_mix::{Inputs, ShiftMix};
use super::stack::{Activation, Segment, Stack, Store, fuses};
use super::testing::{Case, steps};
use crate::tape::{Dispatch, Host, Lowering, MatrixPart, Rows, State, Tape, Var, VectorPart, Word, optional_vector, vector};

/// One matrix of the stack, its input and its activation.
pub struct Projection {
    /// The matrix W_i, `[rows, width of x]`.
    pub part: MatrixPart,
    /// The index m of the lerp whose output is this matrix's input.
    pub mix: usize,
    /// The function that is applied to the product.
    pub activation: Activation,
    /// The vector that is added to the product, `[rows]`, or `None`.
    pub bias: Option<VectorPart>,
}

struct NormShiftLinear {
    mix: ShiftMix,
    stack: Stack,
}

impl Tape {
    /// Records the word `norm_shift_linear`. Returns y, which has one row per token and one column per projection. The vectors of `norm` are weight
    /// and bias, then one vector per mix. In an RMS norm the bias must be zero. A mix is a vector of lerp weights: 0 selects the current token, 1 the
    /// previous token. `shift` is the state with x̂ of the previous token. Its pages must have two halves
    /// ([`StateSpec::halves`](crate::tape::StateSpec::halves)).
    pub fn norm_shift_linear(&mut self, name: &'static str, x: Var, norm: Norm, projections: Vec<Projection>, shift: State) -> Var {
        let mix = ShiftMix::new(self, x, norm, shift, Inputs::Dropped);
        let stack = projections_of(self, name, mix.mixed, projections);
        let y = stack.y;
        self.record(NormShiftLinear { mix, stack });
        y
    }
}

/// Returns a stack of projections. Each projection reads plane `mix` of `x`, where `mix` is the projection's field. Each projection writes its own
/// column of a new scratch activation called `name`.
pub fn projections_of(tape: &mut Tape, name: &'static str, x: Var, projections: Vec<Projection>) -> Stack {
    let columns: Vec<usize> = projections.iter().map(|p| p.part.rows).collect();
    let y = tape.scratch(name, Rows::Tokens, &columns);
    let mut biases = Vec::new();
    let mut segments = Vec::new();
    for (i, p) in projections.iter().enumerate() {
        let bias = p.bias.clone().map(|bias| {
            biases.push(bias.short(columns[i]));
            biases.len() - 1
        });
        segments.push(Segment { plane: p.mix, y: tape.var_spec(y).column(i), activation: p.activation, bias, ..Segment::of(i) });
    }
    let width = columns.into_iter().max().unwrap_or(0);
    let bias = (!biases.is_empty()).then(|| tape.vectors(width, biases));
    let matrix = tape.matrix(projections.into_iter().map(|p| p.part).collect());
    Stack { matrix, x, y, bias, segments, store: Store::Set, rows: Rows::Tokens }
}

impl Word for NormShiftLinear {
    fn name(&self) -> &'static str {
        "norm_shift_linear"
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        if fuses(cx) {
            return self.stack.lower_from(cx, &|keeps| self.mix.input(cx, keeps));
        }
        std::iter::once(self.mix.lower(cx)).chain(self.stack.lower(cx)).collect()
    }

    fn twin(&self, host: &mut Host) {
        self.mix.twin(host);
        self.stack.twin(host);
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let layer = [(1, vec![1]), (7, vec![3, 1]), (64, vec![65, 64, 63]), (60, vec![8; 11]), (130, vec![7, 130, 33, 5, 64, 31, 1])];
    let rms = [(7, vec![3, 1]), (64, vec![65, 64, 63])];
    for (width, rows, is_rms) in
        layer.map(|(width, rows)| (width, rows, false)).into_iter().chain(rms.map(|(width, rows)| (width, rows, true)))
    {
        let mut tape = Tape::new();
        let x = tape.var("x", Rows::Tokens, &[width]);
        let n_mixes = rows.len().min(6);
        let mixes = (0..n_mixes).map(|i| optional_vector(format!("mix{i}")));
        let bias = if is_rms { vector("b").map(|_| 0.0) } else { vector("b") };
        let vectors = tape.vectors(width, [vector("g"), bias].into_iter().chain(mixes).collect());
        let shift = tape.state("shift".into(), &[width], true);
        let projection = |(i, &n): (usize, &usize)| Projection {
            part: if i % 2 == 0 { MatrixPart::new(format!("w{i}"), n, width) } else { MatrixPart::in_out(format!("w{i}"), n, width) },
            mix: i % n_mixes,
            activation: Activation::ALL[i % Activation::ALL.len()],
            bias: (is_rms && i % 2 == 0).then(|| vector(format!("bias{i}"))),
        };
        let projections = rows.iter().enumerate().map(projection).collect();
        let norm = if is_rms { Norm::rms(vectors, 1e-6) } else { Norm::layer(vectors, if width == 64 { 1e-3 } else { LAYER_NORM_EPS }) };
        tape.norm_shift_linear("y", x, norm, projections, shift);
        let name = if is_rms { "/rms" } else { "" };
        cases.push(Case::new(format!("norm_shift_linear/{width}/{}{name}", rows.len()), tape, steps(2), 1e-10));
    }
    cases
}
