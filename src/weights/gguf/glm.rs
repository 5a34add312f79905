//! Reads GGUF files of `chatglm` (GLM-4, ChatGLM3) and `glm4` (GLM-4-0414). Maps their tensors to canonical names, and their metadata to
//! [`Glm`].
//!
//! llama.cpp's converter keeps the order of rows. Some files have one fused tensor for queries, keys and values. The tensor `ffn_up` always
//! contains both the gate matrix and the up matrix.

pub mod write;

use super::super::located::LocatedTensor;
use super::super::names::glm::split;
use super::header::{Header, ListedTensor};
use super::names::{block_parts, located, parsed};
use crate::error::{Error, Result, short};
use crate::weights::glm::{DEFAULT_EOS, DEFAULT_THETA, MAX_CONTEXT};
use crate::weights::{Glm, layer_of};
use std::collections::{BTreeMap, BTreeSet};

/// The supported values of `general.architecture`.
pub const ARCHITECTURES: [&str; 2] = ["chatglm", "glm4"];

/// The names of tensors outside of blocks, as pairs (GGUF name, canonical name).
pub(super) const TOP: [(&str, &str); 3] =
    [("token_embd.weight", "model.embed_tokens.weight"), ("output_norm.weight", "model.norm.weight"), ("output.weight", "lm_head.weight")];
/// The names of tensors within a block, as pairs (GGUF name, canonical name) without the ending `.weight` or `.bias`. The canonical
/// `post_attention_layernorm` is the norm before the mlp. GGUF's `post_attention_norm` is another norm, after the attention.
const PARTS: [(&str, &str); 10] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("post_attention_norm", "post_self_attn_layernorm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_up", "mlp.gate_up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("post_ffw_norm", "post_mlp_layernorm"),
];
const FUSED: &str = "attn_qkv";
/// The context length that is used if the file has no usable value. All published models were trained with at least this length.
const SAFE_CONTEXT: usize = 8192;
/// The number of rows of GLM-4's embedding.
const N_VOCAB: usize = 151_552;
/// `tokenizer.ggml.{eos,eot,eom}_token_id` are the ids that end a text.
const EOS: [&str; 3] = ["eos", "eot", "eom"];

/// Returns the tensors under their canonical names, and the configuration from the metadata.
///
/// # Errors
///
/// `File` if a key is missing or contradicts the tensors. `Model` if the variant is not supported.
pub fn read(architecture: &str, header: &Header) -> Result<(Vec<LocatedTensor>, Glm)> {
    let values = Values { architecture, metadata: &header.metadata };
    // A file with this key is the text part of a model with vision, and is refused: the rows of its queries and keys have another order.
    if header.has(&values.key("rope.dimension_sections")) {
        return Err(Error::model("GLM with vision is not supported: the metadata have rope.dimension_sections"));
    }
    if let Some(n) = values.get::<usize>("nextn_predict_layers")?.filter(|n| *n > 0) {
        let text = format!("layers that predict further tokens are not supported, found {n}");
        return Err(Error::model(text).at(values.key("nextn_predict_layers")));
    }
    values.check_scaling()?;
    let listed = header.tensors()?;
    let mut glm = values.glm(listed.iter().any(|t| ["attn_qkv.bias", "attn_q.bias"].iter().any(|end| t.name.ends_with(end))))?;
    // llama.cpp's converter does not write the id of `<|observation|>`, which ends a tool call. So the id is added here.
    let [_, user, observation] = DEFAULT_EOS;
    let is_glm4 = listed.iter().any(|t| t.name == TOP[0].0 && t.shape[0] == N_VOCAB);
    if is_glm4 && glm.eos.contains(&user) && !glm.eos.contains(&observation) {
        glm.eos.push(observation);
    }
    let mut tensors = Vec::new();
    for t in &listed {
        tensors.extend(canonical(t, &glm).map_err(|e| e.at(format!("tensor {}", t.name)))?);
    }
    values.check(&tensors)?;
    add_tied_head(&mut tensors);
    Ok((tensors, glm))
}

/// Adds the output matrix if the file has none: then the embedding is the output matrix.
pub(super) fn add_tied_head(tensors: &mut Vec<LocatedTensor>) {
    let emb = tensors.iter().find(|t| t.name == TOP[0].1).filter(|_| tensors.iter().all(|t| t.name != TOP[2].1));
    let head = emb.map(|emb| LocatedTensor { name: TOP[2].1.to_string(), ..emb.clone() });
    tensors.extend(head);
}

/// Returns the canonical tensors for a tensor of the file: three for a fused tensor, an empty list for the table of rotary frequencies. An unknown
/// tensor keeps its name.
fn canonical(t: &ListedTensor, glm: &Glm) -> Result<Vec<LocatedTensor>> {
    if t.name == "rope_freqs.weight" {
        return Ok(vec![]);
    }
    if let Some((_, name)) = TOP.iter().find(|(ours, _)| *ours == t.name) {
        return Ok(vec![located(t, name.to_string())]);
    }
    let Some((block, stem, end)) = block_parts(t.name) else { return Ok(vec![located(t, t.name.to_string())]) };
    if stem == FUSED {
        return Ok(split(&located(t, t.name.to_string()), &block.to_string(), end, glm)?.into());
    }
    let part = PARTS.iter().find(|(ours, _)| *ours == stem).map(|(_, part)| format!("model.layers.{block}.{part}.{end}"));
    Ok(vec![located(t, part.unwrap_or_else(|| t.name.to_string()))])
}

/// Reads the metadata keys of one architecture.
pub(super) struct Values<'a> {
    pub(super) architecture: &'a str,
    pub(super) metadata: &'a BTreeMap<String, String>,
}

impl Values<'_> {
    /// Returns the full name of a key, `ARCHITECTURE.KEY`.
    pub(super) fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    /// Returns the number under a key, or `None` if the key is missing.
    pub(super) fn get<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>> {
        parsed(self.metadata, &self.key(key), "a number")
    }

    /// Returns the number under a key, or an error if the key is missing.
    pub(super) fn need<T: std::str::FromStr>(&self, key: &str) -> Result<T> {
        let missing = || Error::file(format!("the metadata of the GGUF file have no {}", self.key(key)));
        self.get(key)?.ok_or_else(missing)
    }

    /// Refuses scaled rotary embeddings.
    pub(super) fn check_scaling(&self) -> Result<()> {
        let key = self.key("rope.scaling.type");
        match self.metadata.get(&key).filter(|kind| *kind != "none") {
            Some(kind) => Err(Error::model(format!("scaling of rotary embeddings is not supported, found {}", short(kind, 64))).at(key)),
            None => Ok(()),
        }
    }

    /// Returns the base of rotary embeddings.
    pub(super) fn theta(&self) -> Result<f64> {
        Ok(self.get("rope.freq_base")?.unwrap_or(DEFAULT_THETA))
    }

    /// Returns the ids that end a text, and the id of the padding token.
    pub(super) fn ends(&self) -> Result<(Vec<u32>, Option<u32>)> {
        let id = |name: &str| parsed::<u32>(self.metadata, &format!("tokenizer.ggml.{name}_token_id"), "a token id");
        let mut eos = Vec::new();
        for id in EOS.map(id) {
            eos.extend(id?.filter(|id| !eos.contains(id)));
        }
        Ok((eos, id("padding")?))
    }

    /// Checks that the size under a key, if the metadata have the key, equals the size `found` in the tensors.
    pub(super) fn agree(&self, key: &str, found: Option<usize>) -> Result<()> {
        match (self.get::<usize>(key)?, found) {
            (Some(configured), Some(found)) if configured != found => {
                Err(Error::file(format!("the metadata set {} to {configured}, but the tensors have {found}", self.key(key))))
            }
            _ => Ok(()),
        }
    }

    /// Returns the configuration in the metadata. A missing key has llama.cpp's default, or is an error if llama.cpp has no default. `attention_bias`
    /// is true if the file has biases of queries, keys and values.
    ///
    /// The converter of `chatglm` writes no `attention.key_length`, because it assumes that the heads share the width equally. As
    /// `rope.dimension_count` it writes half the number of a head's channels. The converter of `glm4` writes both keys if the model has a `head_dim`.
    /// The tensors' shapes are compared later.
    fn glm(&self, attention_bias: bool) -> Result<Glm> {
        let (n_head, width) = (self.need::<usize>("attention.head_count")?, self.need::<usize>("embedding_length")?);
        let head_size = match self.get("attention.key_length")? {
            Some(size) => size,
            None if n_head > 0 && width.is_multiple_of(n_head) => width / n_head,
            None => {
                return Err(Error::model(format!(
                    "expected a width that is a multiple of the number of heads, found a width of {width} and {n_head} heads"
                )));
            }
        };
        if let Some(other) = self.get::<usize>("attention.value_length")?.filter(|size| *size != head_size) {
            return Err(Error::model(format!(
                "expected the same size of keys and values, found keys of {head_size} and values of {other} numbers"
            )));
        }
        let (eos, pad) = self.ends()?;
        let glm = Glm {
            model_type: self.architecture.to_string(),
            n_head,
            n_kv_head: self.need("attention.head_count_kv")?,
            head_size,
            rotary_size: self.need("rope.dimension_count")?,
            rope_theta: self.theta()?,
            rms_norm_eps: self.need("attention.layer_norm_rms_epsilon")?,
            attention_bias,
            max_context: self.context(width)?,
            eos,
            pad,
            labels: vec![],
            flash: None,
        };
        // In `-hf` models such as glm-4-9b-chat-hf, some keys have other names, so llama.cpp's converter misses them. It then writes defaults: the
        // width as context length, ε = 1e-5, base 10000. The model type of such a file becomes `glm`, so that `Glm::warnings` reports the wrong
        // values.
        let as_hf = Glm { model_type: "glm".to_string(), ..glm.clone() };
        let is_lossy = self.architecture == "chatglm" && self.is_width_as_context(width)? && as_hf.is_of_a_lossy_gguf();
        if is_lossy { as_hf.check() } else { glm.check() }
    }

    /// Returns the file's context length, or [`SAFE_CONTEXT`] if the length is out of range. Also returns [`SAFE_CONTEXT`] if the length of a
    /// `chatglm` equals the width: llama.cpp's converter writes the width if it does not find the model's context length.
    fn context(&self, width: usize) -> Result<usize> {
        let said: u64 = self.need("context_length")?;
        let is_usable = (1..=MAX_CONTEXT as u64).contains(&said) && !self.is_width_as_context(width)?;
        Ok(if is_usable { said as usize } else { SAFE_CONTEXT })
    }

    fn is_width_as_context(&self, width: usize) -> Result<bool> {
        Ok(self.architecture == "chatglm" && self.get("context_length")? == Some(width))
    }

    /// Checks that the sizes in the metadata equal the sizes of the tensors.
    fn check(&self, tensors: &[LocatedTensor]) -> Result<()> {
        let shape = |name: &str| tensors.iter().find(|t| t.name == name).map(|t| t.shape.as_slice());
        let layers: BTreeSet<usize> = tensors.iter().filter_map(|t| layer_of(&t.name)).collect();
        let sizes = [
            ("embedding_length", shape("model.embed_tokens.weight").and_then(|s| s.last().copied())),
            ("block_count", Some(layers.len())),
            ("feed_forward_length", shape("model.layers.0.mlp.gate_up_proj.weight").map(|s| s[0] / 2)),
            ("vocab_size", shape("model.embed_tokens.weight").map(|s| s[0])),
        ];
        sizes.into_iter().try_for_each(|(key, found)| self.agree(key, found))
    }
}
