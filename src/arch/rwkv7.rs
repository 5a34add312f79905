//! RWKV-7 "Goose" (x070). Letters as in the paper.

use super::detect::dims;
use super::{Architecture, Blueprint, Facts, Shapes, stack};
use crate::error::{Error, Result};
use crate::tape::{Part, State, Tape, Var, vector};
use crate::words::{Activation, Projection, Wkv7};

/// Blueprint: everything that shapes say.
#[derive(Debug, Clone)]
pub struct Rwkv7 {
    pub n_layer: usize,
    /// C = n_head x head_size.
    pub n_embd: usize,
    pub n_ffn: usize,
    pub n_vocab: usize,
    pub head_size: usize,
    /// Ranks of the low-rank pairs of decay w, rate a, value residual v and gate g.
    pub ranks: Ranks,
    /// Absent where the file's embedding is normalised already.
    pub has_ln0: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Ranks {
    pub w: usize,
    pub a: usize,
    pub v: usize,
    pub g: usize,
}

/// head_size_divisor² x 1e-5, whatever the head size.
const GROUP_NORM_EPS: f32 = 64e-5;

pub struct Family;

impl Architecture for Family {
    fn name(&self) -> &'static str {
        "rwkv7"
    }

    fn recognises(&self, shapes: &dyn Shapes) -> bool {
        shapes.shape("blocks.0.att.r_k").is_some()
    }

    fn read(&self, shapes: &dyn Shapes) -> Result<Box<dyn Blueprint>> {
        let [n_vocab, n_embd] = dims(shapes, "emb.weight")?;
        let [n_head, head_size] = dims(shapes, "blocks.0.att.r_k")?;
        let [n_ffn, _] = dims(shapes, "blocks.0.ffn.key.weight")?;
        if n_head.checked_mul(head_size) != Some(n_embd) {
            return Err(Error::model(format!("{n_head} heads of {head_size} do not make a width of {n_embd}")).at("blocks.0.att.r_k"));
        }
        if !(1..=128).contains(&head_size) || n_vocab == 0 || n_embd == 0 || n_ffn == 0 {
            let text = format!(
                "expected head sizes from 1 to 128 and no empty matrix, found head size {head_size}, width {n_embd}, ffn {n_ffn}, vocabulary {n_vocab}"
            );
            return Err(Error::model(text));
        }
        let rank = |tensor: &str| dims(shapes, tensor).map(|[_, rank]: [usize; 2]| rank);
        let n_layer = shapes.n_layer();
        let ranks = Ranks {
            w: rank("blocks.0.att.w1")?,
            a: rank("blocks.0.att.a1")?,
            v: if n_layer > 1 { rank("blocks.1.att.v1")? } else { 0 },
            g: rank("blocks.0.att.g1")?,
        };
        if ranks.w == 0 || ranks.a == 0 || ranks.g == 0 || (n_layer > 1 && ranks.v == 0) {
            return Err(Error::model(format!("expected low-rank pairs of rank 1 or more, found {ranks:?}")));
        }
        let has_ln0 = shapes.shape("blocks.0.ln0.weight").is_some();
        Ok(Box::new(Rwkv7 { n_layer, n_embd, n_ffn, n_vocab, head_size, ranks, has_ln0 }))
    }

    fn published(&self, size: &str) -> Option<Box<dyn Blueprint>> {
        let (n_layer, n_embd, [w, a, v, g]) = match size {
            "0.1b" => (12, 768, [64, 64, 32, 128]),
            "0.4b" => (24, 1024, [64, 64, 32, 128]),
            "1.5b" => (24, 2048, [96, 96, 64, 256]),
            "2.9b" => (32, 2560, [96, 96, 64, 320]),
            "7.2b" => (32, 4096, [128, 128, 96, 480]),
            _ => return None,
        };
        let ranks = Ranks { w, a, v, g };
        Some(Box::new(Rwkv7 { n_layer, n_embd, n_ffn: 4 * n_embd, n_vocab: 65536, head_size: 64, ranks, has_ln0: true }))
    }
}

impl Blueprint for Rwkv7 {
    fn facts(&self) -> Facts {
        Facts {
            architecture: "rwkv7",
            version: "x070",
            n_layer: self.n_layer,
            n_embd: self.n_embd,
            n_ffn: self.n_ffn,
            n_head: self.n_embd / self.head_size,
            head_size: self.head_size,
            n_vocab: self.n_vocab,
        }
    }

    fn record(&self, t: &mut Tape) {
        let x = stack::embed(t, self.n_vocab, self.n_embd, self.has_ln0);
        let mut v_first = None;
        for layer in 0..self.n_layer {
            let state = LayerState::new(t, self, layer);
            v_first = Some(self.block(t, layer, &state, x, v_first));
        }
        stack::head(t, x, self.n_vocab, self.n_embd);
    }
}

/// What a layer remembers between tokens.
struct LayerState {
    /// LN1(x) and LN2(x) of the last token, `[C]`.
    att_shift: State,
    ffn_shift: State,
    /// `[H, S (value), S (key)]`
    wkv: State,
}

impl LayerState {
    fn new(t: &mut Tape, m: &Rwkv7, layer: usize) -> Self {
        let (c, s) = (m.n_embd, m.head_size);
        LayerState {
            att_shift: t.state(format!("blocks.{layer}.att.shift"), &[c], true),
            wkv: t.state(format!("blocks.{layer}.att.wkv"), &[c / s, s, s], false),
            ffn_shift: t.state(format!("blocks.{layer}.ffn.shift"), &[c], true),
        }
    }
}

impl Rwkv7 {
    /// One block. Gives v of layer 0, which later layers mix into their own.
    fn block(&self, t: &mut Tape, layer: usize, s: &LayerState, x: Var, v_first: Option<Var>) -> Var {
        let (c, f, r) = (self.n_embd, self.n_ffn, self.ranks);
        let b = format!("blocks.{layer}");
        let att = |name: &str| format!("{b}.att.{name}");
        let is_first = v_first.is_none();

        // r k v and the inputs of the low-rank pairs, each from its own lerp of LN1(x) with the token before
        let mixes = ["x_r", "x_k", "x_v", "x_w", "x_a", "x_g"].map(|m| vector(att(m))).into();
        let ln1 = stack::norm_and(t, c, &format!("{b}.ln1"), mixes);
        let full = |name: &str, mix| Projection { part: Part::new(att(name), c, c), mix, activation: Activation::None };
        let low = |name: &str, rank, mix, activation| Projection { part: Part::in_out(att(name), rank, c), mix, activation };
        let mut projections = vec![
            full("receptance.weight", 0),
            full("key.weight", 1),
            full("value.weight", 2),
            low("w1", r.w, 3, Activation::Tanh),
            low("a1", r.a, 4, Activation::None),
            low("g1", r.g, 5, Activation::Sigmoid),
        ];
        let mut lora = vec![("w2", r.w), ("a2", r.a), ("g2", r.g)];
        let mut bias = vec!["w0", "a0"];
        if !is_first {
            projections.push(low("v1", r.v, 2, Activation::None));
            lora.push(("v2", r.v));
            bias.push("v0");
        }
        let proj = t.norm_shift_linear("proj", x, ln1, projections, s.att_shift);

        // per head: decay, rate a, value residual, delta rule, group norm, bonus, gate
        let head = ["k_k", "k_a"].map(|n| vector(att(n))).into_iter();
        let head = head.chain([vector(att("r_k")).shaped(c / self.head_size, self.head_size)]).chain(stack::norm(&att("ln_x")));
        let wkv = Wkv7 {
            head_size: self.head_size,
            eps: GROUP_NORM_EPS,
            lora: lora.into_iter().map(|(name, rank)| Part::in_out(att(name), c, rank)).collect(),
            bias: t.vectors(c, bias.into_iter().map(|n| vector(att(n))).collect()),
            vectors: t.vectors(c, head.collect()),
            state: s.wkv,
            v_first,
        };
        let (y, v_first) = t.wkv7(proj, wkv);
        t.linear_add(Part::new(att("output.weight"), c, c), y, x);

        // channel mix: relu²(W_k lerp(LN2(x))), then W_v
        let ln2 = stack::norm_and(t, c, &format!("{b}.ln2"), vec![vector(format!("{b}.ffn.x_k"))]);
        let key = Projection { part: Part::new(format!("{b}.ffn.key.weight"), f, c), mix: 0, activation: Activation::ReluSquared };
        let k = t.norm_shift_linear("ffn", x, ln2, vec![key], s.ffn_shift);
        t.linear_add_sparse(Part::new(format!("{b}.ffn.value.weight"), c, f), k, x);
        v_first
    }
}
