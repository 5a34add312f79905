//! Products with inputs that are rounded to eight bits, on GPUs. One dispatch rounds the inputs. The following dispatches multiply the rounded
//! inputs.

use super::shape::Shape;
use super::stack::{MAX_SEGMENTS, ProductInput, Segment, Stack};
use crate::quant::{Axis, padded};
use crate::tape::{Binding, Dispatch, Lowering, MatrixPiece, Param, PieceSegment, ROUNDED_BLOCK, ROUNDED_WORDS, Rows, Var};

/// The number of lanes per workgroup in `shaders/linear/round.wgsl`.
const LANES: usize = 64;

/// A range of a row of x that is the input of one or more segments.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    /// The offset in a row of x, in floats.
    x_at: usize,
    /// The width, in inputs.
    k: usize,
}

impl Line {
    fn blocks(&self) -> usize {
        self.k.div_ceil(ROUNDED_BLOCK)
    }
}

/// The products of one stack, some of them with rounded inputs.
pub struct Rounding<'a> {
    stack: &'a Stack,
    cx: &'a Lowering<'a>,
    /// The number of rows of x.
    n: usize,
    /// The inputs that are rounded already, and whether linear/round split them (its constant SPLIT). `None` before the first product.
    done: Option<(Vec<Line>, bool)>,
}

impl<'a> Rounding<'a> {
    /// Begins the products of `stack` and `n` rows of x.
    pub fn new(stack: &'a Stack, cx: &'a Lowering<'a>, n: usize) -> Self {
        Rounding { stack, cx, n, done: None }
    }

    /// Returns the dispatches that round the inputs and multiply a piece. Returns `None` if the product does not round its inputs. `index` is the
    /// index of the piece.
    pub fn lower(&mut self, index: usize, piece: &MatrixPiece) -> Option<Vec<Dispatch>> {
        let rounded = self.cx.rounded(piece.format, self.n)?;
        let tuning = &self.cx.caps.tuning;
        let tile = tuning.rounded(self.n).unwrap_or(tuning.rounded_candidates(self.n)[0]);
        let shape = Shape {
            shader: "linear/tiled_rounded",
            block_rows: tile.rows,
            tokens: tile.tokens,
            constants: tile.rounded_constants().into_iter().chain([("TILES", 1)]).collect(),
            modules: vec![],
        };
        let used = self.stack.used(piece);
        if used.iter().any(|(_, p)| p.region.axis != Axis::Row) {
            return None;
        }
        let stride = self.cx.tape.var_spec(rounded).stride() / 4;
        let mut dispatches = Vec::new();
        let mut rest = used.as_slice();
        while !rest.is_empty() {
            let (n, lines) = self.group(rest, stride / ROUNDED_WORDS);
            let wanted = (lines, piece.format.bits() < 8);
            if self.done.as_ref() != Some(&wanted) {
                dispatches.push(self.round(&wanted.0, wanted.1, rounded, stride));
                self.done = Some(wanted);
            }
            let lines = &self.done.as_ref().expect("rounded above").0;
            let x_at = |s: &Segment| {
                let at = lines.iter().position(|line| *line == self.line(s)).expect("the input of each segment of the group");
                lines[..at].iter().map(Line::blocks).sum::<usize>() * ROUNDED_WORDS
            };
            let input = ProductInput {
                module: "linear::input_rounded",
                params: vec![("x_stride", stride.into())],
                bindings: vec![("x", Binding::Var(rounded))],
            };
            dispatches.push(self.stack.dispatch(self.cx, &shape, index, &rest[..n], input, &x_at));
            rest = &rest[n..];
        }
        Some(dispatches)
    }

    /// Returns how many of the first segments one dispatch computes, and their distinct inputs. The inputs have at most `most` blocks together.
    fn group(&self, segments: &[(&Segment, &PieceSegment)], most: usize) -> (usize, Vec<Line>) {
        let mut lines: Vec<Line> = Vec::new();
        for (i, (segment, _)) in segments.iter().enumerate() {
            let line = self.line(segment);
            if lines.contains(&line) && i < MAX_SEGMENTS {
                continue;
            }
            if i == MAX_SEGMENTS || lines.iter().map(Line::blocks).sum::<usize>() + line.blocks() > most {
                return (i, lines);
            }
            lines.push(line);
        }
        (segments.len(), lines)
    }

    fn line(&self, segment: &Segment) -> Line {
        let x_at = self.stack.x_at(segment, self.cx.tape, self.cx.capacity);
        Line { x_at, k: self.cx.tape.matrix_spec(self.stack.matrix).parts[segment.part].k }
    }

    fn round(&self, lines: &[Line], is_split: bool, rounded: Var, stride: usize) -> Dispatch {
        let mut first = 0;
        let mut entries = Vec::new();
        for line in lines {
            entries.push([first as u32, (line.x_at / 4) as u32, (padded(line.k) / 8) as u32, 0]);
            first += line.blocks();
        }
        entries.resize(MAX_SEGMENTS, [0; 4]);
        Dispatch {
            shader: "linear/round",
            modules: vec![],
            constants: vec![("SPLIT", u32::from(is_split))],
            params: vec![
                ("n_lines", lines.len().into()),
                ("x_stride", (self.cx.tape.var_spec(self.stack.x).stride() / 4).into()),
                ("blocks", first.into()),
                ("stride", stride.into()),
                ("of_outputs", (self.stack.rows == Rows::Outputs).into()),
                ("lines", Param::Rows(entries)),
            ],
            bindings: vec![("x", Binding::Var(self.stack.x)), ("rounded", Binding::Var(rounded))],
            grid: [first.div_ceil(LANES) as u32, self.n as u32, 1],
        }
    }
}
