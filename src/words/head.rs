//! logits = W LN(x), for the rows whose logits are wanted.

use super::stack::{Input, Segment, Stack, Store, fuses};
use super::testing::{Case, steps};
use super::{LAYER_NORM_EPS, layer_norm};
use crate::tape::{Binding, Dispatch, Host, Lowering, Part, Rows, Tape, Var, Vector, Word, vector};

struct Head {
    x: Var,
    /// g, b.
    norm: Vector,
    normed: Var,
    stack: Stack,
}

impl Tape {
    /// `[O, vocab]`; becomes the tape's logits.
    pub fn head(&mut self, x: Var, norm: Vector, part: Part) -> Var {
        let normed = self.var("x_out", Rows::Outputs, &[part.k]);
        let logits = self.var("logits", Rows::Outputs, &[part.rows]);
        let matrix = self.matrix(vec![part]);
        let segments = vec![Segment::of(0)];
        let stack = Stack { matrix, x: normed, y: logits, bias: None, segments, store: Store::Set, rows: Rows::Outputs };
        self.record(Head { x, norm, normed, stack });
        (self.logits, self.hidden) = (Some(logits), Some(normed));
        logits
    }
}

impl Word for Head {
    fn name(&self) -> &'static str {
        "head"
    }

    fn lower(&self, cx: &Lowering<'_>) -> Vec<Dispatch> {
        let spec = cx.tape.vector_spec(self.norm);
        if fuses(cx) {
            return self.stack.lower_from(cx, &|keeps| Input {
                module: "linear::input_norm",
                params: vec![
                    ("width", spec.width.into()),
                    ("stride", (spec.stride() / 4).into()),
                    ("keeps", keeps.into()),
                    ("eps", LAYER_NORM_EPS.into()),
                ],
                bindings: vec![("x", Binding::Var(self.x)), ("vectors", Binding::Vector(self.norm)), ("kept", Binding::Var(self.normed))],
            });
        }
        let norm = Dispatch {
            shader: "norm/layer_norm",
            modules: vec![cx.caps.reduce()],
            constants: vec![],
            params: vec![("width", spec.width.into()), ("stride", spec.stride().into()), ("eps", LAYER_NORM_EPS.into())],
            bindings: vec![("norm", Binding::Vector(self.norm)), ("x", Binding::Var(self.x)), ("y", Binding::Var(self.normed))],
            grid: [(cx.outputs as u32).min(32768), (cx.outputs as u32).div_ceil(32768), 1],
        };
        std::iter::once(norm).chain(self.stack.lower(cx)).collect()
    }

    fn twin(&self, host: &mut Host) {
        let (x_stride, stride) = (host.stride(self.x), host.stride(self.normed));
        let width = host.tape.vector_spec(self.norm).width;
        let mut normed = host.take(self.normed);
        for (o, &t) in host.step.outputs.iter().enumerate() {
            let x = &host.var(self.x)[t as usize * x_stride..][..width];
            layer_norm(x, host.vector(self.norm, 0), host.vector(self.norm, 1), LAYER_NORM_EPS, &mut normed[o * stride..]);
        }
        host.put(self.normed, normed);
        self.stack.twin(host);
    }

    fn is_head(&self) -> bool {
        true
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (vocab, width) in [(1, 1), (2, 9), (97, 64), (300, 31)] {
        let mut tape = Tape::new();
        let x = tape.var("x", Rows::Tokens, &[width]);
        let norm = tape.vectors(width, vec![vector("g"), vector("b")]);
        tape.head(x, norm, Part::new("w", vocab, width));
        cases.push(Case::new(format!("head/{vocab}x{width}"), tape, steps(2), 1e-10));
    }
    cases
}
