//! The products of experts for many tokens on GPUs. experts/sort lists the entries of the step by expert: an entry is a token and one of its experts.
//! Then the kernels of [`Stack`](super::super::stack::Stack) multiply the entries of an expert together. A workgroup computes one tile, some rows of
//! some entries, and reads the rows once.

use super::{Experts, Mode, places};
use crate::tape::{Binding, Class, Dispatch, Lowering, MatrixPiece, Rows, Tape, Var, row_grid};
use crate::words::shape::Shape;

/// The least number of entries per expert in the largest step of a plan: with fewer, hardly any expert has two tokens.
const LEAST: usize = 2;

/// Scratch that only a device uses.
pub struct Sorted {
    /// The entries by expert.
    entries: Var,
    /// For each expert, the indices of its first entry and of its first tile. The ends of all entries and of all tiles follow.
    starts: Var,
    /// The outputs D_e h. One column per chosen expert.
    outputs: Var,
}

impl Sorted {
    pub fn new(tape: &mut Tape, n_used: usize, n_experts: usize, width: usize) -> Sorted {
        Sorted {
            entries: tape.device_scratch("expert_entries", Rows::Tokens, &[n_used]),
            starts: tape.device_scratch("expert_starts", Rows::Fixed(1), &[2 * (n_experts + 1)]),
            outputs: tape.device_scratch("expert_outputs", Rows::Tokens, &vec![width; n_used]),
        }
    }
}

impl Experts {
    /// Returns whether the kernels for many tokens compute the step.
    pub fn sorts(&self, cx: &Lowering<'_>) -> bool {
        let has_enough = cx.tokens * self.n_used(cx.tape) >= LEAST * self.n_experts(cx.tape);
        cx.caps.class == Class::Groups && !cx.caps.batch_invariant && has_enough
    }

    /// Returns the dispatches for many tokens.
    pub fn lower_sorted(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let per_expert = cx.tokens * self.n_used(cx.tape) / self.n_experts(cx.tape);
        let mut dispatches = Vec::new();
        let mut sorted_for = 0;
        for mode in [Mode::Gate, Mode::Up, Mode::Down] {
            let spec = cx.tape.matrix_spec(self.matrix(mode));
            for (index, piece) in spec.pieces(cx.caps.max_binding).iter().enumerate() {
                let shape = Shape::choose(cx, spec, piece, per_expert);
                if sorted_for != shape.tokens {
                    dispatches.push(self.sort(cx, shape.tokens));
                    sorted_for = shape.tokens;
                }
                dispatches.push(self.tiles(cx, mode, &shape, index, piece));
            }
        }
        dispatches.push(self.sum(cx));
        dispatches
    }

    /// Returns the dispatch that lists the entries by expert, for tiles of `tokens` entries.
    fn sort(&self, cx: &Lowering<'_>, tokens: usize) -> Dispatch {
        Dispatch {
            shader: "experts/sort",
            modules: vec![],
            constants: vec![("EXPERTS", self.n_experts(cx.tape) as u32), ("TILE_TOKENS", tokens as u32)],
            params: vec![("used", self.n_used(cx.tape).into()), ("chosen_stride", cx.tape.var_spec(self.routed.chosen).stride().into())],
            bindings: vec![
                ("chosen", Binding::Var(self.routed.chosen)),
                ("entries", Binding::Var(self.sorted.entries)),
                ("starts", Binding::Var(self.sorted.starts)),
            ],
            grid: [1, 1, 1],
        }
    }

    /// Returns the dispatch that multiplies a piece by the inputs of its experts' entries.
    fn tiles(&self, cx: &Lowering<'_>, mode: Mode, shape: &Shape, index: usize, piece: &MatrixPiece) -> Dispatch {
        let matrix = self.matrix(mode);
        let (spec, n_used) = (cx.tape.matrix_spec(matrix), self.n_used(cx.tape));
        let (part, n_experts) = (&spec.parts[0], spec.parts.len());
        let (from, to) = match mode {
            Mode::Down => (self.hidden, self.sorted.outputs),
            _ => (self.routed.x, self.hidden),
        };
        let [x, y] = [from, to].map(|v| cx.tape.var_spec(v));
        let n_entries = cx.tokens * n_used;
        // Σ ⌈n_e / tokens⌉ is at most Σ n_e / tokens and one more tile per expert that has entries.
        let tiles = n_entries / shape.tokens + n_experts.min(n_entries);
        let rows = piece.segments.iter().map(|s| s.rows).max().unwrap_or(0);
        Dispatch {
            shader: shape.shader,
            modules: [("stack", "experts::stack".to_string()), ("input", "experts::input".to_string()), cx.caps.reduce()]
                .into_iter()
                .chain(cx.caps.product_modules(&piece.segments[0].region, shape.block_rows + shape.tokens))
                .chain(shape.modules.iter().map(|&(slot, module)| (slot, module.to_string())))
                .collect(),
            constants: shape.constants.iter().copied().chain([("EXPERTS", n_experts as u32), ("MODE", mode as u32)]).collect(),
            params: vec![
                ("used", n_used.into()),
                ("units", part.units().into()),
                ("k", part.k.into()),
                ("x_stride", (x.stride() / 4).into()),
                ("x_slot", (x.column_step() / 4).into()),
                ("y_stride", y.stride().into()),
                ("y_slot", y.column_step().into()),
                ("experts", places(piece, n_experts)),
            ],
            bindings: vec![
                ("x", Binding::Var(from)),
                ("entries", Binding::Var(self.sorted.entries)),
                ("starts", Binding::Var(self.sorted.starts)),
                ("y", Binding::Var(to)),
                ("w0", Binding::Piece(matrix, index)),
            ],
            grid: [rows.div_ceil(shape.block_rows) as u32, 1, tiles as u32],
        }
    }

    /// Returns the dispatch that adds the weighted outputs of the experts to x.
    fn sum(&self, cx: &Lowering<'_>) -> Dispatch {
        let [chosen, outputs, x] = [self.routed.chosen, self.sorted.outputs, self.x].map(|v| cx.tape.var_spec(v));
        let n_used = self.n_used(cx.tape);
        Dispatch {
            shader: "experts/sum",
            modules: vec![],
            constants: vec![],
            params: vec![
                ("used", n_used.into()),
                ("width", outputs.columns[0].div_ceil(4).into()),
                ("chosen_stride", chosen.stride().into()),
                ("weights", chosen.column(1).into()),
                ("y_stride", (outputs.stride() / 4).into()),
                ("y_slot", (outputs.column_step() / 4).into()),
                ("x_stride", (x.stride() / 4).into()),
            ],
            bindings: vec![
                ("y", Binding::Var(self.sorted.outputs)),
                ("chosen", Binding::Var(self.routed.chosen)),
                ("x", Binding::Var(self.x)),
            ],
            grid: row_grid(cx.tokens),
        }
    }
}
