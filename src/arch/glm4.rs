//! GLM-4 and its kin: ChatGLM3, GLM-4 in both of its formats, GLM-4-0414. A transformer with grouped queries. arXiv 2406.12793.

use super::detect::dims;
use super::{Architecture, Blueprint, Facts, Shapes};
use crate::error::{Error, Result};
use crate::sample::Sampling;
use crate::tape::{Kind, MatrixPart, Rotary, Tape, Var, vector};
use crate::weights::{GLM, Glm, layer_of};
use crate::words::{Attention, Norm};
use std::collections::BTreeMap;

/// Blueprint.
#[derive(Debug, Clone)]
pub struct Glm4 {
    pub n_layer: usize,
    /// h, width of the residual stream.
    pub n_embd: usize,
    /// F
    pub n_ffn: usize,
    pub n_vocab: usize,
    /// What shapes do not tell.
    pub config: Glm,
    /// Names of the classes of a classifier, and whether its head has a bias.
    pub labels: Option<Labels>,
}

/// What a classifier tells.
#[derive(Debug, Clone)]
pub struct Labels {
    pub names: Vec<String>,
    pub has_bias: bool,
}

pub struct Glm4Arch;

const EMBED: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";
/// Of a classifier.
const SCORE: &str = "score";
const MAX_LABELS: usize = 65536;

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
            return Err(Error::model("expected the configuration of a GLM beside its weights: no shape tells its heads and its norms")
                .hint("put the model's config.json into the same folder"));
        };
        let config = Glm::parse(config)?;
        let [n_vocab, n_embd] = dims(shapes, EMBED)?;
        let n_layer = shapes.n_layer();
        let is_beyond = |name: &str| layer_of(name).is_some_and(|layer| layer >= n_layer);
        if let Some(name) = shapes.find(&is_beyond) {
            return Err(Error::model(format!("expected layers without a gap, found {name} but nothing of layer {n_layer}")));
        }
        let labels = labels(shapes, &config, n_embd)?;
        if shapes.shape(HEAD).is_none() && labels.is_none() {
            return Err(Error::model(format!("the tensor {HEAD} is missing, and the configuration does not say that it is the embedding")));
        }
        let [rows, width] = dims(shapes, &layer(0, "mlp.gate_up_proj.weight"))?;
        if n_vocab == 0 || n_embd == 0 || rows == 0 || width != n_embd {
            let text = format!("expected no empty matrix and an mlp of the embedding's width, found widths {n_embd} and {width}");
            return Err(Error::model(format!("{text}, {rows} rows of the mlp, a vocabulary of {n_vocab}")));
        }
        if rows % 2 == 1 {
            return Err(Error::model(format!("expected as many rows for the gate as for what it gates, found {rows} in all")));
        }
        let size = config.head_size;
        if !size.is_multiple_of(8) || size > 256 {
            return Err(Error::model(format!("expected heads of at most 256 numbers, a multiple of 8, found {size}")));
        }
        Ok(Box::new(Glm4 { n_layer, n_embd, n_ffn: rows / 2, n_vocab, config, labels }))
    }

    fn sizes(&self) -> &'static [&'static str] {
        &["0.5b", "9b"]
    }

    fn published(&self, size: &str) -> Option<Box<dyn Blueprint>> {
        // The small one is of no published model.
        let (n_layer, n_embd, n_ffn, n_head, head_size) = match size {
            "0.5b" => (24, 1024, 2816, 16, 64),
            "9b" => (40, 4096, 13696, 32, 128),
            _ => return None,
        };
        let config = Glm {
            model_type: "chatglm".into(),
            n_head,
            n_kv_head: 2,
            head_size,
            rotary_size: head_size / 2,
            rope_theta: 5e6,
            rms_norm_eps: 1.5625e-7,
            attention_bias: true,
            max_context: 131072,
            eos: vec![151329, 151336, 151338],
            pad: Some(151329),
            labels: vec![],
        };
        Some(Box::new(Glm4 { n_layer, n_embd, n_ffn, n_vocab: 151552, config, labels: None }))
    }
}

fn layer(index: usize, tensor: &str) -> String {
    format!("model.layers.{index}.{tensor}")
}

/// The classes, if the model has a head for them; by number where the configuration does not name them.
fn labels(shapes: &dyn Shapes, config: &Glm, n_embd: usize) -> Result<Option<Labels>> {
    let weight = format!("{SCORE}.weight");
    if shapes.shape(&weight).is_none() {
        return Ok(None);
    }
    let [n, width] = dims(shapes, &weight)?;
    if !(1..=MAX_LABELS).contains(&n) || width != n_embd {
        let text = format!("expected 1 to {MAX_LABELS} classes for a width of {n_embd}, found {n} for {width}");
        return Err(Error::model(text).at(weight));
    }
    let name = |i: usize| config.labels.get(i).cloned().unwrap_or_else(|| i.to_string());
    Ok(Some(Labels { names: (0..n).map(name).collect(), has_bias: shapes.shape(&format!("{SCORE}.bias")).is_some() }))
}

impl Blueprint for Glm4 {
    fn facts(&self) -> Facts {
        let version = ["chatglm", "glm", "glm4"].into_iter().find(|v| *v == self.config.model_type);
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
        }
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(GLM.to_string(), self.config.to_json())])
    }

    fn sampling(&self) -> Sampling {
        Sampling::glm()
    }

    /// `x = E[token]`; every block in turn; `logits = W RMS(x)`.
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
    fn block(&self, t: &mut Tape, name: &dyn Fn(&str) -> String, x: Var) {
        let (h, f, c) = (self.n_embd, self.n_ffn, &self.config);
        let of = Attention { n_heads: c.n_head, n_kv_heads: c.n_kv_head, head_size: c.head_size };

        // x += W_o attention(W_qkv RMS(x) + b)
        let norm = self.norm(t, name("input_layernorm.weight"));
        let (q, kv) = (c.q_rows(), c.kv_rows());
        let projections = [("q_proj", q), ("k_proj", kv), ("v_proj", kv)];
        let parts = projections.map(|(p, rows)| MatrixPart::new(name(&format!("self_attn.{p}.weight")), rows, h));
        let bias = projections.map(|(p, _)| vector(name(&format!("self_attn.{p}.bias"))));
        let qkv = t.norm_linear("qkv", x, norm, parts.into(), if c.attention_bias { bias.into() } else { vec![] });
        let y = t.attention(&name("self_attn"), qkv, of);
        self.add(t, MatrixPart::new(name("self_attn.o_proj.weight"), h, q), y, name("post_self_attn_layernorm.weight"), x);

        // x += W_down (silu(W_gate x̂) ⊙ W_up x̂), x̂ = RMS(x). The norm has that name because it comes after attention, not behind it.
        let norm = self.norm(t, name("post_attention_layernorm.weight"));
        let gate_up = |i| MatrixPart::new(name("mlp.gate_up_proj.weight"), f, h).slice(i, 2);
        let y = t.swiglu("mlp", x, norm, gate_up(0), gate_up(1));
        self.add(t, MatrixPart::new(name("mlp.down_proj.weight"), h, f).of(Kind::Value).wide(), y, name("post_mlp_layernorm.weight"), x);
    }

    /// A branch enters the residual stream, through a norm where the model has one there.
    fn add(&self, t: &mut Tape, part: MatrixPart, y: Var, norm: String, x: Var) {
        if self.config.model_type == "glm4" {
            let norm = self.norm(t, norm);
            t.linear_norm_add(part, y, norm, x);
        } else {
            t.linear_add(part, y, x);
        }
    }

    fn norm(&self, t: &mut Tape, tensor: String) -> Norm {
        Norm::rms(t.vectors(self.n_embd, vec![vector(tensor)]), self.config.rms_norm_eps)
    }
}
