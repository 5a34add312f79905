//! RWKV-4 "Dove". Letters as in the paper.

use super::detect::dims;
use super::stack::{Base, Layer, of_current};
use super::{Architecture, Blueprint, Facts, Shapes};
use crate::error::{Error, Result};
use crate::tape::{Tape, Var};
use crate::words::Activation;

/// Blueprint: nothing but the sizes that all have. No heads: every channel is alone.
#[derive(Debug, Clone)]
pub struct Rwkv4(pub Base);

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
            return Err(Error::model(format!("expected {n_att} decays, one for each channel, found {n_decay}")));
        }
        Ok(Box::new(Rwkv4(Base::read(shapes, n_att)?)))
    }

    fn published(&self, size: &str) -> Option<Box<dyn Blueprint>> {
        let base = Base::published(size, |c| 4 * c)?;
        Some(Box::new(Rwkv4(Base { head_size: 1, ..base })))
    }
}

impl Blueprint for Rwkv4 {
    fn facts(&self) -> Facts {
        Facts { n_head: 1, head_size: self.0.n_att, ..self.0.facts("rwkv4", "4.0") }
    }

    fn record(&self, t: &mut Tape) {
        self.0.record(t, |t, layer, x| self.block(t, layer, x));
    }
}

impl Rwkv4 {
    fn block(&self, t: &mut Tape, l: &Layer<'_>, x: Var) {
        // r k v, each from its own lerp of LN1(x) with the token before
        let mix = |name: &str| l.att(name).map(of_current);
        let mut lerps = l.lerps("ln1");
        lerps.project(mix("time_mix_r"), l.matrix("receptance"), Activation::Sigmoid);
        lerps.project(mix("time_mix_k"), l.matrix("key"), Activation::None);
        lerps.project(mix("time_mix_v"), l.matrix("value"), Activation::None);
        let shift = l.att_shift(t);
        let rkv = lerps.record(t, "proj", x, shift);

        // per channel: w = −exp(decay) is added to exponents, u to that of the current token
        let wu = t.vectors(self.0.n_att, vec![l.att("time_decay").map(|d| -d.exp()), l.att("time_first")]);
        let state = t.wkv4_state(l.name("att.wkv"), self.0.n_att);
        t.wkv4_linear_add(rkv, wu, state, l.output_part(), x);
        l.channel_mix(t, x, l.ffn("time_mix_k").map(of_current), l.ffn("time_mix_r").map(of_current));
    }
}
