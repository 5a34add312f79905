//! Norms of rows, a part of several words:
//!
//!   LN(x) = (x − mean) / sqrt(variance + ε) ⊙ g + b      RMS(x) = x / sqrt(mean of x² + ε) ⊙ g
//! x, g and b are vectors of `width` elements.

use super::moments;
use super::stack::ProductInput;
use crate::tape::{Binding, Dispatch, Host, Lowering, Rows, Tape, Var, Vector, row_grid};

/// A norm and its weights.
#[derive(Debug, Clone, Copy)]
pub struct Norm {
    pub(super) vectors: Vector,
    pub(super) eps: f32,
    /// `true` for a layer norm, `false` for an RMS norm.
    pub(super) is_centred: bool,
}

impl Norm {
    /// Returns a layer norm. `vectors` begins with two rows, the weight g and the bias b. Further rows belong to the word that has the norm. `eps` is
    /// ε.
    pub fn layer(vectors: Vector, eps: f32) -> Norm {
        Norm { vectors, eps, is_centred: true }
    }

    /// Returns an RMS norm. `vectors` begins with the weight g. Further rows belong to the word that has the norm. `eps` is ε.
    pub fn rms(vectors: Vector, eps: f32) -> Norm {
        Norm { vectors, eps, is_centred: false }
    }

    /// Returns the width: the number of elements in a normalised row.
    pub fn width(&self, tape: &Tape) -> usize {
        tape.vector_spec(self.vectors).width
    }

    /// Returns the input of a product whose workgroups normalise the rows of x themselves. If `kept` is a variable, the first workgroup
    /// also stores the normalised rows in this variable.
    pub(super) fn input(&self, cx: &Lowering<'_>, x: Var, kept: Option<Var>) -> ProductInput {
        let spec = cx.tape.vector_spec(self.vectors);
        ProductInput {
            module: "linear::input_norm",
            params: vec![
                ("width", spec.width.into()),
                ("stride", (spec.stride() / 4).into()),
                ("x_stride", (cx.tape.var_spec(x).stride() / 4).into()),
                ("keeps", kept.is_some().into()),
                ("eps", self.eps.into()),
                ("centred", self.is_centred.into()),
            ],
            bindings: vec![
                ("x", Binding::Var(x)),
                ("vectors", Binding::Vector(self.vectors)),
                ("kept", kept.map_or(Binding::Spare, Binding::Var)),
            ],
        }
    }

    /// Returns the dispatch that computes y = norm(x), or y += norm(x) if `adds` is true.
    pub(super) fn lower(&self, cx: &Lowering<'_>, x: Var, y: Var, adds: bool) -> Dispatch {
        let (spec, rows) = (cx.tape.vector_spec(self.vectors), cx.tape.var_spec(y).rows);
        Dispatch {
            shader: "norm/rows",
            modules: vec![cx.caps.reduce()],
            constants: vec![],
            params: vec![
                ("width", spec.width.into()),
                ("stride", spec.stride().into()),
                ("x_stride", cx.tape.var_spec(x).stride().into()),
                ("eps", self.eps.into()),
                ("centred", self.is_centred.into()),
                ("of_outputs", (rows == Rows::Outputs).into()),
                ("adds", adds.into()),
            ],
            bindings: vec![("norm", Binding::Vector(self.vectors)), ("x", Binding::Var(x)), ("y", Binding::Var(y))],
            grid: row_grid(cx.n_rows(rows)),
        }
    }

    /// Reference implementation of [`Norm::lower`] on the CPU.
    pub(super) fn twin(&self, host: &mut Host, x: Var, y: Var, adds: bool) {
        let (x_stride, stride, width) = (host.stride(x), host.stride(y), self.width(&host.tape));
        let mut out = host.take(y);
        let mut row = vec![0.0; width];
        let rows: Vec<usize> = match host.tape.var_spec(y).rows {
            Rows::Outputs => host.step.outputs.iter().map(|&t| t as usize).collect(),
            _ => (0..host.step.tokens.len()).collect(),
        };
        for (y, t) in out.chunks_exact_mut(stride).zip(rows) {
            self.apply(host, &host.var(x)[t * x_stride..][..width], &mut row);
            y.iter_mut().zip(&row).for_each(|(y, v)| *y = if adds { *y + v } else { *v });
        }
        host.put(y, out);
    }

    /// Normalises the row `x` into `out` on the host.
    pub(super) fn apply(&self, host: &Host, x: &[f32], out: &mut [f32]) {
        let values = out.iter_mut().zip(x).zip(host.vector(self.vectors, 0));
        if self.is_centred {
            let (mean, scale) = moments(x, self.eps);
            values.zip(host.vector(self.vectors, 1)).for_each(|(((o, x), g), b)| *o = (x - mean) * scale * g + b);
        } else {
            let scale = 1.0 / (x.iter().map(|v| v * v).sum::<f32>() / x.len() as f32 + self.eps).sqrt();
            values.for_each(|((o, x), g)| *o = x * scale * g);
        }
    }
}
