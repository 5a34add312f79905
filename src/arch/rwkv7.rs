//! The architecture RWKV-7 "Goose" (x070), and its variants: RWKV-7a with DeepEmbed (x070a), and RWKV-7b, which adds the attention of
//! `deep_attention.rs` (x070b). Letters follow the paper (arXiv 2503.14456, section 4). Each W is a weight matrix of the checkpoint.
//!
//! x is the residual stream, x̂ = LN(x), and x̂₋ is x̂ of the previous token. Below are the equations of one block. `Tape::NAME` at the
//! right is the word (fused operation) that computes the equations from its line on:
//!
//! ```text
//! time mix                                                                              Tape::norm_shift_linear
//!   X_m = x̂ + (x̂₋ − x̂) ⊙ x_m                          for m of r, k, v, w, a, g
//!   r = W_r X_r    k = W_k X_k    v = W_v X_v
//!                                                                                         Tape::wkv7, per head
//!   w = exp(−e^(−½) σ(w0 + w2 tanh(w1 X_w)))            decay of each channel, in (0.545, 1)
//!   a = σ(a0 + a2 a1 X_a)                                rate at which the state learns
//!   g = g2 σ(g1 X_g)                                     gate
//!   v ← v + (v_first − v) ⊙ σ(v0 + v2 v1 X_v)           from layer 1 on; v_first is v of layer 0
//!   κ = k ⊙ k_k / ‖k ⊙ k_k‖                              the key that is removed from the state
//!   k ← k ⊙ (1 + (a − 1) ⊙ k_a)                          the key that is added to the state
//!   S ← S diag(w) − S κ (κ ⊙ a)ᵀ + v kᵀ                  state, [value][key]
//!   y = g ⊙ (GroupNorm(S r) + (Σ r ⊙ k ⊙ r_k) v)
//!                                                                                         Tape::linear_add
//!   x ← x + W_o y
//! channel mix                                                                           Tape::norm_shift_linear
//!   X = x̂ + (x̂₋ − x̂) ⊙ x_k
//!   k = relu²(W_k X)    q = s1 x̂                        q only in RWKV-7a and 7b
//!                                                                                         Tape::deep_embed, only in RWKV-7a and 7b
//!   M = s_emb[token] + s_emb_x x0                        [R, R]; x0 = LN0(E[token]) is x before the first block
//!   k ← k ⊙ (s0 + s2 (q M))                              q is a row vector
//!   x ← x + W_v k                                                                         Tape::linear_add_sparse
//! ```
//!
//! The words of a block are [`Tape::norm_shift_linear`], [`Tape::wkv7`], [`Tape::linear_add`], [`Tape::deep_embed`] and
//! [`Tape::linear_add_sparse`].

use super::deep_attention::{self, DeepAttention};
use super::detect::dims;
use super::stack::{Base, Layer};
use super::{Architecture, Blueprint, Facts, Purpose, Shapes, Variant};
use crate::error::{Error, Result};
use crate::tape::{MatrixPart, Tape, Var};
use crate::words::{Activation, DeepEmbed, Expansion, HeadNorm, ValueResidual, Wkv7};

/// The sizes of an RWKV-7 model.
#[derive(Debug, Clone)]
pub struct Rwkv7 {
    pub base: Base,
    pub ranks: Ranks,
    /// The rank R of DeepEmbed in RWKV-7a and 7b, 32 in every published model. `None` in RWKV-7.
    pub deep_embed: Option<usize>,
    /// The sizes of the attention in RWKV-7b. `None` in RWKV-7 and 7a. A model with attention also has DeepEmbed.
    pub attention: Option<DeepAttention>,
}

/// The rank R of DeepEmbed in published models.
const DEEP_EMBED_RANK: usize = 32;

/// The ranks of four low-rank pairs: decay w, rate a, value residual v and gate g. `v` is 0 in a model of one layer, which has no such pair.
#[derive(Debug, Clone, Copy)]
pub struct Ranks {
    pub w: usize,
    pub a: usize,
    pub v: usize,
    pub g: usize,
}

impl Ranks {
    /// Reads the ranks from the shape of the first matrix of each low-rank pair. A gate that the file lacks has rank 0 if `needs_gate` is false.
    ///
    /// # Errors
    ///
    /// `Model` if a matrix is missing or has no columns.
    pub fn read(shapes: &dyn Shapes, n_layer: usize, needs_gate: bool) -> Result<Ranks> {
        let rank = |tensor: &str| dims(shapes, tensor).map(|[_, rank]: [usize; 2]| rank);
        let is_gated = needs_gate || shapes.has_att("g1") || shapes.has_att("g2");
        let ranks = Ranks {
            w: rank("blocks.0.att.w1")?,
            a: rank("blocks.0.att.a1")?,
            v: if n_layer > 1 { rank("blocks.1.att.v1")? } else { 0 },
            g: if is_gated { rank("blocks.0.att.g1")? } else { 0 },
        };
        if ranks.w == 0 || ranks.a == 0 || (is_gated && ranks.g == 0) || (n_layer > 1 && ranks.v == 0) {
            return Err(Error::model(format!(
                "expected low-rank matrices with at least 1 column, found {} columns in att.w1, {} in att.a1, {} in att.v1 and {} in att.g1",
                ranks.w, ranks.a, ranks.v, ranks.g
            )));
        }
        Ok(ranks)
    }
}

/// The architecture RWKV-7.
pub struct Rwkv7Arch;

impl Architecture for Rwkv7Arch {
    fn name(&self) -> &'static str {
        "rwkv7"
    }

    fn about(&self) -> &'static str {
        "RWKV-7 (x070, x070a, x070b)"
    }

    fn recognises(&self, shapes: &dyn Shapes) -> bool {
        ["r_k", "x_r", "k_k"].iter().any(|n| shapes.has_att(n))
    }

    fn read(&self, shapes: &dyn Shapes) -> Result<Box<dyn Blueprint>> {
        let [n_head, head_size] = dims(shapes, "blocks.0.att.r_k")?;
        let mut base = Base::read(shapes, n_head)?;
        base.purpose = Purpose::read(shapes, base.n_layer)?;
        if base.n_att != base.n_embd {
            let text = format!("expected {} rows, the width of the embedding, found {} rows", base.n_embd, base.n_att);
            return Err(Error::model(text).at("blocks.0.att.key.weight"));
        }
        if n_head.checked_mul(head_size) != Some(base.n_embd) {
            let text = format!("expected heads that fill a width of {}, found {n_head} heads of {head_size} channels", base.n_embd);
            return Err(Error::model(text).at("blocks.0.att.r_k"));
        }
        let ranks = Ranks::read(shapes, base.n_layer, true)?;
        let deep_embed = deep_embed_rank(shapes, &base)?;
        let attention = DeepAttention::read(shapes, &base, deep_embed.is_some())?;
        Ok(Box::new(Rwkv7 { base, ranks, deep_embed, attention }))
    }

    fn sizes(&self) -> &'static [&'static str] {
        &["0.1b", "0.4b", "1.5b", "2.9b", "7.2b", "13.3b"]
    }

    fn published(&self, size: &str) -> Option<Box<dyn Blueprint>> {
        Some(Box::new(Rwkv7::published(size)?))
    }

    fn variants(&self) -> &'static [Variant] {
        &[
            ("rwkv7a-0.1b", || Box::new(Rwkv7::variant("0.1b", None))),
            ("rwkv7b-0.1b", || Box::new(Rwkv7::variant("0.1b", Some(DeepAttention::PUBLISHED)))),
        ]
    }
}

/// Returns the rank R of DeepEmbed, or `None` if the file has no table `ffn.s_emb`.
fn deep_embed_rank(shapes: &dyn Shapes, base: &Base) -> Result<Option<usize>> {
    if shapes.find(&|name| name.contains(".ffn.s_emb.")).is_none() {
        return Ok(None);
    }
    let (s1, s_emb) = ("blocks.0.ffn.s1", "blocks.0.ffn.s_emb.weight");
    let [_, rank] = dims(shapes, s1)?;
    let [rows, columns] = dims(shapes, s_emb)?;
    if rank == 0 || rank.checked_mul(rank) != Some(columns) || rows != base.n_vocab {
        let text = format!(
            "expected {} rows of R x R numbers, where R is the number of columns of {s1}, found {rows} rows of {columns} numbers and R = {rank}",
            base.n_vocab
        );
        return Err(Error::model(text).at(s_emb));
    }
    Ok(Some(rank))
}

impl Blueprint for Rwkv7 {
    fn facts(&self) -> Facts {
        let facts = |version| self.base.facts("rwkv7", version);
        match (self.deep_embed, self.attention) {
            (_, Some(_)) => Facts { context: Some(deep_attention::CONTEXT), ..facts("x070b") },
            (Some(_), None) => facts("x070a"),
            (None, None) => facts("x070"),
        }
    }

    fn record(&self, t: &mut Tape) {
        let (mut v_first, mut x0) = (None, None);
        self.base.record(t, &mut |t, layer, x| {
            let deep_embed = self.deep_embed.map(|rank| (rank, *x0.get_or_insert_with(|| layer.embedding(t))));
            let mix = TimeMix { base: &self.base, ranks: self.ranks, is_normed: true };
            let v = mix.record(t, layer, x, v_first, &mut |t| {
                if let Some((attention, (_, x0))) = self.attention.zip(deep_embed) {
                    attention.record(t, &self.base, layer, x0, x);
                }
            });
            if v_first.replace(v).is_none() {
                t.carry(v);
            }
            self.channel_mix(t, layer, x, deep_embed);
        });
    }
}

impl Rwkv7 {
    /// Returns the hyper-parameters of the published World model of this size, or `None` if `size` is unknown.
    fn published(size: &str) -> Option<Rwkv7> {
        let base = Base::published(size, |c| 4 * c)?;
        let [w, a, v, g] = match base.n_embd {
            0..2048 => [64, 64, 32, 128],
            2048 => [96, 96, 64, 256],
            2560 => [96, 96, 64, 320],
            _ => [128, 128, 96, 480],
        };
        Some(Rwkv7 { base, ranks: Ranks { w, a, v, g }, deep_embed: None, attention: None })
    }

    /// Returns the hyper-parameters of RWKV-7a, or of RWKV-7b if `attention` is given. `size` must be a published size.
    fn variant(size: &str, attention: Option<DeepAttention>) -> Rwkv7 {
        let model = Rwkv7::published(size).expect("a published size");
        Rwkv7 { deep_embed: Some(DEEP_EMBED_RANK), attention, ..model }
    }

    /// Records the channel mix of a block, x += W_v relu²(W_k X). `deep_embed` is a pair: the rank R of DeepEmbed, and x0, the normalised embedding
    /// of each token. `deep_embed` is `None` in RWKV-7.
    fn channel_mix(&self, t: &mut Tape, l: &Layer<'_>, x: Var, deep_embed: Option<(usize, Var)>) {
        let (c, f) = (self.base.n_embd, self.base.n_ffn);
        let mut lerps = l.lerps("ln2");
        lerps.project(l.ffn("x_k"), MatrixPart::new(l.name("ffn.key.weight"), f, c), Activation::ReluSquared);
        if let Some((rank, _)) = deep_embed {
            lerps.project_unshifted(l.ffn("x_k"), MatrixPart::in_out(l.name("ffn.s1"), rank, c), Activation::None);
        }
        let shift = l.ffn_shift(t);
        let k = lerps.record(t, "ffn", x, shift);
        if let Some((rank, x0)) = deep_embed {
            let weights = DeepEmbed {
                table: MatrixPart::new(l.name("ffn.s_emb.weight"), self.base.n_vocab, rank * rank),
                residual: MatrixPart::new(l.name("ffn.s_emb_x.weight"), rank * rank, c),
                gate: MatrixPart::in_out(l.name("ffn.s2"), f, rank),
                bias: l.ffn("s0"),
            };
            t.deep_embed(weights, x0, k);
        }
        t.linear_add_sparse(MatrixPart::new(l.name("ffn.value.weight"), c, f), k, x);
    }
}

/// The time mix of RWKV-7 and of its relative ARWKV-7.
pub struct TimeMix<'a> {
    pub base: &'a Base,
    /// The ranks of the low-rank pairs. The output has no gate if `g` is 0.
    pub ranks: Ranks,
    /// True if the output has a group norm.
    pub is_normed: bool,
}

impl TimeMix<'_> {
    /// Records the time mix of a block. `v_first` is v of layer 0, or `None` in layer 0 itself. Returns v of layer 0, because later layers mix it
    /// into their own v. Calls `between` after the projections. The time mix does not read x after them, so `between` may record words that change x.
    pub fn record(&self, t: &mut Tape, l: &Layer<'_>, x: Var, v_first: Option<Var>, between: &mut dyn FnMut(&mut Tape)) -> Var {
        let (base, ranks) = (self.base, self.ranks);

        // Projections by the matrices of r, k and v, and by the first matrix of each low-rank pair. The vectors x_r, x_k, … are lerp weights. A lerp
        // mixes x̂ of this token and x̂ of the previous token.
        let mut lerps = l.lerps("ln1");
        lerps.project(l.att("x_r"), l.matrix("receptance"), Activation::None);
        lerps.project(l.att("x_k"), l.matrix("key"), Activation::None);
        lerps.project(l.att("x_v"), l.matrix("value"), Activation::None);
        lerps.project(l.att("x_w"), l.reduce("w1", ranks.w), Activation::Tanh);
        lerps.project(l.att("x_a"), l.reduce("a1", ranks.a), Activation::None);
        if ranks.g > 0 {
            lerps.project(l.att("x_g"), l.reduce("g1", ranks.g), Activation::Sigmoid);
        }
        if v_first.is_some() {
            lerps.project(l.att("x_v"), l.reduce("v1", ranks.v), Activation::None);
        }
        let shift = l.att_shift(t);
        let proj = lerps.record(t, "proj", x, shift);
        between(t);

        let wkv = Wkv7 {
            head_size: base.head_size,
            // w = exp(−e^(−½) σ(w0 + w2 tanh(w1 X_w)))
            decay: Expansion { matrix: l.expand("w2", ranks.w), bias: l.att("w0") },
            // a = σ(a0 + a2 a1 X_a)
            rate: Expansion { matrix: l.expand("a2", ranks.a), bias: l.att("a0") },
            // g = g2 σ(g1 X_g)
            gate: (ranks.g > 0).then(|| l.expand("g2", ranks.g)),
            // v + (v_first − v) ⊙ σ(v0 + v2 v1 X_v)
            residual: v_first
                .map(|v_first| ValueResidual { mix: Expansion { matrix: l.expand("v2", ranks.v), bias: l.att("v0") }, v_first }),
            k_k: l.att("k_k"),
            k_a: l.att("k_a"),
            r_k: l.att("r_k").shaped(base.n_head(), base.head_size),
            ln_x: self.is_normed.then(|| HeadNorm { parts: l.ln_x(), eps: base.group_norm_eps }),
            state: l.wkv_state(t),
        };
        let (y, v_first) = t.wkv7(proj, wkv);
        l.output(t, y, x);
        v_first
    }
}
