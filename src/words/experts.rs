//! The feed-forward of the chosen experts:  x += Σ over the chosen experts e of w_e D_e (silu(G_e x̂) ⊙ U_e x̂)
//!
//! x and x̂ are `[T, width]`, G_e and U_e `[F, width]`, D_e `[width, F]`. The word [`Tape::route`] computes x̂, the chosen experts and their weights
//! w_e.
//!
//! A device reads only the chosen experts, because the index of an expert is an input of the kernel. With many tokens, a GPU lists the tokens of each
//! expert and multiplies these tokens together, as the host does.

mod sorted;

use super::route::Routed;
use super::stack::Activation;
use super::testing::{Case, batches, steps};
use crate::quant::product::{Product, Sums, products};
use crate::tape::{
    AllInputSums, Binding, Dispatch, Exchange, Host, Lowering, Matrix, MatrixPart, MatrixPiece, Param, Rows, Tape, Var, Word, row_grid,
};
use sorted::Sorted;

/// The matrices of all experts.
pub struct ExpertMatrices {
    /// G, one matrix per expert.
    pub gate: Vec<MatrixPart>,
    /// U, one matrix per expert.
    pub up: Vec<MatrixPart>,
    /// D, one matrix per expert.
    pub down: Vec<MatrixPart>,
}

struct Experts {
    routed: Routed,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
    /// The activations silu(G x̂) ⊙ U x̂, one column per chosen expert.
    hidden: Var,
    x: Var,
    sorted: Sorted,
}

/// A product, and how it stores the result. The codes match `shaders/experts`.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Gate,
    Up,
    Down,
}

impl Tape {
    /// Records x += the weighted outputs of the experts that `routed` has chosen.
    pub fn experts(&mut self, routed: Routed, of: ExpertMatrices, x: Var) {
        let n_used = self.var_spec(routed.chosen).columns[0];
        let hidden = self.scratch("experts", Rows::Tokens, &vec![of.gate[0].rows; n_used]);
        let sorted = Sorted::new(self, n_used, of.gate.len(), of.down[0].rows);
        let [gate, up, down] = [of.gate, of.up, of.down].map(|parts| self.matrix_of_experts(parts, n_used));
        self.record(Experts { routed, gate, up, down, hidden, x, sorted });
    }
}

impl Experts {
    fn n_used(&self, tape: &Tape) -> usize {
        tape.var_spec(self.routed.chosen).columns[0]
    }

    fn n_experts(&self, tape: &Tape) -> usize {
        tape.matrix_spec(self.gate).parts.len()
    }

    fn matrix(&self, mode: Mode) -> Matrix {
        match mode {
            Mode::Gate => self.gate,
            Mode::Up => self.up,
            Mode::Down => self.down,
        }
    }

    /// Returns the dispatches of one product, one per piece of the matrix.
    fn product(&self, cx: &Lowering<'_>, mode: Mode) -> Vec<Dispatch> {
        let matrix = self.matrix(mode);
        let pieces = cx.tape.matrix_spec(matrix).pieces(cx.caps.max_binding);
        pieces.iter().enumerate().map(|(index, piece)| self.dispatch(cx, mode, matrix, index, piece)).collect()
    }

    fn dispatch(&self, cx: &Lowering<'_>, mode: Mode, matrix: Matrix, index: usize, piece: &MatrixPiece) -> Dispatch {
        let (spec, n_used) = (cx.tape.matrix_spec(matrix), self.n_used(cx.tape));
        let part = &spec.parts[0];
        let [chosen, hidden, x] = [self.routed.chosen, self.hidden, self.x].map(|v| cx.tape.var_spec(v));
        let slot = hidden.column_step();
        let ((from, x_slot), (to, y_slot), slots) = match mode {
            Mode::Down => ((self.hidden, slot), (self.x, 0), n_used),
            _ => ((self.routed.x, 0), (self.hidden, slot), 1),
        };
        let [tokens, folds, _] = row_grid(cx.tokens);
        let y_stride = if mode == Mode::Down { x.stride() } else { hidden.stride() };
        Dispatch {
            shader: "experts/product",
            modules: std::iter::once(cx.caps.reduce()).chain(cx.caps.product_modules(&piece.segments[0].region, 4)).collect(),
            constants: vec![("EXPERTS", spec.parts.len() as u32), ("MODE", mode as u32), ("TILES", 1)],
            params: vec![
                ("slots", slots.into()),
                ("groups", (n_used / slots).into()),
                ("rows", part.rows.into()),
                ("units", part.units().into()),
                ("chosen_stride", chosen.stride().into()),
                ("weights", chosen.column(1).into()),
                ("x_stride", (cx.tape.var_spec(from).stride() / 4).into()),
                ("x_slot", (x_slot / 4).into()),
                ("y_stride", y_stride.into()),
                ("y_slot", y_slot.into()),
                ("experts", places(piece, spec.parts.len())),
            ],
            bindings: vec![
                ("x", Binding::Var(from)),
                ("chosen", Binding::Var(self.routed.chosen)),
                ("y", Binding::Var(to)),
                ("w0", Binding::Piece(matrix, index)),
            ],
            grid: [tokens, part.rows.div_ceil(4) as u32, (n_used / slots) as u32 * folds],
        }
    }

    /// Returns each expert's tokens, as pairs: a token, and the index of the expert among the token's experts.
    fn by_expert(&self, host: &Host) -> Vec<Vec<(usize, usize)>> {
        let n_used = self.n_used(&host.tape);
        let mut tokens = vec![Vec::new(); self.n_experts(&host.tape)];
        for (t, row) in host.var(self.routed.chosen).chunks_exact(host.stride(self.routed.chosen)).enumerate().take(host.step.tokens.len())
        {
            row[..n_used].iter().enumerate().for_each(|(j, e)| tokens[*e as usize].push((t, j)));
        }
        tokens
    }

    /// Computes one product per matrix and expert, for the experts that have tokens. `input` returns the input of a pair of `tokens`.
    fn sums<'a>(
        &self,
        host: &'a Host,
        matrices: &[Matrix],
        tokens: &[Vec<(usize, usize)>],
        input: impl Fn(usize, usize) -> &'a [f32],
    ) -> Vec<Sums> {
        let product = |&matrix: &Matrix, e: usize| {
            let weights = host.matrix(matrix).part(e);
            let x = tokens[e].iter().map(|&(t, j)| input(t, j)).collect();
            let rounded = host.tape.activations.are_rounded(weights.format);
            Product { weights, rows: host.tape.matrix_spec(matrix).parts[e].rows, x, rounded }
        };
        let used = (0..tokens.len()).filter(|&e| !tokens[e].is_empty());
        products(&used.flat_map(|e| matrices.iter().map(move |matrix| product(matrix, e))).collect::<Vec<_>>())
    }
}

/// Adds the inputs of a matrix's experts to `sums`, unless `sums` is `None`.
fn watch<'a>(sums: &mut Option<AllInputSums>, matrix: Matrix, tokens: &[Vec<(usize, usize)>], input: impl Fn(usize, usize) -> &'a [f32]) {
    if let Some(sums) = sums {
        for (e, tokens) in tokens.iter().enumerate() {
            sums.add(matrix, e, tokens.iter().map(|&(t, j)| input(t, j)));
        }
    }
}

/// Returns the parameter `experts`. For each expert: the first words of its codes and of its scales in the piece, its first row there, and
/// the number of rows there.
fn places(piece: &MatrixPiece, n_experts: usize) -> Param {
    let mut experts = vec![[0; 4]; n_experts];
    for s in &piece.segments {
        experts[s.part] = [s.codes, s.scales, s.first_row, s.rows].map(|n| n as u32);
    }
    Param::Rows(experts)
}

impl Word for Experts {
    fn name(&self) -> &'static str {
        "experts"
    }

    fn exchange(&self) -> Option<Exchange> {
        Some(Exchange { reads: vec![self.routed.x, self.routed.chosen, self.x], writes: vec![self.x] })
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        if self.sorts(cx) {
            return self.lower_sorted(cx);
        }
        [Mode::Gate, Mode::Up, Mode::Down].into_iter().flat_map(|mode| self.product(cx, mode)).collect()
    }

    fn twin(&self, host: &mut Host) {
        let (tape, n_used) = (host.tape.clone(), self.n_used(&host.tape));
        let parts = &tape.matrix_spec(self.gate).parts[0];
        let (width, ffn) = (parts.k, parts.rows);
        let tokens = self.by_expert(host);
        let pairs = || tokens.iter().filter(|of| !of.is_empty());
        let (x_stride, stride) = (host.stride(self.routed.x), host.stride(self.hidden));
        let column = |j: usize| tape.var_spec(self.hidden).column(j);
        let mut watched = host.sums.take();

        let mut hidden = host.take(self.hidden);
        let input = |t: usize, _| &host.var(self.routed.x)[t * x_stride..][..width];
        [self.gate, self.up].into_iter().for_each(|matrix| watch(&mut watched, matrix, &tokens, input));
        let sums = self.sums(host, &[self.gate, self.up], &tokens, input);
        for (sums, of) in sums.chunks_exact(2).zip(pairs()) {
            for (i, &(t, j)) in of.iter().enumerate() {
                let row = hidden[t * stride + column(j)..][..ffn].iter_mut();
                let [gate, up] = [0, 1].map(|s: usize| sums[s].of(i).flatten());
                row.zip(gate.zip(up)).for_each(|(h, (g, u))| *h = Activation::Silu.apply(*g) * u);
            }
        }
        host.put(self.hidden, hidden);

        let input = |t: usize, j| &host.var(self.hidden)[t * stride + column(j)..][..ffn];
        watch(&mut watched, self.down, &tokens, input);
        let sums = self.sums(host, &[self.down], &tokens, input);
        // Tokens add their experts in the order of the choice, so that a token's result does not depend on the other tokens.
        let n = host.step.tokens.len();
        let mut places = vec![(0, 0); n * n_used];
        for (expert, of) in pairs().enumerate() {
            of.iter().enumerate().for_each(|(i, &(t, j))| places[t * n_used + j] = (expert, i));
        }
        let (chosen, chosen_stride) = (host.take(self.routed.chosen), host.stride(self.routed.chosen));
        let weights = tape.var_spec(self.routed.chosen).column(1);
        let (mut x, x_stride) = (host.take(self.x), host.stride(self.x));
        for (at, (expert, i)) in places.into_iter().enumerate() {
            let (t, j) = (at / n_used, at % n_used);
            let weight = chosen[t * chosen_stride + weights + j];
            x[t * x_stride..].iter_mut().zip(sums[expert].of(i).flatten()).for_each(|(x, d)| *x += weight * d);
        }
        host.put(self.x, x);
        host.put(self.routed.chosen, chosen);
        host.sums = watched;
    }
}

pub fn cases() -> Vec<Case> {
    use super::{Norm, Router};
    use crate::tape::vector;
    let mut cases = Vec::new();
    // The number of experts is a constant of the shader. Few different numbers keep the number of shaders small.
    for (n_experts, n_used, width, ffn) in [(8, 1, 8, 8), (8, 2, 42, 26), (8, 8, 24, 16), (64, 4, 64, 40), (8, 3, 136, 72), (64, 6, 16, 33)]
    {
        let mut tape = Tape::new();
        let x = tape.var("x", Rows::Tokens, &[width]);
        let norm = Norm::rms(tape.vectors(width, vec![vector("g")]), 1e-5);
        let of = Router { n_experts, n_used, n_groups: 1, n_used_groups: 1, scale: 1.8, normalises: true };
        let routed = tape.route(x, norm, MatrixPart::new("router", n_experts, width), vector("bias"), of);
        let parts = |name: &str, rows, k| (0..n_experts).map(|e| MatrixPart::new(format!("{name}{e}"), rows, k)).collect();
        tape.experts(routed, ExpertMatrices { gate: parts("g", ffn, width), up: parts("u", ffn, width), down: parts("d", width, ffn) }, x);
        let steps = if n_experts == 64 { batches() } else { steps(2) };
        cases.push(Case::new(format!("experts/{n_experts}/{n_used}/{width}x{ffn}"), tape, steps, 1e-9));
    }
    cases
}
