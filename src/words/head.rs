//! The output head:  logits = W norm(x) + b, for the tokens whose logits are requested.
//!
//! x is `[T, width]`, W is `[vocab, width]`, logits are `[O, vocab]`. T is the number of tokens, O the number of tokens whose logits are
//! requested.
//!
//! The word `hidden` is the norm alone:  hidden = norm(x), `[O, width]`. A tape with [`Tape::ends_hidden`] has the word `hidden` in place of the
//! head.

use super::LAYER_NORM_EPS;
use super::norm::Norm;
use super::norm_linear::NormLinear;
use super::stack::{Segment, Stack, Store};
use super::testing::{Case, steps};
use crate::tape::{MatrixKind, MatrixPart, Rows, Tape, Var, VectorPart, vector};

impl Tape {
    /// Records the output head, logits = W norm(x) + b. Returns the logits. Sets the tape's `logits` to the logits and its `hidden` to norm(x), each
    /// with one row per requested output. `part` is W. `bias` is b, or `None` if the head has no bias. If [`Tape::ends_hidden`] is true, records only
    /// the norm, and sets both fields to norm(x).
    pub fn head(&mut self, x: Var, norm: Norm, part: MatrixPart, bias: Option<VectorPart>) -> Var {
        let normed = self.var("x_out", Rows::Outputs, &[part.k]);
        if self.ends_hidden {
            self.record(NormLinear { name: "hidden", x, norm, normed, stacks: vec![] });
            (self.logits, self.hidden) = (Some(normed), Some(normed));
            return normed;
        }
        let logits = self.var("logits", Rows::Outputs, &[part.rows]);
        let bias = bias.map(|bias| self.vectors(part.rows, vec![bias]));
        let matrix = self.matrix(vec![part.of(MatrixKind::Head)]);
        let segments = vec![Segment { bias: bias.map(|_| 0), ..Segment::of(0) }];
        let stack = Stack { matrix, x: normed, y: logits, bias, segments, store: Store::Set, rows: Rows::Outputs };
        self.record(NormLinear { name: "head", x, norm, normed, stacks: vec![stack] });
        (self.logits, self.hidden) = (Some(logits), Some(normed));
        logits
    }
}

/// Returns cases of the head, of two kinds: a layer norm without b, and an RMS norm with b. b is the bias of the product.
pub fn cases() -> Vec<Case> {
    cases_of("head")
}

/// Returns cases of the word `hidden`, which is the head without its matrix.
pub fn hidden_cases() -> Vec<Case> {
    cases_of("hidden")
}

fn cases_of(word: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for (vocab, width, name) in [(1, 1, "layer"), (2, 9, "layer"), (97, 64, "rms"), (300, 31, "layer"), (30, 131, "rms")] {
        let mut tape = Tape::new();
        tape.ends_hidden = word == "hidden";
        let x = tape.var("x", Rows::Tokens, &[width]);
        let norm = match name {
            "layer" => Norm::layer(tape.vectors(width, vec![vector("g"), vector("b")]), LAYER_NORM_EPS),
            _ => Norm::rms(tape.vectors(width, vec![vector("g")]), 1e-6),
        };
        let bias = (name == "rms").then(|| vector("b"));
        tape.head(x, norm, MatrixPart::new("w", vocab, width), bias);
        cases.push(Case::new(format!("{word}/{vocab}x{width}/{name}"), tape, steps(2), 1e-10));
    }
    cases
}
