//! RWKV-7 "Goose" (x070). Letters as in the paper.

use super::detect::dims;
use super::stack::{Base, Layer};
use super::{Architecture, Blueprint, Facts, Shapes};
use crate::error::{Error, Result};
use crate::tape::{Part, Tape, Var};
use crate::words::{Activation, Projection, Wkv7};

/// Blueprint.
#[derive(Debug, Clone)]
pub struct Rwkv7 {
    pub base: Base,
    /// Ranks of the low-rank pairs of decay w, rate a, value residual v and gate g.
    pub ranks: Ranks,
}

#[derive(Debug, Clone, Copy)]
pub struct Ranks {
    pub w: usize,
    pub a: usize,
    pub v: usize,
    pub g: usize,
}

pub struct Family;

impl Architecture for Family {
    fn name(&self) -> &'static str {
        "rwkv7"
    }

    fn recognises(&self, shapes: &dyn Shapes) -> bool {
        ["r_k", "x_r", "k_k"].iter().any(|n| shapes.has_att(n))
    }

    fn read(&self, shapes: &dyn Shapes) -> Result<Box<dyn Blueprint>> {
        let [n_head, head_size] = dims(shapes, "blocks.0.att.r_k")?;
        let base = Base::read(shapes, n_head)?;
        if base.n_att != base.n_embd {
            let text = format!("expected a time mix as wide as the embedding, {}, found {}", base.n_embd, base.n_att);
            return Err(Error::model(text).at("blocks.0.att.key.weight"));
        }
        if n_head.checked_mul(head_size) != Some(base.n_embd) {
            let text = format!("{n_head} heads of {head_size} do not make a width of {}", base.n_embd);
            return Err(Error::model(text).at("blocks.0.att.r_k"));
        }
        let rank = |tensor: &str| dims(shapes, tensor).map(|[_, rank]: [usize; 2]| rank);
        let ranks = Ranks {
            w: rank("blocks.0.att.w1")?,
            a: rank("blocks.0.att.a1")?,
            v: if base.n_layer > 1 { rank("blocks.1.att.v1")? } else { 0 },
            g: rank("blocks.0.att.g1")?,
        };
        if ranks.w == 0 || ranks.a == 0 || ranks.g == 0 || (base.n_layer > 1 && ranks.v == 0) {
            return Err(Error::model(format!("expected low-rank pairs of rank 1 or more, found {ranks:?}")));
        }
        Ok(Box::new(Rwkv7 { base, ranks }))
    }

    fn published(&self, size: &str) -> Option<Box<dyn Blueprint>> {
        let base = Base::published(size, |c| 4 * c)?;
        let [w, a, v, g] = match base.n_embd {
            0..2048 => [64, 64, 32, 128],
            2048 => [96, 96, 64, 256],
            2560 => [96, 96, 64, 320],
            _ => [128, 128, 96, 480],
        };
        Some(Box::new(Rwkv7 { base, ranks: Ranks { w, a, v, g } }))
    }
}

impl Blueprint for Rwkv7 {
    fn facts(&self) -> Facts {
        self.base.facts("rwkv7", "x070")
    }

    fn record(&self, t: &mut Tape) {
        let mut v_first = None;
        self.base.record(t, |t, layer, x| {
            let v = self.block(t, layer, x, v_first);
            if v_first.replace(v).is_none() {
                t.carry(v);
            }
        });
    }
}

impl Rwkv7 {
    /// One block. Gives v of layer 0, which later layers mix into their own.
    fn block(&self, t: &mut Tape, l: &Layer<'_>, x: Var, v_first: Option<Var>) -> Var {
        let (c, f, base, r) = (self.base.n_embd, self.base.n_ffn, &self.base, self.ranks);

        // r k v and the inputs of the low-rank pairs, each from its own lerp of LN1(x) with the token before
        let ln1 = l.norm_and(t, "ln1", ["x_r", "x_k", "x_v", "x_w", "x_a", "x_g"].map(|m| l.att(m)));
        let mut projections = vec![
            l.projection("receptance", 0, Activation::None),
            l.projection("key", 1, Activation::None),
            l.projection("value", 2, Activation::None),
            l.low_rank("w1", r.w, 3, Activation::Tanh),
            l.low_rank("a1", r.a, 4, Activation::None),
            l.low_rank("g1", r.g, 5, Activation::Sigmoid),
        ];
        let mut lora = vec![l.back("w2", r.w), l.back("a2", r.a), l.back("g2", r.g)];
        let mut bias = vec![l.att("w0"), l.att("a0")];
        if v_first.is_some() {
            projections.push(l.low_rank("v1", r.v, 2, Activation::None));
            lora.push(l.back("v2", r.v));
            bias.push(l.att("v0"));
        }
        let shift = l.att_shift(t);
        let proj = t.norm_shift_linear("proj", x, ln1, projections, shift);

        // per head: decay, rate a, value residual, delta rule, group norm, bonus, gate
        let r_k = l.att("r_k").shaped(base.n_head(), base.head_size);
        let vectors = [l.att("k_k"), l.att("k_a"), r_k].into_iter().chain(l.ln_x()).collect();
        let wkv = Wkv7 {
            head_size: base.head_size,
            eps: base.group_norm_eps,
            lora,
            bias: t.vectors(c, bias),
            vectors: t.vectors(c, vectors),
            state: l.wkv_state(t),
            v_first,
        };
        let (y, v_first) = t.wkv7(proj, wkv);
        l.output(t, y, x);

        // channel mix: relu²(W_k lerp(LN2(x))), then W_v
        let ln2 = l.norm_and(t, "ln2", [l.ffn("x_k")]);
        let key = Projection { part: Part::new(l.name("ffn.key.weight"), f, c), mix: 0, activation: Activation::ReluSquared };
        let shift = l.ffn_shift(t);
        let k = t.norm_shift_linear("ffn", x, ln2, vec![key], shift);
        t.linear_add_sparse(Part::new(l.name("ffn.value.weight"), c, f), k, x);
        v_first
    }
}
