//! The attention of RWKV-7b, which its authors call DEA (DeepEmbed attention). A block of RWKV-7b is a block of RWKV-7a (`rwkv7.rs`) with an
//! attention beside the time mix. The time mix and the attention both read x, the residual stream before the block. There is no paper; the equations
//! agree with `RWKV-v7/rwkv_v7b_demo.py` in the official repository.
//!
//! x0 = LN0(E[token]) is x before the first block. m₋ is m of the previous token, before the norm. `Tape::NAME` at the right of a line is the
//! word (fused operation) that computes the equations from this line on:
//!
//! ```text
//!                                                                                         Tape::deep_embed_qkv
//!   q = qq x
//!   k = (k2 k1 x) ⊙ (k_emb[token] + k_emb_x x0)
//!   v = tanh(v2 v1 x) ⊙ (v_emb[token] + v_emb_x x0)
//!   m ← LN_m(m + (m₋ − m) ⊙ x_m)                         for m of q, k, v
//!                                                                                         Tape::attention_add
//!   x ← x + Σ_t softmax_t(64 tanh(q · k_t / 1024)) v_t   over the tokens so far; k and v enter the cache
//! ```
//!
//! The time mix must read x before the attention changes it, so the words of the attention follow the first word of the time mix.

use super::Shapes;
use super::detect::dims;
use super::stack::{Base, Layer};
use crate::error::{Error, Result};
use crate::quant::PAD;
use crate::tape::{MatrixPart, Tape, Var, vector};
use crate::words::{DeepEmbedQkv, LimitedAttention, TokenColumn};

/// The sizes of the attention of RWKV-7b.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeepAttention {
    /// The number of channels of a query and of a key, 256 in the published model. A value is as wide as the residual stream.
    pub key_size: usize,
    /// The rank of the low-rank pair of keys, 32 in the published model.
    pub k_rank: usize,
    /// The rank of the low-rank pair of values, 32 in the published model.
    pub v_rank: usize,
}

/// The context of the published model, in tokens. The tensors do not determine the context.
pub const CONTEXT: usize = 4096;

/// A part of a tensor's name that only RWKV-7b has.
const TABLE: &str = ".qkv.k_emb.";
/// The largest number of channels of a key. The attention kernel keeps 8 queries in 8 KiB of workgroup memory.
const MAX_KEY: usize = 256;
/// A score is LIMIT tanh(q · k / DIVISOR), so its absolute value is at most LIMIT.
const LIMIT: f32 = 64.0;
const DIVISOR: f32 = 1024.0;

impl DeepAttention {
    /// The sizes of the published model.
    pub const PUBLISHED: DeepAttention = DeepAttention { key_size: 256, k_rank: 32, v_rank: 32 };

    /// Reads the sizes from the tensors' shapes. Returns `None` if the file has no table `qkv.k_emb`.
    ///
    /// # Errors
    ///
    /// `Model` if a tensor is missing or has an unsupported shape, or if the file lacks the tables of RWKV-7a.
    pub fn read(shapes: &dyn Shapes, base: &Base, has_deep_embed: bool) -> Result<Option<DeepAttention>> {
        let Some(found) = shapes.find(&|name| name.contains(TABLE)) else { return Ok(None) };
        if !has_deep_embed {
            let text = format!("unsupported model: a variant of RWKV-7b without DeepEmbed, recognised by the tensor {found}");
            return Err(Error::model(text).hint("wingbeat runs RWKV-7b only with DeepEmbed (the tensors ffn.s_emb.weight) in every layer"));
        }
        let name = |tensor: &str| format!("blocks.0.qkv.{tensor}");
        let [key_size, _] = dims(shapes, &name("qq.weight"))?;
        let rank = |tensor: &str| dims(shapes, &name(tensor)).map(|[_, rank]: [usize; 2]| rank);
        let (k_rank, v_rank) = (rank("k1")?, rank("v1")?);
        if key_size == 0 || !key_size.is_multiple_of(PAD) || key_size > MAX_KEY {
            let text =
                format!("unsupported size of keys, expected a multiple of {PAD} from {PAD} to {MAX_KEY} rows, found {key_size} rows");
            return Err(Error::model(text).at(name("qq.weight")));
        }
        if !base.n_embd.is_multiple_of(PAD) {
            let text = format!("unsupported size of values, expected a multiple of {PAD} channels, found {} channels", base.n_embd);
            return Err(Error::model(text).at(name("v_emb.weight")));
        }
        if k_rank == 0 || v_rank == 0 {
            let text =
                format!("expected low-rank matrices with at least 1 column, found {k_rank} columns in qkv.k1 and {v_rank} in qkv.v1");
            return Err(Error::model(text));
        }
        Ok(Some(DeepAttention { key_size, k_rank, v_rank }))
    }

    /// Records x += the attention of a block. `x0` is the normalised embedding of each token, `LN0(E[token])`.
    pub fn record(&self, t: &mut Tape, base: &Base, l: &Layer<'_>, x0: Var, x: Var) {
        let (c, d) = (base.n_embd, self.key_size);
        let name = |tensor: &str| l.name(&format!("qkv.{tensor}"));
        let column = |m: &str, width: usize, rank: usize| TokenColumn {
            pair: [MatrixPart::in_out(name(&format!("{m}1")), rank, c), MatrixPart::in_out(name(&format!("{m}2")), width, rank)],
            table: MatrixPart::new(name(&format!("{m}_emb.weight")), base.n_vocab, width),
            residual: MatrixPart::new(name(&format!("{m}_emb_x.weight")), width, c),
        };
        let weights = DeepEmbedQkv {
            query: MatrixPart::new(name("qq.weight"), d, c),
            keys: column("k", d, self.k_rank),
            values: column("v", c, self.v_rank),
            norms: ["q", "k", "v"].map(|m| [format!("ln{m}.weight"), format!("ln{m}.bias"), format!("x_{m}")].map(|n| vector(name(&n)))),
            eps: base.layer_norm_eps,
            shift: t.state(name("shift"), &[2 * d + c], true),
        };
        let qkv = t.deep_embed_qkv(weights, x0, x);
        t.attention_add(&name("cache"), qkv, LimitedAttention { key_size: d, value_size: c, scale: 1.0 / DIVISOR, limit: LIMIT }, x);
    }
}
