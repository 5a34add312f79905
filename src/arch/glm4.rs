//! The architecture GLM-4, a transformer with grouped-query attention (arXiv 2406.12793). Its models are ChatGLM3, GLM-4 in two file formats,
//! GLM-4-0414, and the text halves of vision models such as GLM-4.1V.
//!
//! x is the residual stream. x̂ = RMS(x) is x after an RMS norm, multiplied by the norm's weight. The equations of one block follow. `Tape::NAME` at
//! the right of a line is the word (fused operation) that computes the equations from this line on:
//!
//! ```text
//! attention                                                                             Tape::norm_linear
//!   q = W_q x̂ + b_q    k = W_k x̂ + b_k    v = W_v x̂ + b_v
//!                                                                                         Tape::attention, per query head
//!   q ← rotary(q)    k ← rotary(k)                       the first rotary_size channels, by the position; k and v enter the cache
//!   y = Σ_t softmax_t(q · k_t / √head_size) v_t          over the tokens so far; query heads share key heads in groups
//!                                                                                         Tape::linear_add
//!   x ← x + W_o y
//! mlp                                                                                   Tape::swiglu
//!   y = silu(W_gate x̂) ⊙ W_up x̂
//!   x ← x + W_down y                                                                      Tape::linear_add
//! ```
//!
//! Heads whose size is no multiple of 8 are padded with zeros on the tape ([`Heads`]). head_size above is the size without padding.
//!
//! GLM-4-0414 and the vision models also normalise the outputs of attention and mlp: x ← x + RMS(W y). The word [`Tape::linear_norm_add`]
//! computes this.
//!
//! The other words of a block are [`Tape::norm_linear`], [`Tape::attention`], [`Tape::linear_add`] and [`Tape::swiglu`].

use super::detect::{dims, missing};
use super::{Architecture, Blueprint, Facts, Purpose, Shapes};
use crate::error::{Error, Result};
use crate::sample::Sampling;
use crate::tape::{Heads, MatrixKind, MatrixPart, Rotary, Tape, Var, vector};
use crate::weights::{GLM, Glm, layer_of};
use crate::words::{Attention, Norm};
use std::collections::BTreeMap;

/// The sizes and settings of a GLM-4 model.
#[derive(Debug, Clone)]
pub struct Glm4 {
    pub n_layer: usize,
    /// The width of the residual stream.
    pub n_embd: usize,
    /// The width of the mlp.
    pub n_ffn: usize,
    /// The number of rows of the embedding matrix.
    pub n_vocab: usize,
    /// Settings from `config.json` that the tensors' shapes do not determine, such as the number of heads.
    pub config: Glm,
    /// The classes of a classifier, or `None` if the model predicts tokens.
    pub labels: Option<Labels>,
}

/// The classes that a classifier predicts.
#[derive(Debug, Clone)]
pub struct Labels {
    /// The class names, one per row of the head matrix.
    pub names: Vec<String>,
    /// True if the head adds a bias, `score.bias`.
    pub has_bias: bool,
}

/// The architecture GLM-4.
pub struct Glm4Arch;

pub(super) const EMBED: &str = "model.embed_tokens.weight";
pub(super) const HEAD: &str = "lm_head.weight";
/// The name of a classifier's head, without the endings `.weight` and `.bias`.
const SCORE: &str = "score";
/// The largest number of classes that a classifier may have.
const MAX_LABELS: usize = 65536;
/// The largest number of channels of a head.
const MAX_HEAD: usize = 256;

impl Architecture for Glm4Arch {
    fn name(&self) -> &'static str {
        "glm4"
    }

    fn about(&self) -> &'static str {
        "GLM-4"
    }

    fn recognises(&self, shapes: &dyn Shapes) -> bool {
        shapes.metadata(GLM).is_some()
    }

    fn read(&self, shapes: &dyn Shapes) -> Result<Box<dyn Blueprint>> {
        let Some(config) = shapes.metadata(GLM) else {
            return Err(Error::model(
                "config.json is missing: the tensors of a GLM alone do not determine the number of heads and the norms",
            )
            .hint("put the model's config.json into the same folder"));
        };
        let config = Glm::parse(config)?;
        let [n_vocab, n_embd] = dims(shapes, EMBED)?;
        let n_layer = shapes.n_layer();
        let is_beyond = |name: &str| layer_of(name).is_some_and(|layer| layer >= n_layer);
        if let Some(name) = shapes.find(&is_beyond) {
            return Err(Error::model(format!("layer {n_layer} has no tensors, although a later layer has the tensor {name}")));
        }
        let labels = labels(shapes, &config, n_embd)?;
        if shapes.shape(HEAD).is_none() && labels.is_none() {
            return Err(missing(HEAD).hint("a model without this tensor needs tie_word_embeddings in config.json"));
        }
        let [rows, width] = dims(shapes, &layer(0, "mlp.gate_up_proj.weight"))?;
        if n_vocab == 0 || n_embd == 0 || rows == 0 || width != n_embd {
            let text = format!("expected a feed-forward as wide as the embedding, found the shapes [{n_vocab}, {n_embd}] of the embedding");
            return Err(Error::model(format!("{text} and [{rows}, {width}] of mlp.gate_up_proj")));
        }
        if rows % 2 == 1 {
            return Err(Error::model(format!(
                "expected an even number of rows in mlp.gate_up_proj (half of them are the gate), found {rows} rows"
            )));
        }
        let size = config.head_size;
        if size > MAX_HEAD {
            return Err(Error::model(format!("unsupported head size {size} in the configuration, expected at most {MAX_HEAD}")));
        }
        Ok(Box::new(Glm4 { n_layer, n_embd, n_ffn: rows / 2, n_vocab, config, labels }))
    }

    fn sizes(&self) -> &'static [&'static str] {
        &["0.5b", "edge-1.5b", "edge-4b", "9b", "9b-0414", "32b-0414"]
    }

    fn published(&self, size: &str) -> Option<Box<dyn Blueprint>> {
        // No model of the size 0.5b was published. This size exists for benchmarks.
        let (n_layer, n_embd, n_ffn, heads) = match size {
            "0.5b" => (24, 1024, 2816, (16, 2)),
            "9b" | "9b-0414" => (40, 4096, 13696, (32, 2)),
            "32b-0414" => (61, 6144, 23040, (48, 2)),
            "edge-1.5b" => (28, 2048, 6144, (16, 4)),
            "edge-4b" => (40, 3072, 8192, (24, 6)),
            _ => return None,
        };
        let head_size = if size == "0.5b" { 64 } else { 128 };
        let (n_head, n_kv_head) = heads;
        let first = Glm {
            model_type: "chatglm".into(),
            n_head,
            n_kv_head,
            head_size,
            rotary_size: head_size / 2,
            rope_theta: 5e6,
            rms_norm_eps: 1.5625e-7,
            attention_bias: true,
            max_context: 131072,
            eos: vec![151329, 151336, 151338],
            pad: Some(151329),
            labels: vec![],
            flash: None,
        };
        let later = Glm { rope_theta: 1e4, rms_norm_eps: 1e-5, ..first.clone() };
        let (n_vocab, config) = if size.ends_with("0414") {
            (151552, Glm { model_type: "glm4".into(), attention_bias: size == "9b-0414", max_context: 32768, ..later })
        } else if size.starts_with("edge") {
            let whole = Glm { model_type: "glm".into(), rotary_size: head_size, attention_bias: false, max_context: 8192, ..later };
            (59264, Glm { eos: vec![59246, 59253, 59255], pad: Some(59246), ..whole })
        } else {
            (151552, first)
        };
        Some(Box::new(Glm4 { n_layer, n_embd, n_ffn, n_vocab, config, labels: None }))
    }
}

/// Returns the full name of a layer's tensor, `model.layers.INDEX.TENSOR`.
pub(super) fn layer(index: usize, tensor: &str) -> String {
    format!("model.layers.{index}.{tensor}")
}

/// Returns the classes of a classifier, or `None` if the file has no classifier head. A class without a name in the configuration is named by
/// its index.
fn labels(shapes: &dyn Shapes, config: &Glm, n_embd: usize) -> Result<Option<Labels>> {
    let weight = format!("{SCORE}.weight");
    if shapes.shape(&weight).is_none() {
        return Ok(None);
    }
    let [n, width] = dims(shapes, &weight)?;
    if !(1..=MAX_LABELS).contains(&n) || width != n_embd {
        let text = format!("expected 1 to {MAX_LABELS} classes of width {n_embd}, found {n} classes of width {width}");
        return Err(Error::model(text).at(weight));
    }
    let name = |i: usize| config.labels.get(i).cloned().unwrap_or_else(|| i.to_string());
    Ok(Some(Labels { names: (0..n).map(name).collect(), has_bias: shapes.shape(&format!("{SCORE}.bias")).is_some() }))
}

impl Blueprint for Glm4 {
    fn facts(&self) -> Facts {
        let version = ["chatglm", "glm", "glm4", "glm4v"].into_iter().find(|v| *v == self.config.model_type);
        Facts {
            architecture: "glm4",
            version: version.unwrap_or("glm"),
            n_layer: self.n_layer,
            n_embd: self.n_embd,
            n_ffn: self.n_ffn,
            n_head: self.config.n_head,
            head_size: self.config.head_size,
            n_vocab: self.n_vocab,
            context: Some(self.config.max_context),
            stop_ids: self.config.eos.clone(),
            labels: self.labels.as_ref().map(|l| l.names.clone()),
            purpose: Purpose::Logits,
        }
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(GLM.to_string(), self.config.to_json())])
    }

    fn sampling(&self) -> Sampling {
        Sampling::glm()
    }

    /// Records the embedding `x = E[token]`, then each block, then the head: logits = W RMS(x).
    fn record(&self, t: &mut Tape) {
        t.rotary = Some(Rotary { size: self.config.rotary_size, base: self.config.rope_theta });
        let table = t.table(MatrixPart::new(EMBED, self.n_vocab, self.n_embd));
        let x = t.embed(table, None);
        t.carry(x);
        for index in 0..self.n_layer {
            t.begin_layer();
            self.block(t, &|tensor| layer(index, tensor), x);
        }
        t.begin_layer();
        let norm = self.norm(t, "model.norm.weight".into());
        let head = |name, rows| MatrixPart::new(name, rows, self.n_embd);
        match &self.labels {
            Some(l) => t.head(x, norm, head(format!("{SCORE}.weight"), l.names.len()), l.has_bias.then(|| vector(format!("{SCORE}.bias")))),
            None => t.head(x, norm, head(HEAD.into(), self.n_vocab), None),
        };
    }
}

impl Glm4 {
    /// Records one block. `name` maps a tensor's name within the layer to its full name.
    fn block(&self, t: &mut Tape, name: &dyn Fn(&str) -> String, x: Var) {
        let (h, f, c) = (self.n_embd, self.n_ffn, &self.config);
        // Attention kernels need heads whose size is a multiple of 8. So each head of q, k and v is padded with zeros, which change no score and no
        // output.
        let heads = Heads::padding(c.head_size);
        let head_size = heads.map_or(c.head_size, |heads| heads.padded);
        let of = Attention { n_heads: c.n_head, n_kv_heads: c.n_kv_head, head_size, padding: head_size - c.head_size };

        // x += W_o attention(W_qkv RMS(x) + b)
        let norm = self.norm(t, name("input_layernorm.weight"));
        let (q, kv) = (c.n_head * head_size, c.n_kv_head * head_size);
        let projections = [("q_proj", q), ("k_proj", kv), ("v_proj", kv)];
        let parts = projections.map(|(p, rows)| MatrixPart::new(name(&format!("self_attn.{p}.weight")), rows, h).row_heads(heads));
        let bias = projections.map(|(p, _)| vector(name(&format!("self_attn.{p}.bias"))).heads(heads));
        let qkv = t.norm_linear("qkv", x, norm, parts.into(), if c.attention_bias { bias.into() } else { vec![] });
        let y = t.attention(&name("self_attn"), qkv, of);
        let output = MatrixPart::new(name("self_attn.o_proj.weight"), h, q).input_heads(heads);
        self.add(t, output, y, name("post_self_attn_layernorm.weight"), x);

        // x += W_down (silu(W_gate x̂) ⊙ W_up x̂), x̂ = RMS(x). In spite of its name, `post_attention_layernorm` is the norm before the mlp.
        let norm = self.norm(t, name("post_attention_layernorm.weight"));
        let gate_up = |i| MatrixPart::new(name("mlp.gate_up_proj.weight"), f, h).slice(i, 2);
        let y = t.swiglu("mlp", x, norm, gate_up(0), gate_up(1));
        self.add(
            t,
            MatrixPart::new(name("mlp.down_proj.weight"), h, f).of(MatrixKind::Value).wide(),
            y,
            name("post_mlp_layernorm.weight"),
            x,
        );
    }

    /// Records x += W y, or x += RMS(W y) in GLM-4-0414. `norm` is the name of the weight of that RMS norm.
    fn add(&self, t: &mut Tape, part: MatrixPart, y: Var, norm: String, x: Var) {
        if self.config.has_branch_norms() {
            let norm = self.norm(t, norm);
            t.linear_norm_add(part, y, norm, x);
        } else {
            t.linear_add(part, y, x);
        }
    }

    /// Declares an RMS norm over the residual stream. `tensor` is the name of the norm's weight, a vector.
    fn norm(&self, t: &mut Tape, tensor: String) -> Norm {
        Norm::rms(t.vectors(self.n_embd, vec![vector(tensor)]), self.config.rms_norm_eps)
    }
}
