//! The architecture RWKV-5 "Eagle", versions 5.0, 5.1 and 5.2 (x052). Letters follow the paper (arXiv 2404.05892, section 4). Each W is a
//! weight matrix of the checkpoint.
//!
//! x is the residual stream, x̂ = LN(x), x̂₋ is x̂ of the previous token. The equations of one block follow. `Tape::NAME` at the right of a line
//! is the word (fused operation) that computes the equations from this line on:
//!
//! ```text
//! time mix                                                                              Tape::norm_shift_linear
//!   X_m = x̂₋ + (x̂ − x̂₋) ⊙ μ_m                         for m of r, k, v and, from 5.1 on, g
//!   r = W_r X_r    k = W_k X_k    v = W_v X_v
//!   g = silu(W_g X_g)                                    gate; 1 in 5.0
//!                                                                                         Tape::wkv6, per head
//!   y = g ⊙ GroupNorm(S r + (Σ r ⊙ u ⊙ k) v)            u is the bonus of the current token
//!   S ← S diag(w) + v kᵀ                                 state, [value][key]; w = exp(−exp(time_decay)) is constant
//!                                                                                         Tape::linear_add
//!   x ← x + W_o y
//! channel mix                                                                           Tape::norm_shift_linear
//!   X_m = x̂₋ + (x̂ − x̂₋) ⊙ μ_m                         for m of k, r
//!   k = relu²(W_k X_k)    r = σ(W_r X_r)
//!   x ← x + r ⊙ W_v k                                                                     Tape::linear_add_sparse_gated
//! ```
//!
//! In 5.2, u and w have one element per channel of a head. In 5.0 and 5.1, u and w have one element per head.
//!
//! The words of a block are [`Tape::norm_shift_linear`], [`Tape::wkv6`], [`Tape::linear_add`] and [`Tape::linear_add_sparse_gated`].

use super::detect::{dims, missing};
use super::stack::{Base, Layer, of_current, seven_halves};
use super::{Architecture, Blueprint, Facts, Shapes};
use crate::error::Result;
use crate::tape::{Tape, Var, VectorPart};
use crate::words::{Activation, Decay, Wkv6};

/// The sizes of an RWKV-5 model. Decay and bonus have other shapes in 5.2 than in 5.0 and 5.1. Version 5.0 has no gate.
#[derive(Debug, Clone)]
pub struct Rwkv5 {
    pub base: Base,
    /// True if every channel has its own decay and bonus (5.2). False if all channels of a head share one decay and one bonus (5.0 and 5.1).
    pub per_channel: bool,
    pub bonus: Bonus,
    /// True if the time mix has a gate (from 5.1 on).
    pub is_gated: bool,
}

/// The form in which a file stores the bonus u.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bonus {
    /// The tensor `time_faaaa` stores u.
    Raw,
    /// The tensor `time_first` of the oldest models stores ln u.
    Log,
}

/// The architecture RWKV-5.
pub struct Rwkv5Arch;

impl Architecture for Rwkv5Arch {
    fn name(&self) -> &'static str {
        "rwkv5"
    }

    fn about(&self) -> &'static str {
        "RWKV-5.0 to 5.2"
    }

    fn recognises(&self, shapes: &dyn Shapes) -> bool {
        ["ln_x.weight", "gate.weight", "time_faaaa"].iter().any(|n| shapes.has_att(n))
    }

    fn read(&self, shapes: &dyn Shapes) -> Result<Box<dyn Blueprint>> {
        let tensor = "blocks.0.att.time_decay";
        let decay = shapes.shape(tensor).ok_or_else(|| missing(tensor))?;
        let [n_att, _] = dims(shapes, "blocks.0.att.key.weight")?;
        let per_channel = decay.len() >= 2 && decay.iter().product::<usize>() == n_att;
        let n_head = if per_channel { dims::<2>(shapes, tensor)?[0] } else { decay.iter().product() };
        Ok(Box::new(Rwkv5 {
            base: Base::read(shapes, n_head)?,
            per_channel,
            bonus: if shapes.has_att("time_faaaa") { Bonus::Raw } else { Bonus::Log },
            // One gate in any layer is enough evidence: a file in which only some layers have gates is a broken 5.1, not a 5.0.
            is_gated: shapes.find(&|name| name.ends_with(".att.gate.weight") || name.ends_with(".att.time_mix_g")).is_some(),
        }))
    }

    fn published(&self, size: &str) -> Option<Box<dyn Blueprint>> {
        let base = Base::published(size, seven_halves)?;
        Some(Box::new(Rwkv5 { base, per_channel: true, bonus: Bonus::Raw, is_gated: true }))
    }
}

impl Blueprint for Rwkv5 {
    fn facts(&self) -> Facts {
        let version = match (self.is_gated, self.per_channel) {
            (false, _) => "5.0",
            (true, false) => "5.1",
            (true, true) => "x052",
        };
        self.base.facts("rwkv5", version)
    }

    fn record(&self, t: &mut Tape) {
        self.base.record(t, &mut |t, layer, x| self.block(t, layer, x));
    }
}

impl Rwkv5 {
    fn block(&self, t: &mut Tape, l: &Layer<'_>, x: Var) {
        // The projections r, k, v and g. Each projection reads its own lerp between LN1(x) of the previous token and LN1(x) of this token.
        let mix = |name: &str| l.att(name).map(of_current);
        let mut lerps = l.lerps("ln1");
        lerps.project(mix("time_mix_r"), l.matrix("receptance"), Activation::None);
        lerps.project(mix("time_mix_k"), l.matrix("key"), Activation::None);
        lerps.project(mix("time_mix_v"), l.matrix("value"), Activation::None);
        let gate = self.is_gated.then(|| lerps.project(mix("time_mix_g"), l.matrix("gate"), Activation::Silu));
        let shift = l.att_shift(t);
        let proj = lerps.record(t, "proj", x, shift);

        // The bonus u of the current token, and the constant decay w = exp(−exp(time_decay)).
        let u = match self.bonus {
            Bonus::Raw => l.att("time_faaaa"),
            Bonus::Log => l.att("time_first").map(f32::exp),
        };
        let w = l.att("time_decay").map(|d| (-d.exp()).exp());
        let [ln_g, ln_b] = l.ln_x();
        let wkv = Wkv6 {
            head_size: self.base.head_size,
            eps: self.base.group_norm_eps,
            vectors: t.vectors(self.base.n_att, vec![self.spread(u), ln_g, ln_b, self.spread(w)]),
            decay: Decay::Constant,
            gate,
            state: l.wkv_state(t),
        };
        let y = t.wkv6(proj, wkv);
        l.output(t, y, x);

        l.channel_mix(t, x, l.ffn("time_mix_k").map(of_current), l.ffn("time_mix_r").map(of_current));
    }

    /// Returns the decay or bonus `part` with one element per channel of the time mix. In 5.0 and 5.1, the tensor has one element per head,
    /// which is repeated for all its channels.
    fn spread(&self, part: VectorPart) -> VectorPart {
        if self.per_channel { part.shaped(self.base.n_head(), self.base.head_size) } else { part.repeated(self.base.head_size) }
    }
}
