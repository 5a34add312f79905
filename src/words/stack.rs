//! Matrix products of stacked segments: the part that several words share.
//!
//! Chooses a kernel by what the adapter is and how many rows there are, cuts the stack into pieces that fit a binding, and
//! has the twin.

use super::windows;
use crate::tape::{Binding, Class, Dispatch, Host, Lowering, Matrix, Piece, PieceSegment, Rows, Tape, Var, Vector};
use rayon::prelude::*;

/// What happens to a sum before it is stored. The codes are those of `shaders/lib/activation.wgsl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    None,
    Tanh,
    Sigmoid,
    /// max(z, 0)²
    ReluSquared,
    /// RWKV-7's decay, exp(−e^(−1/2) σ(z)).
    Decay7,
}

impl Activation {
    pub const ALL: [Activation; 5] = [Activation::None, Activation::Tanh, Activation::Sigmoid, Activation::ReluSquared, Activation::Decay7];

    pub(super) fn code(self) -> u32 {
        self as u32
    }

    pub fn apply(self, z: f32) -> f32 {
        match self {
            Activation::None => z,
            Activation::Tanh => z.tanh(),
            Activation::Sigmoid => sigmoid(z),
            Activation::ReluSquared => z.max(0.0) * z.max(0.0),
            Activation::Decay7 => (-0.60653066 * sigmoid(z)).exp(),
        }
    }
}

fn sigmoid(z: f32) -> f32 {
    1.0 / (1.0 + (-z).exp())
}

/// One part of the matrix, from where in x and to where in y.
#[derive(Debug, Clone)]
pub struct Segment {
    pub part: usize,
    /// Plane of x.
    pub plane: usize,
    /// First float within a row of x and of y.
    pub x: usize,
    pub y: usize,
    /// Row of the bias vectors.
    pub bias: Option<usize>,
    pub activation: Activation,
}

/// `y[t] = activation(bias + W x[t])`, or `y[t] += …`, segment by segment.
pub struct Stack {
    pub matrix: Matrix,
    pub x: Var,
    pub y: Var,
    pub bias: Option<Vector>,
    pub segments: Vec<Segment>,
    pub accumulate: bool,
    pub rows: Rows,
}

/// Segments that one dispatch takes: the length of `segments` in `shaders/linear/stack.wgsl`, halved.
const MAX_SEGMENTS: usize = 8;
/// From so many rows on, a real GPU takes the tiled product.
const TILED_FROM: usize = 8;

/// A kernel and how much a workgroup of it does.
struct Shape {
    shader: &'static str,
    block_rows: usize,
    tokens: usize,
}

impl Shape {
    fn choose(cx: &Lowering<'_>, n: usize) -> Shape {
        if n < TILED_FROM || cx.caps.batch_invariant || cx.caps.class == Class::Lanes {
            Shape { shader: "linear/matvec", block_rows: 4, tokens: 1 }
        } else {
            Shape { shader: "linear/tiled", block_rows: 64, tokens: 64 }
        }
    }
}

impl Stack {
    pub fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let spec = cx.tape.matrix_spec(self.matrix);
        let n = cx.n_rows(self.rows);
        if cx.caps.in_blocks(spec) {
            return windows::lower(self, cx, n);
        }
        let shape = Shape::choose(cx, n);
        let mut dispatches = Vec::new();
        for (index, piece) in spec.pieces(cx.caps.max_binding).iter().enumerate() {
            for group in self.used(piece).chunks(MAX_SEGMENTS) {
                dispatches.push(self.dispatch(cx, &shape, n, index, group));
            }
        }
        dispatches
    }

    /// Which rows of a piece go through which segment: two segments may read the same part.
    fn used<'p>(&self, piece: &'p Piece) -> Vec<(&Segment, &'p PieceSegment)> {
        piece.segments.iter().flat_map(|p| self.segments.iter().filter(|s| s.part == p.part).map(move |s| (s, p))).collect()
    }

    fn dispatch(&self, cx: &Lowering<'_>, shape: &Shape, n: usize, piece: usize, group: &[(&Segment, &PieceSegment)]) -> Dispatch {
        let spec = cx.tape.matrix_spec(self.matrix);
        let bias_stride = self.bias.map_or(0, |b| cx.tape.vector_spec(b).stride());
        let mut blocks = 0;
        let mut rows = Vec::new();
        for (segment, p) in group {
            let bias = segment.bias.map_or(u32::MAX, |row| (row * bias_stride + p.first_row) as u32);
            rows.push([blocks as u32, p.rows as u32, spec.parts[p.part].units() as u32, p.unit as u32]);
            rows.push([
                (self.x_at(segment, cx.tape, cx.capacity) / 4) as u32,
                (segment.y + p.first_row) as u32,
                bias,
                segment.activation.code(),
            ]);
            blocks += p.rows.div_ceil(shape.block_rows);
        }
        rows.resize(2 * MAX_SEGMENTS, [0; 4]);
        let fold = blocks.clamp(1, 32768);
        Dispatch {
            shader: shape.shader,
            modules: vec![("weight::f16", format!("weight::{}", spec.format.name())), cx.caps.reduce()],
            constants: vec![],
            params: vec![
                ("n_segments", group.len().into()),
                ("x_stride", (cx.tape.var_spec(self.x).stride() / 4).into()),
                ("y_stride", cx.tape.var_spec(self.y).stride().into()),
                ("of_outputs", (self.rows == Rows::Outputs).into()),
                ("accumulate", self.accumulate.into()),
                ("fold", fold.into()),
                ("segments", crate::tape::Param::Rows(rows)),
            ],
            bindings: vec![
                ("x", Binding::Var(self.x)),
                ("bias", self.bias.map_or(Binding::Nothing, Binding::Vector)),
                ("y", Binding::Var(self.y)),
                ("weight", Binding::Piece(self.matrix, piece)),
            ],
            grid: [fold as u32, blocks.div_ceil(fold) as u32, n.div_ceil(shape.tokens) as u32],
        }
    }

    /// First float of a segment's x in row 0.
    pub(super) fn x_at(&self, segment: &Segment, tape: &Tape, capacity: usize) -> usize {
        segment.plane * capacity * tape.var_spec(self.x).stride() + segment.x
    }

    pub fn twin(&self, host: &mut Host) {
        let n = match self.rows {
            Rows::Tokens => host.step.tokens.len(),
            Rows::Outputs => host.step.outputs.len(),
        };
        let (x_stride, y_stride) = (host.stride(self.x), host.stride(self.y));
        let mut y = host.take(self.y);
        for s in &self.segments {
            let tape = host.tape.clone();
            let part = &tape.matrix_spec(self.matrix).parts[s.part];
            let x_at = self.x_at(s, &tape, host.capacity);
            let x: Vec<&[f32]> = (0..n).map(|t| &host.var(self.x)[x_at + t * x_stride..][..part.k]).collect();
            let mut sums = vec![0f32; n * part.rows];
            let mut out: Vec<&mut [f32]> = sums.chunks_exact_mut(part.rows).collect();
            host.matrix(self.matrix).product(s.part, &x, &mut out, host.batch_invariant);
            let bias = s.bias.map(|row| host.vector(self.bias.expect("a segment with a bias has bias vectors"), row));
            y.par_chunks_mut(y_stride).zip(sums.par_chunks(part.rows)).for_each(|(y, sums)| {
                for (row, (y, sum)) in y[s.y..][..part.rows].iter_mut().zip(sums).enumerate() {
                    let z = s.activation.apply(sum + bias.map_or(0.0, |b| b[row]));
                    *y = if self.accumulate { *y + z } else { z };
                }
            });
        }
        host.put(self.y, y);
    }
}
