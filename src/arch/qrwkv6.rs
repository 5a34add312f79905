//! The architecture QRWKV-6: gated linear attention with the projections of RWKV-6 in the body of Qwen2.5 ([`QwenBody`]). Source: the formulas of
//! llama.cpp's `rwkv6qwen2`. Letters follow the paper of RWKV-6 (arXiv 2404.05892, section 4).
//!
//! x̂ = RMS(x), and the lerps X_m are computed as in RWKV-6. `Tape::NAME` at the right of a line is the word (fused operation) that computes the
//! equations from this line on:
//!
//! ```text
//! time mix                                                                              Tape::norm_ddlerp_linear
//!   r = W_r X_r + b_r    k = W_k X_k + b_k    v = W_v X_v + b_v    g = σ(W_g X_g)
//!                                                                                         Tape::wkv_linear, per head
//!   w = exp(−exp(w0 + D2 tanh(D1 X_w)))                  decay of each channel, in (0, 1)
//!   S ← S diag(w) + v (k ⊙ (1 − w))ᵀ                     state, [value][key]; several heads share a head of k and v
//!   y = g ⊙ S r / √head_size
//!                                                                                         Tape::linear_add
//!   x ← x + W_o y
//! ```

use super::detect::dims;
use super::qwen::{self, QwenBody};
use super::rwkv6::{self, DECAY, GATE, LerpOrder, LerpRanks, Projected};
use super::stack::Layer;
use super::{Architecture, Blueprint, Facts, Shapes};
use crate::error::{Error, Result};
use crate::sample::Sampling;
use crate::tape::{MatrixPart, Tape, Var, optional_vector, vector};
use crate::weights::HEAD_SIZE;
use crate::words::{Activation, WkvLinear};
use std::collections::BTreeMap;

/// The sizes of a QRWKV-6 model.
#[derive(Debug, Clone)]
pub struct Qrwkv6 {
    pub body: QwenBody,
    /// The number of heads of keys and values.
    pub n_kv_head: usize,
    /// The low-rank pairs of the lerps and of the decay. Hugging Face folders have another order of the lerps than GGUF files.
    pub lerps: LerpRanks,
    /// True if the projections r, k and v have biases.
    pub has_bias: bool,
}

/// The architecture QRWKV-6.
pub struct Qrwkv6Arch;

/// The largest number of channels of a head.
const MAX_HEAD: usize = 128;

impl Architecture for Qrwkv6Arch {
    fn name(&self) -> &'static str {
        "qrwkv6"
    }

    fn about(&self) -> &'static str {
        "QRWKV-6"
    }

    fn recognises(&self, shapes: &dyn Shapes) -> bool {
        qwen::recognises(shapes) && ["time_maa_w1", "time_maa_x", "time_decay_w1"].iter().any(|n| shapes.has_att(n))
    }

    fn read(&self, shapes: &dyn Shapes) -> Result<Box<dyn Blueprint>> {
        let [n_att, _] = dims(shapes, "blocks.0.att.receptance.weight")?;
        let [n_keys, _] = dims(shapes, "blocks.0.att.key.weight")?;
        let text = shapes.metadata(HEAD_SIZE).ok_or_else(|| {
            Error::model(format!("the metadata have no {HEAD_SIZE}, and the tensors alone do not determine it"))
                .hint("put the model's config.json into the same folder, or use the GGUF file")
        })?;
        let size =
            text.parse().ok().filter(|size| (1..=MAX_HEAD).contains(size) && n_att.is_multiple_of(*size) && n_keys.is_multiple_of(*size));
        let Some(size) = size else {
            let expected = format!("expected a head size of at most {MAX_HEAD} that divides {n_att} and {n_keys}");
            return Err(Error::model(format!("{expected}, found {text:?} as metadata value {HEAD_SIZE}")));
        };
        let (n_head, n_kv_head) = (n_att / size, n_keys / size);
        if n_kv_head == 0 || !n_head.is_multiple_of(n_kv_head) {
            let text = format!("expected heads of keys that divide the {n_head} heads, found {n_kv_head} heads of keys");
            return Err(Error::model(text).at("blocks.0.att.key.weight"));
        }
        let [mix, decay] = rwkv6::ranks(shapes)?;
        let lerps = LerpRanks { mix, decay, order: LerpOrder::read(shapes)? };
        let has_bias = ["receptance", "key", "value"].iter().any(|name| shapes.has_att(&format!("{name}.bias")));
        Ok(Box::new(Qrwkv6 { body: QwenBody::read(shapes, n_head)?, n_kv_head, lerps, has_bias }))
    }

    fn sizes(&self) -> &'static [&'static str] {
        &["32b"]
    }

    fn published(&self, size: &str) -> Option<Box<dyn Blueprint>> {
        let lerps = LerpRanks { mix: 64, decay: 128, order: LerpOrder::OFFICIAL };
        let body = (size == "32b").then(|| QwenBody::published(64, 5120, 27648, 128))?;
        Some(Box::new(Qrwkv6 { body, n_kv_head: 8, lerps, has_bias: true }))
    }
}

impl Blueprint for Qrwkv6 {
    fn facts(&self) -> Facts {
        self.body.facts("qrwkv6")
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        let mut metadata = self.body.metadata();
        metadata.insert(HEAD_SIZE.into(), self.body.base.head_size.to_string());
        metadata.extend(self.lerps.order.metadata());
        metadata
    }

    fn sampling(&self) -> Sampling {
        Sampling::qwen()
    }

    fn record(&self, t: &mut Tape) {
        self.body.base.record(t, &mut |t, layer, x| {
            self.time_mix(t, layer, x);
            self.body.mlp(t, layer, x);
        });
    }
}

impl Qrwkv6 {
    fn time_mix(&self, t: &mut Tape, l: &Layer<'_>, x: Var) {
        let base = &self.body.base;
        let keys = self.n_kv_head * base.head_size;
        let biased = |name: &str, rows| Projected {
            matrix: MatrixPart::new(l.name(&format!("att.{name}.weight")), rows, base.n_embd),
            activation: Activation::None,
            // Some files lack the bias of one of the three matrices. A missing bias is zero.
            bias: self.has_bias.then(|| optional_vector(l.name(&format!("att.{name}.bias")))),
        };
        let gate = Projected { matrix: l.matrix("gate"), activation: Activation::Sigmoid, bias: None };
        let projected = [biased("receptance", base.n_att), biased("key", keys), biased("value", keys), gate];
        let proj = rwkv6::project(t, base, l, x, self.lerps, projected);

        let bias = t.vectors(base.n_att, vec![vector(l.name("att.time_decay"))]);
        let decay = (l.expand("time_decay_w2", self.lerps.decay), bias, DECAY);
        let state = l.wkv_state(t);
        let group = base.n_head() / self.n_kv_head;
        let y = t.wkv_linear(proj, WkvLinear { head_size: base.head_size, group, decay, gate: GATE, state });
        l.output(t, y, x);
    }
}
