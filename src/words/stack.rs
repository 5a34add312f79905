//! Products of stacked matrices:  `y[t] = store(activation(bias + W x[t]))`, segment by segment. Most words contain such a product.
//!
//! A stack is one matrix in memory, made of several parts. A segment is one part with its own input and output.
//!
//! This file chooses a kernel by the adapter's kernel family and the number of tokens. It cuts the stack into pieces that each fit a binding.

use super::shape::Shape;
use crate::quant::Scaling;
use crate::quant::product::{Product, Sums, TASK, products};
use crate::tape::{Binding, Class, Dispatch, FUSED, Host, Lowering, Matrix, MatrixPiece, Param, PieceSegment, Rows, Tape, Var, Vector};
use rayon::prelude::*;

/// The function that a product applies to each element z of bias + W x. σ is the sigmoid. The codes match `shaders/lib/activation.wgsl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    None,
    Tanh,
    Sigmoid,
    /// max(z, 0)²
    ReluSquared,
    /// RWKV-7's decay, exp(−e^(−1/2) σ(z)).
    Decay7,
    /// z σ(z)
    Silu,
    /// RWKV-6's decay, exp(−exp(z)).
    Decay6,
}

impl Activation {
    /// All activations, for tests.
    pub const ALL: [Activation; 7] = [
        Activation::None,
        Activation::Tanh,
        Activation::Sigmoid,
        Activation::ReluSquared,
        Activation::Decay7,
        Activation::Silu,
        Activation::Decay6,
    ];

    /// Returns the number that selects the function in shaders.
    pub(super) fn code(self) -> u32 {
        self as u32
    }

    /// Applies the function on the host.
    pub fn apply(self, z: f32) -> f32 {
        match self {
            Activation::None => z,
            Activation::Tanh => z.tanh(),
            Activation::Sigmoid => sigmoid(z),
            Activation::ReluSquared => z.max(0.0) * z.max(0.0),
            Activation::Decay7 => (-0.60653066 * sigmoid(z)).exp(),
            Activation::Silu => z * sigmoid(z),
            Activation::Decay6 => (-z.exp()).exp(),
        }
    }
}

impl Activation {
    /// Applies the function to a row on the host.
    fn apply_to(self, z: &mut [f32]) {
        match self {
            Activation::None => {}
            // This arm calls no function per element, so the compiler vectorises its loop.
            Activation::ReluSquared => z.iter_mut().for_each(|z| *z = z.max(0.0) * z.max(0.0)),
            _ => z.iter_mut().for_each(|z| *z = self.apply(*z)),
        }
    }
}

fn sigmoid(z: f32) -> f32 {
    1.0 / (1.0 + (-z).exp())
}

/// One part of a stacked matrix, and the places of its input in x and of its output in y.
#[derive(Debug, Clone)]
pub struct Segment {
    /// The index of the part in the matrix.
    pub part: usize,
    /// The index of the plane of x that the segment reads. x is `[planes, rows, stride]`.
    pub plane: usize,
    /// The offset of the segment's input in a row of x, in floats.
    pub x: usize,
    /// The offset of the segment's output in a row of y, in floats.
    pub y: usize,
    /// The index of the plane of y that the segment writes. y is `[planes, rows, stride]`.
    pub y_plane: usize,
    /// The row of [`Stack::bias`] that is added, or `None` if the segment has no bias.
    pub bias: Option<usize>,
    pub activation: Activation,
}

impl Segment {
    /// Returns a segment that reads the first floats of x and writes the first floats of y, without bias and activation.
    pub fn of(part: usize) -> Segment {
        Segment { part, plane: 0, x: 0, y: 0, y_plane: 0, bias: None, activation: Activation::None }
    }
}

/// How the result of a product, z = activation(bias + W x), changes y. The codes match `shaders/linear/epilogue.wgsl`.
#[derive(Debug, Clone, Copy)]
pub enum Store {
    /// y = z
    Set,
    /// y += z
    Add,
    /// y += g ⊙ z. g is column `column` of the activation `a`.
    AddGated { a: Var, column: usize },
    /// y = A + (B − A) ⊙ z. A and B are the planes `a` and `b` of the activation `of`.
    Lerp { of: Var, a: usize, b: usize },
    /// y = y ⊙ z
    Gate,
}

impl Store {
    fn code(self) -> u32 {
        match self {
            Store::Set => 0,
            Store::Add => 1,
            Store::AddGated { .. } => 2,
            Store::Lerp { .. } => 3,
            Store::Gate => 4,
        }
    }

    /// Changes the first elements of `y` by `z`. `sides` has the operands a and b that the store reads besides y, or `None` if the store reads only
    /// y. [`Store::AddGated`] ignores b.
    fn apply_to(self, y: &mut [f32], sides: Option<(&[f32], &[f32])>, z: &[f32]) {
        let (a, b) = sides.unwrap_or_default();
        let y = y.iter_mut().zip(z);
        match self {
            Store::Set => y.for_each(|(y, z)| *y = *z),
            Store::Add => y.for_each(|(y, z)| *y += z),
            Store::AddGated { .. } => y.zip(a).for_each(|((y, z), a)| *y += a * z),
            Store::Lerp { .. } => y.zip(a).zip(b).for_each(|(((y, z), a), b)| *y = a + (b - a) * z),
            Store::Gate => y.for_each(|(y, z)| *y *= z),
        }
    }

    fn var(self) -> Option<Var> {
        match self {
            Store::Set | Store::Add | Store::Gate => None,
            Store::AddGated { a, .. } => Some(a),
            Store::Lerp { of, .. } => Some(of),
        }
    }

    /// Returns the binding of the activation that the store reads besides y, or `Nothing` if the store reads only y.
    pub(super) fn side(self) -> Binding {
        self.var().map_or(Binding::Nothing, Binding::Var)
    }

    /// Describes the operands a and b that the store reads besides y. Returns three counts of floats: the offset of a in row 0, the offset
    /// of b in row 0, and the stride of a row. Unused values are 0.
    pub(super) fn places(self, tape: &Tape, capacity: usize) -> [usize; 3] {
        let stride = self.var().map_or(0, |v| tape.var_spec(v).stride());
        match self {
            Store::Set | Store::Add | Store::Gate => [0; 3],
            Store::AddGated { a, column } => [tape.var_spec(a).column(column), 0, stride],
            Store::Lerp { a, b, .. } => [a * capacity * stride, b * capacity * stride, stride],
        }
    }
}

impl From<Store> for Param {
    fn from(store: Store) -> Param {
        Param::U32(store.code())
    }
}

/// A product `y[t] = store(activation(bias + W x[t]))` for each row t. W consists of parts. A [`Segment`] is one part with its own input
/// and output.
pub struct Stack {
    pub matrix: Matrix,
    pub x: Var,
    pub y: Var,
    /// The packed bias vectors, or `None` if no segment has a bias.
    pub bias: Option<Vector>,
    pub segments: Vec<Segment>,
    pub store: Store,
    /// The meaning of one row of x and y: a token, or a requested output.
    pub rows: Rows,
}

/// The largest number of segments in one dispatch. The array `segments` in `shaders/linear/stack.wgsl` has three entries per segment, 96
/// in all.
pub(super) const MAX_SEGMENTS: usize = 32;
/// With fewer rows of y, the host uses one thread.
const ROWS_ALONE: usize = 8;
/// The code that provides a product's input: a shader module with its parameters and bindings. The module `linear::input` reads rows of x. Other
/// modules compute the input in every workgroup, which saves a dispatch.
pub struct ProductInput {
    /// The WGSL module that fills the shader slot `input`.
    pub module: &'static str,
    /// The fields of the struct `Input` in the shader module, with their values.
    pub params: Vec<(&'static str, Param)>,
    pub bindings: Vec<(&'static str, Binding)>,
}

/// Returns `true` if the products of this step compute their inputs in their own dispatches (fused). On a GPU and for at most [`FUSED`]
/// tokens, one more dispatch costs more than computing an input again in every workgroup. If results must not depend on the batch
/// (`batch_invariant`), returns `false`.
pub fn fuses(cx: &Lowering<'_>) -> bool {
    cx.caps.class == Class::Groups && cx.tokens <= FUSED && cx.outputs <= FUSED && !cx.caps.batch_invariant
}

impl Stack {
    /// Returns the dispatches that multiply `pieces` by the rows of x. `shape` returns the kernel for a piece.
    pub(super) fn lower_pieces(&self, cx: &Lowering<'_>, shape: &dyn Fn(&MatrixPiece) -> Shape, pieces: &[MatrixPiece]) -> Vec<Dispatch> {
        pieces.iter().enumerate().flat_map(|(index, piece)| self.lower_piece(cx, &shape(piece), index, piece)).collect()
    }

    /// Returns the dispatches that multiply one piece by the rows of x, one dispatch per group of up to [`MAX_SEGMENTS`] segments. `index` is the
    /// piece's index.
    pub(super) fn lower_piece(&self, cx: &Lowering<'_>, shape: &Shape, index: usize, piece: &MatrixPiece) -> Vec<Dispatch> {
        let stride = cx.tape.var_spec(self.x).stride() / 4;
        let x_at = |s: &Segment| self.x_at(s, cx.tape, cx.capacity) / 4;
        let dispatch = |group: &[_]| {
            let input = ProductInput {
                module: "linear::input",
                params: vec![("x_stride", stride.into())],
                bindings: vec![("x", Binding::Var(self.x))],
            };
            self.dispatch(cx, shape, index, group, input, &x_at)
        };
        self.used(piece).chunks(MAX_SEGMENTS).map(dispatch).collect()
    }

    /// Returns the dispatches of a product whose workgroups compute the input themselves. `input(is_first)` returns the shader module of the
    /// input. `is_first` is `true` for the first dispatch, the only one that also stores the computed input.
    pub fn lower_from(&self, cx: &Lowering<'_>, input: &dyn Fn(bool) -> ProductInput) -> Vec<Dispatch> {
        let pieces = cx.tape.matrix_spec(self.matrix).pieces(cx.caps.max_binding);
        let (n, tuning) = (cx.n_rows(self.rows), &cx.caps.tuning);
        let shape = |piece: &MatrixPiece| {
            // A lane also keeps the scales and offsets of rows and columns, or the scales and minima of blocks, so a workgroup has fewer rows.
            let keeps_more = piece.format.scaling() == Scaling::Affine || piece.format.file_blocks().is_some();
            let few_rows = tuning.few_registers && n > 1 && keeps_more;
            Shape::matvec(cx.caps, if few_rows { 4 } else { tuning.input_rows }, n, n == 1 && tuning.early_weights)
        };
        let mut dispatches = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            let shape = shape(piece);
            for group in self.used(piece).chunks(MAX_SEGMENTS) {
                let input = input(dispatches.is_empty());
                dispatches.push(self.dispatch(cx, &shape, index, group, input, &|s| s.plane));
            }
        }
        dispatches
    }

    /// Returns each segment that uses `piece`, paired with the rows of `piece` that it uses. Several segments may use the same rows.
    pub(super) fn used<'p>(&self, piece: &'p MatrixPiece) -> Vec<(&Segment, &'p PieceSegment)> {
        piece.segments.iter().flat_map(|p| self.segments.iter().filter(|s| s.part == p.part).map(move |s| (s, p))).collect()
    }

    /// Returns the dispatch that multiplies some segments. For a segment, `x_at` returns the second argument of the function `begin` in the input's
    /// shader module.
    pub(super) fn dispatch(
        &self,
        cx: &Lowering<'_>,
        shape: &Shape,
        piece: usize,
        group: &[(&Segment, &PieceSegment)],
        input: ProductInput,
        x_at: &dyn Fn(&Segment) -> usize,
    ) -> Dispatch {
        let spec = cx.tape.matrix_spec(self.matrix);
        let bias_stride = self.bias.map_or(0, |b| cx.tape.vector_spec(b).stride());
        let [a, b, side_stride] = self.store.places(cx.tape, cx.capacity);
        let mut blocks = 0;
        let mut rows = Vec::new();
        for (segment, p) in group {
            let bias = segment.bias.map_or(u32::MAX, |row| (row * bias_stride + p.first_row) as u32);
            rows.push([blocks as u32, p.rows as u32, spec.parts[p.part].units() as u32, p.codes as u32]);
            rows.push([
                x_at(segment) as u32,
                (self.y_at(segment, cx.tape, cx.capacity) + p.first_row) as u32,
                bias,
                segment.activation.code(),
            ]);
            rows.push([(a + p.first_row) as u32, (b + p.first_row) as u32, spec.parts[p.part].k as u32, p.scales as u32]);
            blocks += p.rows.div_ceil(shape.block_rows);
        }
        rows.resize(3 * MAX_SEGMENTS, [0; 4]);
        let fold = blocks.clamp(1, 32768);
        Dispatch {
            shader: shape.shader,
            modules: [("stack", "linear::stack".to_string()), ("input", input.module.to_string()), cx.caps.reduce()]
                .into_iter()
                .chain(cx.caps.product_modules(&group[0].1.region, shape.block_rows + shape.tokens))
                .chain(shape.modules.iter().map(|&(slot, module)| (slot, module.to_string())))
                .collect(),
            constants: shape.constants.clone(),
            params: vec![
                ("n_segments", group.len().into()),
                ("y_stride", cx.tape.var_spec(self.y).stride().into()),
                ("of_outputs", (self.rows == Rows::Outputs).into()),
                ("side_stride", side_stride.into()),
                ("store", self.store.into()),
                ("fold", fold.into()),
                ("segments", Param::Rows(rows)),
            ]
            .into_iter()
            .chain(input.params)
            .collect(),
            bindings: vec![
                ("bias", self.bias.map_or(Binding::Nothing, Binding::Vector)),
                ("y", Binding::Var(self.y)),
                ("side", self.store.side()),
                ("w0", Binding::Piece(self.matrix, piece)),
            ]
            .into_iter()
            .chain(input.bindings)
            .collect(),
            grid: [fold as u32, blocks.div_ceil(fold) as u32, cx.n_rows(self.rows).div_ceil(shape.tokens) as u32],
        }
    }

    /// Returns the offset in x, in floats, of a segment's input in row 0.
    pub(super) fn x_at(&self, segment: &Segment, tape: &Tape, capacity: usize) -> usize {
        segment.plane * capacity * tape.var_spec(self.x).stride() + segment.x
    }

    /// Returns the offset in y, in floats, of a segment's output in row 0.
    pub(super) fn y_at(&self, segment: &Segment, tape: &Tape, capacity: usize) -> usize {
        segment.y_plane * capacity * tape.var_spec(self.y).stride() + segment.y
    }

    /// Computes the product on the host, with all segments in one call, so that the work is split into tasks once.
    pub fn twin(&self, host: &mut Host) {
        let n = self.rows.count(host.step.tokens.len(), host.step.outputs.len());
        let tape = host.tape.clone();
        let y_stride = host.stride(self.y);
        let mut y = host.take(self.y);
        self.watch(host, n);
        let sums = self.sums(host, n);
        let [a, b, side_stride] = self.store.places(&tape, host.capacity);
        let side = self.store.var().map(|v| host.var(v));
        for (s, sums) in self.segments.iter().zip(&sums) {
            let bias = s.bias.map(|row| host.vector(self.bias.expect("a segment with a bias has bias vectors"), row));
            let store = |(t, y): (usize, &mut [f32])| {
                let (mut row, mut z) = (0, [0.0; TASK]);
                for piece in sums.of(t) {
                    let z = &mut z[..piece.len()];
                    z.copy_from_slice(piece);
                    if let Some(bias) = bias {
                        z.iter_mut().zip(&bias[row..]).for_each(|(z, b)| *z += b);
                    }
                    s.activation.apply_to(z);
                    let from = t * side_stride + row;
                    let sides = side.map(|side| (&side[from + a..], &side[from + b..]));
                    self.store.apply_to(&mut y[s.y + row..], sides, z);
                    row += piece.len();
                }
            };
            let rows = &mut y[s.y_plane * host.capacity * y_stride..][..n * y_stride];
            if n < ROWS_ALONE {
                rows.chunks_mut(y_stride).enumerate().for_each(store);
            } else {
                rows.par_chunks_mut(y_stride).enumerate().for_each(store);
            }
        }
        host.put(self.y, y);
    }

    /// Computes W x of all segments for `n` rows of x.
    fn sums(&self, host: &Host, n: usize) -> Vec<Sums> {
        let spec = host.tape.matrix_spec(self.matrix);
        let product = |s: &Segment| {
            let x = self.inputs(s, host, n).collect();
            let weights = host.matrix(self.matrix).part(s.part);
            Product { weights, rows: spec.parts[s.part].rows, x, rounded: host.tape.activations.are_rounded(weights.format) }
        };
        products(&self.segments.iter().map(product).collect::<Vec<_>>())
    }

    /// Returns the first `n` rows that a segment multiplies.
    fn inputs<'a>(&self, s: &Segment, host: &'a Host, n: usize) -> impl Iterator<Item = &'a [f32]> {
        let (k, at) = (host.tape.matrix_spec(self.matrix).parts[s.part].k, self.x_at(s, &host.tape, host.capacity));
        let (x, stride) = (host.var(self.x), host.stride(self.x));
        (0..n).map(move |t| &x[at + t * stride..][..k])
    }

    /// Adds the inputs of all segments to the host's sums, if the host has any. Builds for browsers measure no importance and leave this code out.
    fn watch(&self, host: &mut Host, n: usize) {
        if cfg!(target_family = "wasm") {
            return;
        }
        if let Some(mut sums) = host.sums.take() {
            self.segments.iter().for_each(|s| sums.add(self.matrix, s.part, self.inputs(s, host, n)));
            host.sums = Some(sums);
        }
    }
}
