//! The architecture RWKV-4 "Dove". Letters follow the paper (arXiv 2305.13048, section 3). Each W is a weight matrix of the checkpoint.
//!
//! x is the residual stream, x̂ = LN(x), x̂₋ is x̂ of the previous token. The equations of one block follow. `Tape::NAME` at the right of a line
//! is the word (fused operation) that computes the equations from this line on:
//!
//! ```text
//! time mix                                                                              Tape::norm_shift_linear
//!   X_m = x̂₋ + (x̂ − x̂₋) ⊙ μ_m                         for m of r, k, v
//!   r = σ(W_r X_r)    k = W_k X_k    v = W_v X_v
//!                                                                                         Tape::wkv4_linear_add, per channel
//!   wkv = (a + e^(u + k) v) / (b + e^(u + k))            u is the bonus of the current token
//!   a ← e^w a + e^k v    b ← e^w b + e^k                 state; w = −exp(time_decay) is constant
//!   x ← x + W_o (r ⊙ wkv)
//! channel mix                                                                           Tape::norm_shift_linear
//!   X_m = x̂₋ + (x̂ − x̂₋) ⊙ μ_m                         for m of k, r
//!   k = relu²(W_k X_k)    r = σ(W_r X_r)
//!   x ← x + r ⊙ W_v k                                                                     Tape::linear_add_sparse_gated
//! ```
//!
//! To keep a and b finite, the word `wkv4_linear_add` stores a e^(−p) and b e^(−p) in the first two vectors of the state. The third vector is
//! p, the largest decayed exponent so far.
//!
//! The words of a block are [`Tape::norm_shift_linear`], [`Tape::wkv4_linear_add`] and [`Tape::linear_add_sparse_gated`].

use super::detect::dims;
use super::stack::{Base, Layer, of_current};
use super::{Architecture, Blueprint, Facts, Shapes};
use crate::error::{Error, Result};
use crate::tape::{Tape, Var};
use crate::words::Activation;

/// The sizes of an RWKV-4 model. RWKV-4 has no heads: every channel has its own state.
#[derive(Debug, Clone)]
pub struct Rwkv4(pub Base);

/// The architecture RWKV-4.
pub struct Rwkv4Arch;

impl Architecture for Rwkv4Arch {
    fn name(&self) -> &'static str {
        "rwkv4"
    }

    fn about(&self) -> &'static str {
        "RWKV-4"
    }

    fn recognises(&self, shapes: &dyn Shapes) -> bool {
        ["time_first", "time_decay", "time_mix_k", "time_mix_v", "time_mix_r"].iter().any(|n| shapes.has_att(n))
    }

    fn read(&self, shapes: &dyn Shapes) -> Result<Box<dyn Blueprint>> {
        let [n_decay] = dims(shapes, "blocks.0.att.time_decay")?;
        let [n_att, _] = dims(shapes, "blocks.0.att.key.weight")?;
        if n_decay != n_att {
            let text = format!("expected {n_att} decays, one per channel, found {n_decay}");
            return Err(Error::model(text).at("blocks.0.att.time_decay"));
        }
        Ok(Box::new(Rwkv4(Base::read(shapes, n_att)?)))
    }

    fn sizes(&self) -> &'static [&'static str] {
        &["0.1b", "0.4b", "1.5b", "2.9b", "7.2b", "14b"]
    }

    fn published(&self, size: &str) -> Option<Box<dyn Blueprint>> {
        let base = match size {
            // The largest model of RWKV-4 was trained on the Pile, with the vocabulary of GPT-NeoX.
            "14b" => Base { n_layer: 40, ..Base::new(5120, 4 * 5120, 1, 50277) },
            _ => Base::published(size, |c| 4 * c)?,
        };
        Some(Box::new(Rwkv4(Base { head_size: 1, ..base })))
    }
}

impl Blueprint for Rwkv4 {
    fn facts(&self) -> Facts {
        Facts { n_head: 1, head_size: self.0.n_att, ..self.0.facts("rwkv4", "4.0") }
    }

    fn record(&self, t: &mut Tape) {
        self.0.record(t, &mut |t, layer, x| self.block(t, layer, x));
    }
}

impl Rwkv4 {
    fn block(&self, t: &mut Tape, l: &Layer<'_>, x: Var) {
        // The projections r, k and v. Each projection reads its own lerp between LN1(x) of the previous token and LN1(x) of this token.
        let mix = |name: &str| l.att(name).map(of_current);
        let mut lerps = l.lerps("ln1");
        lerps.project(mix("time_mix_r"), l.matrix("receptance"), Activation::Sigmoid);
        lerps.project(mix("time_mix_k"), l.matrix("key"), Activation::None);
        lerps.project(mix("time_mix_v"), l.matrix("value"), Activation::None);
        let shift = l.att_shift(t);
        let rkv = lerps.record(t, "proj", x, shift);

        // Two vectors with one element per channel: the decay w = −exp(time_decay) and the bonus u of the current token. Both are added to
        // exponents.
        let wu = t.vectors(self.0.n_att, vec![l.att("time_decay").map(|d| -d.exp()), l.att("time_first")]);
        let state = t.wkv4_state(l.name("att.wkv"), self.0.n_att);
        t.wkv4_linear_add(rkv, wu, state, l.output_part(), x);

        l.channel_mix(t, x, l.ffn("time_mix_k").map(of_current), l.ffn("time_mix_r").map(of_current));
    }
}
