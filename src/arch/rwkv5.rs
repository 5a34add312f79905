//! RWKV-5 "Eagle": 5.0, 5.1 and 5.2 (x052). Letters as in the paper.

use super::detect::dims;
use super::stack::{Base, Layer, of_current, seven_halves};
use super::{Architecture, Blueprint, Facts, Shapes};
use crate::error::{Error, Result};
use crate::tape::{Tape, Var, VectorPart};
use crate::words::{Activation, Decay, Wkv6};

/// Blueprint: the three versions differ in who shares a decay and in the gate.
#[derive(Debug, Clone)]
pub struct Rwkv5 {
    pub base: Base,
    /// 5.2: decay and bonus for each channel. Before: for each head.
    pub per_channel: bool,
    pub bonus: Bonus,
    /// From 5.1 on.
    pub is_gated: bool,
}

/// How a file stores u.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bonus {
    /// `time_faaaa`: u.
    Raw,
    /// `time_first` of the first models: u = exp(time_first).
    Log,
}

/// Index of the gate among mixes and projections: behind r, k and v.
const GATE: usize = 3;

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
        let decay = shapes.shape(tensor).ok_or_else(|| Error::model(format!("the tensor {tensor} is missing")))?;
        let [n_att, _] = dims(shapes, "blocks.0.att.key.weight")?;
        let per_channel = decay.len() >= 2 && decay.iter().product::<usize>() == n_att;
        let n_head = if per_channel { dims::<2>(shapes, tensor)?[0] } else { decay.iter().product() };
        Ok(Box::new(Rwkv5 {
            base: Base::read(shapes, n_head)?,
            per_channel,
            bonus: if shapes.has_att("time_faaaa") { Bonus::Raw } else { Bonus::Log },
            // In any layer: a file that lacks one of its gates is broken, not of the version before.
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
        self.base.record(t, |t, layer, x| self.block(t, layer, x));
    }
}

impl Rwkv5 {
    fn block(&self, t: &mut Tape, l: &Layer<'_>, x: Var) {
        // r k v and the gate, each from its own lerp of LN1(x) with the token before
        let mix = |name: &str| l.att(name).map(of_current);
        let mut lerps = l.lerps("ln1");
        lerps.project(mix("time_mix_r"), l.matrix("receptance"), Activation::None);
        lerps.project(mix("time_mix_k"), l.matrix("key"), Activation::None);
        lerps.project(mix("time_mix_v"), l.matrix("value"), Activation::None);
        if self.is_gated {
            lerps.project(mix("time_mix_g"), l.matrix("gate"), Activation::Silu);
        }
        let shift = l.att_shift(t);
        let proj = lerps.record(t, "proj", x, shift);

        // per head: a decay w = exp(−exp(decay)) that never changes, the bonus u for the current token
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
            gate: self.is_gated.then_some(GATE),
            state: l.wkv_state(t),
        };
        let y = t.wkv6(proj, wkv);
        l.output(t, y, x);
        l.channel_mix(t, x, l.ffn("time_mix_k").map(of_current), l.ffn("time_mix_r").map(of_current));
    }

    /// A number a channel, or one a head for all of its channels.
    fn spread(&self, part: VectorPart) -> VectorPart {
        if self.per_channel { part.shaped(self.base.n_head(), self.base.head_size) } else { part.repeated(self.base.head_size) }
    }
}
