//! RWKV-6 "Finch" (x060). Letters as in the paper.

use super::detect::dims;
use super::stack::{Base, Layer, seven_halves};
use super::{Architecture, Blueprint, Facts, Shapes};
use crate::error::{Error, Result};
use crate::tape::{Tape, Var};
use crate::words::{Activation, DdLerp, Decay, Projection, Wkv6};

/// Blueprint.
#[derive(Debug, Clone)]
pub struct Rwkv6 {
    pub base: Base,
    /// Rank of the pairs that move a lerp, and of the pair that moves the decay.
    pub mix_rank: usize,
    pub decay_rank: usize,
}

/// What the lerps are for, in the order of their weights.
const MIXES: [&str; 5] = ["w", "k", "v", "r", "g"];
const W: usize = 0;
const K: usize = 1;
const V: usize = 2;
const R: usize = 3;
const G: usize = 4;

/// Columns of the projections behind r, k and v.
const GATE: usize = 3;
const DECAY: usize = 4;

pub struct Rwkv6Arch;

impl Architecture for Rwkv6Arch {
    fn name(&self) -> &'static str {
        "rwkv6"
    }

    fn about(&self) -> &'static str {
        "RWKV-6 (x060)"
    }

    fn recognises(&self, shapes: &dyn Shapes) -> bool {
        ["time_maa_w1", "time_maa_x", "time_decay_w1"].iter().any(|n| shapes.has_att(n))
    }

    fn read(&self, shapes: &dyn Shapes) -> Result<Box<dyn Blueprint>> {
        let [n_head, _] = dims(shapes, "blocks.0.att.time_faaaa")?;
        let [_, mixes] = dims(shapes, "blocks.0.att.time_maa_w1")?;
        let [_, decay_rank] = dims(shapes, "blocks.0.att.time_decay_w1")?;
        let mix_rank = mixes / MIXES.len();
        if mix_rank * MIXES.len() != mixes || mixes == 0 || decay_rank == 0 {
            return Err(Error::model(format!(
                "expected low-rank pairs for {} lerps and the decay, found {mixes} and {decay_rank} columns",
                MIXES.len()
            )));
        }
        Ok(Box::new(Rwkv6 { base: Base::read(shapes, n_head)?, mix_rank, decay_rank }))
    }

    fn published(&self, size: &str) -> Option<Box<dyn Blueprint>> {
        let base = Base::published(size, seven_halves)?;
        let mix_rank = if base.n_embd < 4096 { 32 } else { 64 };
        Some(Box::new(Rwkv6 { base, mix_rank, decay_rank: 2 * mix_rank }))
    }
}

impl Blueprint for Rwkv6 {
    fn facts(&self) -> Facts {
        self.base.facts("rwkv6", "x060")
    }

    fn record(&self, t: &mut Tape) {
        self.base.record(t, |t, layer, x| self.block(t, layer, x));
    }
}

impl Rwkv6 {
    fn block(&self, t: &mut Tape, l: &Layer<'_>, x: Var) {
        let (a, base) = (self.base.n_att, &self.base);
        // r k v g and the input of the decay, each from a lerp that depends on the token
        let ln1 = l.norm_and(t, "ln1", [l.att("time_maa_x")]);
        let lerp = DdLerp {
            rank: self.mix_rank,
            w1: l.name("att.time_maa_w1"),
            w2: l.name("att.time_maa_w2"),
            mixes: t.vectors(base.n_embd, MIXES.map(|m| l.att(&format!("time_maa_{m}"))).into()),
        };
        let projections = vec![
            Projection { part: l.matrix("receptance"), mix: R, activation: Activation::None },
            Projection { part: l.matrix("key"), mix: K, activation: Activation::None },
            Projection { part: l.matrix("value"), mix: V, activation: Activation::None },
            Projection { part: l.matrix("gate"), mix: G, activation: Activation::Silu },
            Projection { part: l.reduce("time_decay_w1", self.decay_rank), mix: W, activation: Activation::Tanh },
        ];
        let shift = l.att_shift(t);
        let proj = t.norm_ddlerp_linear("proj", x, ln1, lerp, projections, shift);

        // per head: the decay of this token, w = exp(−exp(d + W2 tanh(W1 X_w))), the bonus u
        let part = l.expand("time_decay_w2", self.decay_rank);
        let bias = t.vectors(a, vec![l.att("time_decay")]);
        let u = l.att("time_faaaa").shaped(base.n_head(), base.head_size);
        let vectors = t.vectors(a, [u].into_iter().chain(l.ln_x()).collect());
        let decay = Decay::LowRank { part, bias, column: DECAY };
        let state = l.wkv_state(t);
        let wkv = Wkv6 { head_size: base.head_size, eps: base.group_norm_eps, vectors, decay, gate: Some(GATE), state };
        let y = t.wkv6(proj, wkv);
        l.output(t, y, x);
        l.channel_mix(t, x, l.ffn("time_maa_k"), l.ffn("time_maa_r"));
    }
}
