//! The architecture RWKV-6 "Finch" (x060). Letters follow the paper (arXiv 2404.05892, section 4). Each W is a weight matrix of the
//! checkpoint.
//!
//! x is the residual stream, x̂ = LN(x), x̂₋ is x̂ of the previous token. The equations of one block follow. `Tape::NAME` at the right of a line
//! is the word (fused operation) that computes the equations from this line on:
//!
//! ```text
//! time mix                                                                              Tape::norm_ddlerp_linear
//!   z_m = tanh(W1_m (x̂ + (x̂₋ − x̂) ⊙ m_x))             for m of w, k, v, r, g
//!   X_m = x̂ + (x̂₋ − x̂) ⊙ (m_m + W2_m z_m)             the lerp depends on the token
//!   r = W_r X_r    k = W_k X_k    v = W_v X_v
//!   g = silu(W_g X_g)                                    gate
//!                                                                                         Tape::wkv6, per head
//!   w = exp(−exp(w0 + D2 tanh(D1 X_w)))                  decay of each channel, in (0, 1)
//!   y = g ⊙ GroupNorm(S r + (Σ r ⊙ u ⊙ k) v)            u is the bonus of the current token
//!   S ← S diag(w) + v kᵀ                                 state, [value][key]
//!                                                                                         Tape::linear_add
//!   x ← x + W_o y
//! channel mix                                                                           Tape::norm_shift_linear
//!   X_m = x̂ + (x̂₋ − x̂) ⊙ m_m                          for m of k, r
//!   k = relu²(W_k X_k)    r = σ(W_r X_r)
//!   x ← x + r ⊙ W_v k                                                                     Tape::linear_add_sparse_gated
//! ```
//!
//! The words of a block are [`Tape::norm_ddlerp_linear`], [`Tape::wkv6`], [`Tape::linear_add`], [`Tape::norm_shift_linear`] and
//! [`Tape::linear_add_sparse_gated`].

use super::detect::dims;
use super::stack::{Base, Layer, seven_halves};
use super::{Architecture, Blueprint, Facts, Shapes};
use crate::error::{Error, Result};
use crate::tape::{MatrixPart, Tape, Var, VectorPart};
use crate::weights::{LERP_ORDER, lerp_indices};
use crate::words::{Activation, DdLerp, Decay, Projection, Wkv6};

/// The sizes of an RWKV-6 model.
#[derive(Debug, Clone)]
pub struct Rwkv6 {
    pub base: Base,
    /// The rank of W1_m and W2_m, the low-rank pair of each lerp.
    pub mix_rank: usize,
    /// The rank of D1 and D2, the low-rank pair of the decay.
    pub decay_rank: usize,
}

/// The five lerps of the time mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mix {
    W,
    K,
    V,
    R,
    G,
}

impl Mix {
    const ALL: [Mix; 5] = [Mix::W, Mix::K, Mix::V, Mix::R, Mix::G];

    fn letter(self) -> char {
        match self {
            Mix::W => 'w',
            Mix::K => 'k',
            Mix::V => 'v',
            Mix::R => 'r',
            Mix::G => 'g',
        }
    }

    /// Returns the name of the tensor m_m, a vector: the part of this lerp's weights that does not depend on the token.
    fn tensor(self) -> &'static str {
        match self {
            Mix::W => "time_maa_w",
            Mix::K => "time_maa_k",
            Mix::V => "time_maa_v",
            Mix::R => "time_maa_r",
            Mix::G => "time_maa_g",
        }
    }
}

/// The order in which `time_maa_w1` and `time_maa_w2` store the weights of the lerps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LerpOrder([Mix; 5]);

impl LerpOrder {
    /// RWKV-6's order.
    pub const OFFICIAL: LerpOrder = LerpOrder(Mix::ALL);

    /// Reads the order from the metadata. Without an entry, the order is the official one.
    ///
    /// # Errors
    ///
    /// `Model` if the entry is not the five letters in some order.
    pub fn read(shapes: &dyn Shapes) -> Result<LerpOrder> {
        let Some(text) = shapes.metadata(LERP_ORDER) else { return Ok(LerpOrder::OFFICIAL) };
        let mut order = Mix::ALL;
        for (mix, index) in Mix::ALL.into_iter().zip(lerp_indices(text)?) {
            order[index] = mix;
        }
        Ok(LerpOrder(order))
    }

    /// Returns the metadata entry, or `None` for the official order, which is the default.
    pub fn metadata(self) -> Option<(String, String)> {
        (self != LerpOrder::OFFICIAL).then(|| (LERP_ORDER.into(), self.0.map(Mix::letter).iter().collect()))
    }

    fn index(self, mix: Mix) -> usize {
        self.0.iter().position(|of| *of == mix).expect("the order has all lerps")
    }
}

/// The architecture RWKV-6.
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
        let [mix_rank, decay_rank] = ranks(shapes)?;
        Ok(Box::new(Rwkv6 { base: Base::read(shapes, n_head)?, mix_rank, decay_rank }))
    }

    fn sizes(&self) -> &'static [&'static str] {
        &["0.1b", "0.4b", "1.5b", "2.9b", "7.2b", "14b"]
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
        self.base.record(t, &mut |t, layer, x| self.block(t, layer, x));
    }
}

impl Rwkv6 {
    fn block(&self, t: &mut Tape, l: &Layer<'_>, x: Var) {
        let (a, base) = (self.base.n_att, &self.base);

        let projected =
            [("receptance", Activation::None), ("key", Activation::None), ("value", Activation::None), ("gate", Activation::Silu)]
                .map(|(name, activation)| Projected { matrix: l.matrix(name), activation, bias: None });
        let proj = project(t, base, l, x, LerpRanks { mix: self.mix_rank, decay: self.decay_rank, order: LerpOrder::OFFICIAL }, projected);

        // w = exp(−exp(w0 + D2 tanh(D1 X_w)))
        let w0 = t.vectors(a, vec![l.att("time_decay")]);
        let decay = Decay::LowRank { part: l.expand("time_decay_w2", self.decay_rank), bias: w0, column: DECAY };
        let u = l.att("time_faaaa").shaped(base.n_head(), base.head_size);
        let vectors = t.vectors(a, [u].into_iter().chain(l.ln_x()).collect());
        let state = l.wkv_state(t);
        let wkv = Wkv6 { head_size: base.head_size, eps: base.group_norm_eps, vectors, decay, gate: Some(GATE), state };
        let y = t.wkv6(proj, wkv);
        l.output(t, y, x);

        l.channel_mix(t, x, l.ffn("time_maa_k"), l.ffn("time_maa_r"));
    }
}

/// The columns of [`project`]'s result that hold g and tanh(D1 X_w).
pub const GATE: usize = 3;
pub const DECAY: usize = 4;

/// A projection that [`project`] records: activation(W X + bias), where W is `matrix`.
pub struct Projected {
    pub matrix: MatrixPart,
    pub activation: Activation,
    pub bias: Option<VectorPart>,
}

/// The low-rank pairs of the lerps and of the decay.
#[derive(Debug, Clone, Copy)]
pub struct LerpRanks {
    /// The rank of W1_m and W2_m.
    pub mix: usize,
    /// The rank of D1 and D2.
    pub decay: usize,
    /// The order of the lerps.
    pub order: LerpOrder,
}

/// Records the projections r, k, v, g and tanh(D1 X_w), in this order. Each projection reads its own lerp between norm(x) of this token and norm(x)
/// of the previous token. QRWKV-6 has the same projections.
pub fn project(t: &mut Tape, base: &Base, l: &Layer<'_>, x: Var, ranks: LerpRanks, projected: [Projected; 4]) -> Var {
    let LerpRanks { mix: mix_rank, decay: decay_rank, order } = ranks;
    let of = |(Projected { matrix, activation, bias }, mix): (Projected, Mix)| Projection {
        part: matrix,
        mix: order.index(mix),
        activation,
        bias,
    };
    let mut projections: Vec<Projection> = projected.into_iter().zip([Mix::R, Mix::K, Mix::V, Mix::G]).map(of).collect();
    let decay = Projected { matrix: l.reduce("time_decay_w1", decay_rank), activation: Activation::Tanh, bias: None };
    projections.push(of((decay, Mix::W)));
    let ln1 = l.norm_and(t, "ln1", vec![l.att("time_maa_x")]);
    let lerp = DdLerp {
        rank: mix_rank,
        w1: l.name("att.time_maa_w1"),
        w2: l.name("att.time_maa_w2"),
        mixes: t.vectors(base.n_embd, order.0.map(|mix| l.att(mix.tensor())).into()),
    };
    let shift = l.att_shift(t);
    t.norm_ddlerp_linear("proj", x, ln1, lerp, projections, shift)
}

/// Reads the ranks of the lerps and of the decay from the shape of the first matrix of each low-rank pair.
///
/// # Errors
///
/// `Model` if a matrix is missing or has no columns, or if the columns of `time_maa_w1` cannot be divided equally among the five lerps.
pub fn ranks(shapes: &dyn Shapes) -> Result<[usize; 2]> {
    let [_, mixes] = dims(shapes, "blocks.0.att.time_maa_w1")?;
    let [_, decay_rank] = dims(shapes, "blocks.0.att.time_decay_w1")?;
    let n = Mix::ALL.len();
    if mixes == 0 || !mixes.is_multiple_of(n) {
        let text = format!("expected a multiple of {n} columns, for the low-rank matrices of {n} lerps; found {mixes} columns");
        return Err(Error::model(text).at("blocks.0.att.time_maa_w1"));
    }
    if decay_rank == 0 {
        return Err(Error::model("expected a low-rank matrix with at least 1 column, found 0 columns").at("blocks.0.att.time_decay_w1"));
    }
    Ok([mixes / n, decay_rank])
}
