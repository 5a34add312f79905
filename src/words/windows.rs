//! Lowers products: turns a product into dispatches. On a software adapter, kernels read weights and activations through windows. A window
//! is a uniform binding of 64 KiB. One dispatch computes a block of rows for up to 8 tokens.

use super::rounded::Rounding;
use super::shape::Shape;
use super::stack::{Segment, Stack};
use crate::quant::WEIGHTS_PER_BLOCK;
use crate::tape::{Binding, Block, Dispatch, Lowering, MatrixPiece, Rows, WINDOW_ALIGN, WINDOW_BYTES, WINDOWS};

/// The number of lanes per workgroup in `shaders/linear/windows.wgsl`.
const LANES: usize = 8;
/// The number of matrix rows per lane in `shaders/linear/windows.wgsl`. All rows of a workgroup share one set of column scales.
const ROWS: usize = 8;
const _: () = assert!(LANES * ROWS == WEIGHTS_PER_BLOCK);
/// The number of matrix rows per workgroup. A block has a multiple of `GROUP` rows if its tiles have room for them, so that no lane is idle. The
/// last block of a matrix may have fewer rows.
pub const GROUP: usize = LANES * ROWS;
/// The number of floats in a window, a uniform binding of 64 KiB.
const WINDOW: usize = WINDOW_BYTES / 4;
/// The alignment of a uniform binding, in floats.
pub const ALIGN: usize = WINDOW_ALIGN / 4;

impl Stack {
    /// Returns the dispatches of the product. If the matrix is stored in blocks of rows, the kernels read the matrix and x through windows,
    /// which are uniform bindings of 64 KiB.
    pub fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let spec = cx.tape.matrix_spec(self.matrix);
        let n = cx.n_rows(self.rows);
        if cx.caps.in_blocks(spec) {
            return in_windows(self, cx, n);
        }
        let mut rounding = Rounding::new(self, cx, n);
        let lowered = |(index, piece): (usize, &MatrixPiece)| {
            rounding.lower(index, piece).unwrap_or_else(|| self.lower_piece(cx, &Shape::choose(cx, spec, piece, n), index, piece))
        };
        spec.pieces(cx.caps.max_binding).iter().enumerate().flat_map(lowered).collect()
    }
}

/// Returns the dispatches of a product whose matrix is stored in blocks of rows. `n` is the number of rows of x.
fn in_windows(stack: &Stack, cx: &Lowering<'_>, n: usize) -> Vec<Dispatch> {
    let spec = cx.tape.matrix_spec(stack.matrix);
    let blocks = spec.blocks(cx.caps.max_binding, GROUP);
    let mut dispatches = Vec::new();
    for block in &blocks {
        for segment in stack.segments.iter().filter(|s| s.part == block.part) {
            let tokens = tokens(stack, segment, cx, n);
            dispatches.extend((0..n).step_by(tokens).map(|t0| dispatch(stack, segment, block, cx, t0, tokens)));
        }
    }
    dispatches
}

/// Returns the number of tokens per dispatch: 8, 4, 2 or 1. The number is at most `n` rounded up to a power of two, and the inputs of so many tokens
/// fit one window.
fn tokens(stack: &Stack, segment: &Segment, cx: &Lowering<'_>, n: usize) -> usize {
    let stride = cx.tape.var_spec(stack.x).stride();
    let width = cx.tape.matrix_spec(stack.matrix).parts[segment.part].units() * crate::quant::PAD;
    let fits = |t: usize| segment.x % ALIGN + (t - 1) * stride + width <= WINDOW;
    [8, 4, 2].into_iter().find(|&t| t <= n.next_power_of_two() && fits(t)).unwrap_or(1)
}

/// Returns the dispatch that multiplies one block by the inputs of `tokens` tokens, beginning at token `t0`.
fn dispatch(stack: &Stack, segment: &Segment, block: &Block, cx: &Lowering<'_>, t0: usize, tokens: usize) -> Dispatch {
    let spec = cx.tape.matrix_spec(stack.matrix);
    let part = &spec.parts[block.part];
    let region = spec.region(part, block.rows);
    let (x, y) = (cx.tape.var_spec(stack.x), cx.tape.var_spec(stack.y));
    let x_at = stack.x_at(segment, cx.tape, cx.capacity) + t0 * x.stride();
    let bias = match (segment.bias, stack.bias) {
        (Some(row), Some(vectors)) => (row * cx.tape.vector_spec(vectors).stride() + block.first_row) as u32,
        _ => u32::MAX,
    };
    let [a, b, side_stride] = stack.store.places(cx.tape, cx.capacity);
    let window = |i: usize| {
        let tile = i.min(block.n_tiles - 1);
        (WINDOW_NAMES[i], Binding::Window(stack.matrix, block.buffer, block.at + tile * block.tile_bytes))
    };
    let (tiles, scales) = match block.scale_bytes {
        0 => ("matrix::windows", None),
        _ => ("matrix::windows_scaled", Some(("scales", Binding::Window(stack.matrix, block.buffer, block.scales_at())))),
    };
    let rest = [
        ("x", Binding::VarWindow(stack.x, x_at / ALIGN * ALIGN * 4)),
        ("bias", stack.bias.map_or(Binding::Nothing, Binding::Vector)),
        ("y", Binding::Var(stack.y)),
        ("side", stack.store.side()),
    ];
    Dispatch {
        shader: "linear/windows",
        modules: region.modules().into_iter().filter(|(slot, _)| *slot != "matrix").chain([("matrix", tiles.to_string())]).collect(),
        constants: vec![("QUADS", ROWS as u32 / 4), ("TOKENS", tokens as u32), ("TILES", WINDOWS as u32)],
        params: vec![
            ("t0", t0.into()),
            ("rows", block.rows.into()),
            ("units", part.units().into()),
            ("tile_units", block.tile_units.into()),
            ("x_at", (x_at % ALIGN / 4).into()),
            ("x_stride", (x.stride() / 4).into()),
            ("of_outputs", (stack.rows == Rows::Outputs).into()),
            ("activation", segment.activation.code().into()),
            ("store", stack.store.into()),
            ("bias_at", bias.into()),
            ("y_at", (stack.y_at(segment, cx.tape, cx.capacity) + block.first_row).into()),
            ("y_stride", y.stride().into()),
            ("a_at", (a + block.first_row).into()),
            ("b_at", (b + block.first_row).into()),
            ("side_stride", side_stride.into()),
        ],
        bindings: (0..WINDOWS).map(window).chain(scales).chain(rest).collect(),
        grid: [block.rows.div_ceil(GROUP) as u32, 1, 1],
    }
}

const WINDOW_NAMES: [&str; WINDOWS] = ["w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7"];
