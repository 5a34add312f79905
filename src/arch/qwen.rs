//! The body of Qwen2 around a time mix of RWKV: embedding, RMS norms, the SwiGLU mlp, and the head. ARWKV-7 and QRWKV-6 share it.
//!
//! x is the residual stream, x̂ = RMS(x). `Tape::NAME` at the right of a line is the word (fused operation) that computes the equations from this
//! line on:
//!
//! ```text
//! x ← x + time mix(x̂)                                   with the token shift of RWKV
//! mlp                                                                                   Tape::swiglu
//!   y = silu(W_gate x̂) ⊙ W_up x̂
//!   x ← x + W_down y                                                                    Tape::linear_add
//! ```

use super::stack::{Base, Layer};
use super::{Facts, Shapes};
use crate::error::{Error, Result};
use crate::tape::{MatrixKind, MatrixPart, Tape, Var};
use crate::weights::{LAYER_NORM_EPS, STOP_IDS, ids};
use std::collections::BTreeMap;

/// The sizes of the body, and the tokens that end a text.
#[derive(Debug, Clone)]
pub struct QwenBody {
    pub base: Base,
    /// The ids of tokens that end a text. They depend on the model: chat models end a text with `<|im_end|>`, other models with `<|endoftext|>`.
    pub stop_ids: Vec<u32>,
}

/// Returns true if the checkpoint has this body.
pub fn recognises(shapes: &dyn Shapes) -> bool {
    ["gate", "up", "down"].iter().any(|name| shapes.shape(&format!("blocks.0.ffn.{name}.weight")).is_some())
}

impl QwenBody {
    /// Reads the sizes from the tensors' shapes. `n_head` is the number of heads, which the caller knows from the time mix.
    ///
    /// # Errors
    ///
    /// The errors of [`Base::read`]; `Model` if the metadata have wrong stop ids.
    pub fn read(shapes: &dyn Shapes, n_head: usize) -> Result<QwenBody> {
        let base = Base::read_from(shapes, n_head, ["blocks.0.att.receptance.weight", "blocks.0.ffn.gate.weight"])?;
        let wrong =
            |text: &str| Error::model(format!("expected token ids with commas between them as metadata value {STOP_IDS}, found {text:?}"));
        let stop_ids = shapes.metadata(STOP_IDS).map_or(Ok(vec![]), |text| ids(text).ok_or_else(|| wrong(text)))?;
        Ok(QwenBody { base: Base { has_rms_norms: true, has_norm_bias: false, has_ln0: false, ..base }, stop_ids })
    }

    /// Returns the sizes of a model with heads of `head_size` channels, Qwen2.5's vocabulary and ε.
    pub fn published(n_layer: usize, n_embd: usize, n_ffn: usize, head_size: usize) -> QwenBody {
        let base = Base::new(n_embd, n_ffn, head_size, 151_936);
        let base = Base { n_layer, has_rms_norms: true, has_norm_bias: false, has_ln0: false, layer_norm_eps: 1e-6, ..base };
        QwenBody { base, stop_ids: vec![151_645, 151_643] }
    }

    pub fn facts(&self, architecture: &'static str) -> Facts {
        Facts { stop_ids: self.stop_ids.clone(), ..self.base.facts(architecture, architecture) }
    }

    /// Returns the metadata that a file needs in addition to its tensors.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let ids: Vec<String> = self.stop_ids.iter().map(u32::to_string).collect();
        BTreeMap::from([(LAYER_NORM_EPS.into(), self.base.layer_norm_eps.to_string()), (STOP_IDS.into(), ids.join(","))])
    }

    /// Records x += W_down (silu(W_gate x̂) ⊙ W_up x̂), x̂ = RMS(x).
    pub fn mlp(&self, t: &mut Tape, l: &Layer<'_>, x: Var) {
        let (c, f) = (self.base.n_embd, self.base.n_ffn);
        let norm = l.norm_and(t, "ln2", vec![]);
        let part = |name: &str, rows, columns| MatrixPart::new(l.name(&format!("ffn.{name}.weight")), rows, columns);
        let y = t.swiglu("ffn", x, norm, part("gate", f, c), part("up", f, c));
        t.linear_add(part("down", c, f).of(MatrixKind::Value).wide(), y, x);
    }
}
