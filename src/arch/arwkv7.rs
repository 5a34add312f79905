//! The architecture ARWKV-7: RWKV-7's time mix ([`TimeMix`]) in the body of Qwen2 ([`QwenBody`]). Source: arXiv 2501.15570; the formulas of
//! llama.cpp's `arwkv7`.
//!
//! Some models have no gate in the time mix, and some have no group norm. Only the time mix has a token shift.

use super::detect::dims;
use super::qwen::{self, QwenBody};
use super::rwkv7::{Ranks, TimeMix};
use super::{Architecture, Blueprint, Facts, Shapes};
use crate::error::{Error, Result};
use crate::sample::Sampling;
use crate::tape::Tape;
use std::collections::BTreeMap;

/// The sizes of an ARWKV-7 model.
#[derive(Debug, Clone)]
pub struct Arwkv7 {
    pub body: QwenBody,
    /// The ranks of the low-rank pairs. The time mix has no gate if `g` is 0.
    pub ranks: Ranks,
    /// True if the time mix has a group norm.
    pub is_normed: bool,
}

/// The architecture ARWKV-7.
pub struct Arwkv7Arch;

impl Architecture for Arwkv7Arch {
    fn name(&self) -> &'static str {
        "arwkv7"
    }

    fn about(&self) -> &'static str {
        "ARWKV-7"
    }

    fn recognises(&self, shapes: &dyn Shapes) -> bool {
        qwen::recognises(shapes) && ["r_k", "x_r", "k_k"].iter().any(|n| shapes.has_att(n))
    }

    fn read(&self, shapes: &dyn Shapes) -> Result<Box<dyn Blueprint>> {
        let [n_head, head_size] = dims(shapes, "blocks.0.att.r_k")?;
        let body = QwenBody::read(shapes, n_head)?;
        let base = &body.base;
        if base.n_att != base.n_embd || n_head.checked_mul(head_size) != Some(base.n_embd) {
            let text = format!(
                "expected {} heads of {head_size} channels that fill the width, found a width of {} and {} rows of receptance",
                n_head, base.n_embd, base.n_att
            );
            return Err(Error::model(text).at("blocks.0.att.r_k"));
        }
        let ranks = Ranks::read(shapes, base.n_layer, false)?;
        let is_normed = ["weight", "bias"].iter().any(|n| shapes.has_att(&format!("ln_x.{n}")));
        Ok(Box::new(Arwkv7 { body, ranks, is_normed }))
    }

    fn sizes(&self) -> &'static [&'static str] {
        &["1.5b", "7b"]
    }

    fn published(&self, size: &str) -> Option<Box<dyn Blueprint>> {
        let (width, n_ffn) = match size {
            "1.5b" => (1536, 8960),
            "7b" => (3584, 18944),
            _ => return None,
        };
        let body = QwenBody::published(28, width, n_ffn, 64);
        Some(Box::new(Arwkv7 { body, ranks: Ranks { w: 64, a: 64, v: 32, g: 128 }, is_normed: false }))
    }
}

impl Blueprint for Arwkv7 {
    fn facts(&self) -> Facts {
        self.body.facts("arwkv7")
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        self.body.metadata()
    }

    fn sampling(&self) -> Sampling {
        Sampling::qwen()
    }

    fn record(&self, t: &mut Tape) {
        let mut v_first = None;
        let base = &self.body.base;
        let mix = TimeMix { base, ranks: self.ranks, is_normed: self.is_normed };
        base.record(t, &mut |t, layer, x| {
            let v = mix.record(t, layer, x, v_first, &mut |_| ());
            if v_first.replace(v).is_none() {
                t.carry(v);
            }
            self.body.mlp(t, layer, x);
        });
    }
}
