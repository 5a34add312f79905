//! From llama.cpp's tensors of `chatglm` (GLM-4, ChatGLM3) and `glm4` (GLM-4-0414) to the canonical ones, and from its metadata to
//! what no shape tells.
//!
//! Its converter keeps rows as they are: queries, keys and values may be one tensor, `ffn_up` is always gate and up.

use super::super::located::Located;
use super::super::names::glm::split;
use super::header::{Header, Listed};
use super::names::{block_parts, located, parsed};
use crate::error::{Error, Result, short};
use crate::weights::glm::{DEFAULT_EOS, DEFAULT_THETA};
use crate::weights::{Glm, layer_of};
use std::collections::{BTreeMap, BTreeSet};

/// What `general.architecture` says.
pub const ARCHITECTURES: [&str; 2] = ["chatglm", "glm4"];

const TOP: [(&str, &str); 3] =
    [("token_embd.weight", "model.embed_tokens.weight"), ("output_norm.weight", "model.norm.weight"), ("output.weight", "lm_head.weight")];
/// Of a block; `.weight` and `.bias` stay. `transformers` calls the norm before the MLP by what precedes it; here another one is called so.
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
/// Rows of GLM-4's embedding.
const N_VOCAB: usize = 151_552;
/// Ids that end a text: llama.cpp has a key for each reason.
const EOS: [&str; 3] = ["eos", "eot", "eom"];

/// The tensors under their canonical names, and what the metadata say.
pub fn read(architecture: &str, header: &Header) -> Result<(Vec<Located>, Glm)> {
    let said = Said { architecture, metadata: &header.metadata };
    // With sections, rows of queries and keys lie in another order: the text part of a model with vision.
    if header.keys.contains(said.key("rope.dimension_sections").as_str()) {
        return Err(Error::model("expected a GLM of text, found rope.dimension_sections, as models with vision have them"));
    }
    if let Some(n) = said.get::<usize>("nextn_predict_layers")?.filter(|n| *n > 0) {
        return Err(Error::model(format!("expected no layers that predict more than the next token, found {n}")));
    }
    if let Some(kind) = header.metadata.get(&said.key("rope.scaling.type")).filter(|kind| *kind != "none") {
        return Err(Error::model(format!("expected no scaling of RoPE, found {}", short(kind, 64))));
    }
    let listed = header.tensors()?;
    let mut glm = said.glm(listed.iter().any(|t| ["attn_qkv.bias", "attn_q.bias"].iter().any(|end| t.name.ends_with(end))))?;
    // The converter writes no id for the end of a tool's call.
    let [_, user, observation] = DEFAULT_EOS;
    let is_glm4 = listed.iter().any(|t| t.name == TOP[0].0 && t.shape[0] == N_VOCAB);
    if is_glm4 && glm.eos.contains(&user) && !glm.eos.contains(&observation) {
        glm.eos.push(observation);
    }
    let mut tensors = Vec::new();
    for t in &listed {
        tensors.extend(canonical(t, &glm).map_err(|e| e.at(format!("tensor {}", t.name)))?);
    }
    said.check(&tensors)?;
    // In this format a model without an output matrix is one whose embedding is both.
    let emb = tensors.iter().find(|t| t.name == TOP[0].1).filter(|_| tensors.iter().all(|t| t.name != TOP[2].1));
    let head = emb.map(|emb| Located { name: TOP[2].1.to_string(), ..emb.clone() });
    tensors.extend(head);
    Ok((tensors, glm))
}

/// Three of a fused tensor, none of a table of wave lengths. One that is not known keeps its name.
fn canonical(t: &Listed, glm: &Glm) -> Result<Vec<Located>> {
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

/// The metadata of one architecture.
struct Said<'a> {
    architecture: &'a str,
    metadata: &'a BTreeMap<String, String>,
}

impl Said<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn get<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>> {
        parsed(self.metadata, &self.key(key), "a number")
    }

    fn need<T: std::str::FromStr>(&self, key: &str) -> Result<T> {
        let missing = || Error::file(format!("expected the number {} in the metadata, found none", self.key(key)));
        self.get(key)?.ok_or_else(missing)
    }

    /// As llama.cpp reads them. Its converter of `chatglm` writes no `attention.key_length` and takes a head to be width / H wide; the
    /// `rope.dimension_count` that it writes is half of that, so it tells nothing more. That of `glm4` writes both keys where a
    /// `head_dim` was. Shapes must agree in any case.
    fn glm(&self, attention_bias: bool) -> Result<Glm> {
        let (n_head, width) = (self.need::<usize>("attention.head_count")?, self.need::<usize>("embedding_length")?);
        let head_size = match self.get("attention.key_length")? {
            Some(size) => size,
            None if n_head > 0 && width.is_multiple_of(n_head) => width / n_head,
            None => return Err(Error::model(format!("expected heads that divide the width, found {n_head} and {width}"))),
        };
        if let Some(other) = self.get::<usize>("attention.value_length")?.filter(|size| *size != head_size) {
            return Err(Error::model(format!("expected keys and values of one width, found {head_size} and {other}")));
        }
        let id = |name: &str| parsed::<u32>(self.metadata, &format!("tokenizer.ggml.{name}_token_id"), "the id of a token");
        let mut eos = Vec::new();
        for id in EOS.map(id) {
            eos.extend(id?.filter(|id| !eos.contains(id)));
        }
        let glm = Glm {
            model_type: self.architecture.to_string(),
            n_head,
            n_kv_head: self.need("attention.head_count_kv")?,
            head_size,
            rotary_size: self.need("rope.dimension_count")?,
            rope_theta: self.get("rope.freq_base")?.unwrap_or(DEFAULT_THETA),
            rms_norm_eps: self.need("attention.layer_norm_rms_epsilon")?,
            attention_bias,
            max_context: self.need("context_length")?,
            eos,
            pad: id("padding")?,
            labels: vec![],
        };
        // Of the -hf files the converter misses every key that ChatGLM's code calls otherwise, and writes its own defaults: the width as
        // context, 1e-5 and 10000. The model is the same; its type tells `warnings` that these numbers are not.
        let as_hf = Glm { model_type: "glm".to_string(), ..glm.clone() };
        let is_lossy = self.architecture == "chatglm" && glm.max_context == width && as_hf.is_of_a_lossy_gguf();
        if is_lossy { as_hf.check() } else { glm.check() }
    }

    /// That the sizes are those of the tensors: a file may have been put together of two.
    fn check(&self, tensors: &[Located]) -> Result<()> {
        let shape = |name: &str| tensors.iter().find(|t| t.name == name).map(|t| t.shape.as_slice());
        let layers: BTreeSet<usize> = tensors.iter().filter_map(|t| layer_of(&t.name)).collect();
        let sizes = [
            ("embedding_length", shape("model.embed_tokens.weight").and_then(|s| s.last().copied())),
            ("block_count", Some(layers.len())),
            ("feed_forward_length", shape("model.layers.0.mlp.gate_up_proj.weight").map(|s| s[0] / 2)),
            ("vocab_size", shape("model.embed_tokens.weight").map(|s| s[0])),
        ];
        for (key, found) in sizes {
            if let (Some(said), Some(found)) = (self.get::<usize>(key)?, found)
                && said != found
            {
                return Err(Error::file(format!("expected {} {found} as the tensors have it, found {said}", self.key(key))));
            }
        }
        Ok(())
    }
}
