//! Reads GGUF files of GLM-4.7-Flash. Their architecture is `deepseek2`, as for other models with latent attention and experts.
//!
//! llama.cpp's converter keeps the order of rows, including rotated rows. It stores the experts of a layer as one stack, and splits `kv_b_proj` into
//! stacks of transposed keys and of values. `names::flash` splits the stacks.

pub mod write;

use super::super::located::LocatedTensor;
use super::glm::{TOP, Values, add_tied_head};
use super::header::{Header, ListedTensor};
use super::names::{block_parts, located};
use crate::error::{Error, Result, short};
use crate::weights::glm::{FLASH, Flash, MAX_LAYERS};
use crate::weights::{Glm, layer_of};
use std::collections::BTreeSet;

/// The value of `general.architecture`.
pub const ARCHITECTURE: &str = "deepseek2";
/// The value of `general.basename`. The names of models that were made from GLM-4.7-Flash contain this text, in lower case or upper case.
const BASENAME: &str = "Glm-4.7-Flash";
/// The value of `tokenizer.ggml.pre` for the vocabularies of GLM-4 and later.
const VOCABULARY: &str = "glm4";
/// The value of `expert_gating_func` for sigmoid.
const SIGMOID: usize = 2;
/// The number of rows of the embedding, and the ids of `<|user|>` and `<|observation|>`, which end a text.
const N_VOCAB: usize = 154_880;
const USER: u32 = 154_827;
const OBSERVATION: u32 = 154_829;

/// The names of tensors within a block, as pairs (GGUF name, canonical name) without the ending `.weight`.
const PARTS: [(&str, &str); 23] = [
    ("attn_norm", "input_layernorm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_q_a", "self_attn.q_a_proj"),
    ("attn_q_a_norm", "self_attn.q_a_layernorm"),
    ("attn_q_b", "self_attn.q_b_proj"),
    ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
    ("attn_kv_a_norm", "self_attn.kv_a_layernorm"),
    ("attn_kv_b", "self_attn.kv_b_proj"),
    ("attn_k_b", "self_attn.k_b"),
    ("attn_v_b", "self_attn.v_b"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_exps", "mlp.experts.gate_proj"),
    ("ffn_up_exps", "mlp.experts.up_proj"),
    ("ffn_gate_up_exps", "mlp.experts.gate_up_proj"),
    ("ffn_down_exps", "mlp.experts.down_proj"),
    ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
    ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
];
/// The bias of the router, as ((GGUF name, ending), canonical name).
const ROUTER_BIAS: ((&str, &str), &str) = (("exp_probs_b", "bias"), "mlp.gate.e_score_correction_bias");

/// Returns the tensors under their canonical names, with stacks not yet split, and the configuration from the metadata.
///
/// # Errors
///
/// `File` if a key is missing or contradicts the tensors. `Model` if the file belongs to another model, or if the variant is not supported.
pub fn read(header: &Header) -> Result<(Vec<LocatedTensor>, Glm)> {
    let values = Values { architecture: ARCHITECTURE, metadata: &header.metadata };
    check_model(&values)?;
    let mut glm = glm(&values)?;
    let n_layers = glm.flash.as_ref().map_or(0, |flash| flash.dense.len());
    let listed = header.tensors()?;
    let is_published = listed.iter().any(|t| t.name == TOP[0].0 && t.shape[0] == N_VOCAB);
    if is_published && glm.eos.contains(&USER) && !glm.eos.contains(&OBSERVATION) {
        glm.eos.push(OBSERVATION);
    }
    let mut tensors: Vec<LocatedTensor> = listed.iter().filter_map(|t| canonical(t, n_layers)).collect();
    check_sizes(&values, &tensors, &glm)?;
    add_tied_head(&mut tensors);
    Ok((tensors, glm))
}

/// Checks that the file belongs to GLM-4.7-Flash, or to a model that was made from it.
fn check_model(values: &Values) -> Result<()> {
    let text = |key: &str| values.metadata.get(key).map_or("", String::as_str);
    let names = ["general.basename", "general.name"].map(text);
    if !names.iter().any(|name| name.to_lowercase().contains(&BASENAME.to_lowercase())) && text("tokenizer.ggml.pre") != VOCABULARY {
        let found = names.iter().find(|name| !name.is_empty()).map_or("a model without a name".to_string(), |name| short(name, 64));
        return Err(Error::model(format!("of the architecture {ARCHITECTURE}, only GLM-4.7-Flash is supported, found {found}"))
            .hint(super::super::config::DENSE));
    }
    // Some early files have no such key. They were made before llama.cpp knew that this model needs sigmoid.
    if let Some(found) = values.get::<usize>("expert_gating_func")?.filter(|found| ![0, SIGMOID].contains(found)) {
        let text = format!("expected {SIGMOID}, the sigmoid, for the experts of GLM-4.7-Flash, found {found}");
        return Err(Error::model(text).at(values.key("expert_gating_func")).hint("download a newer file of this model"));
    }
    values.check_scaling()
}

/// Returns the configuration in the metadata. A missing key has llama.cpp's default, or is an error if llama.cpp has no default.
fn glm(values: &Values) -> Result<Glm> {
    let or = |key: &str, default: usize| values.get::<usize>(key).map(|found| found.unwrap_or(default));
    let rope_size: usize = values.need("rope.dimension_count")?;
    // Files with a fused `attn_kv_b` have only the second key of each pair, with the same meaning.
    let head = |of_latent: &str, plain: &str| values.get(of_latent)?.map_or_else(|| values.need::<usize>(plain), Ok);
    let head_size = head("attention.key_length_mla", "attention.key_length")?;
    let value_size = head("attention.value_length_mla", "attention.value_length")?;
    let Some(nope_size) = head_size.checked_sub(rope_size) else {
        return Err(Error::model(format!("expected heads of more than {rope_size} rotated channels, found {head_size} channels")));
    };
    let n_all = values.need::<usize>("block_count")?;
    let n_layers = n_all.saturating_sub(or("nextn_predict_layers", 0)?);
    if !(1..=MAX_LAYERS).contains(&n_layers) {
        return Err(Error::model(format!("expected 1 to {MAX_LAYERS} layers, found {n_layers}")).at(values.key("block_count")));
    }
    let n_dense = or("leading_dense_block_count", 0)?;
    // 0 stands for no scaling.
    let scale = values.get::<f32>("expert_weights_scale")?.filter(|scale| *scale != 0.0);
    let flash = Flash {
        q_rank: values.get::<usize>("attention.q_lora_rank")?.filter(|rank| *rank > 0),
        kv_rank: values.need("attention.kv_lora_rank")?,
        nope_size,
        rope_size,
        value_size,
        n_experts: values.need("expert_count")?,
        n_used: values.need("expert_used_count")?,
        n_groups: or("expert_group_count", 1)?.max(1),
        n_used_groups: or("expert_group_used_count", 1)?.max(1),
        n_shared: values.need("expert_shared_count")?,
        expert_ffn: values.need("expert_feed_forward_length")?,
        scale: scale.unwrap_or(1.0),
        normalises: values.get("expert_weights_norm")?.unwrap_or(false),
        dense: (0..n_layers).map(|layer| layer < n_dense).collect(),
    };
    let n_head = values.need("attention.head_count")?;
    let (eos, pad) = values.ends()?;
    let glm = Glm {
        model_type: FLASH.to_string(),
        n_head,
        n_kv_head: n_head,
        head_size,
        rotary_size: rope_size,
        rope_theta: values.theta()?,
        rms_norm_eps: values.need("attention.layer_norm_rms_epsilon")?,
        attention_bias: false,
        max_context: values.need("context_length")?,
        eos,
        pad,
        labels: vec![],
        flash: Some(flash),
    };
    glm.check()
}

/// Returns the tensor under its canonical name, or `None` if the model does not need it: the table of rotary frequencies, and the layers that predict
/// further tokens. An unknown tensor keeps its name.
fn canonical(t: &ListedTensor, n_layers: usize) -> Option<LocatedTensor> {
    if t.name == "rope_freqs.weight" {
        return None;
    }
    if let Some((_, name)) = TOP.iter().find(|(ours, _)| *ours == t.name) {
        return Some(located(t, name.to_string()));
    }
    let index = t.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).and_then(|(index, _)| index.parse::<usize>().ok());
    if index.is_some_and(|index| index >= n_layers) {
        return None;
    }
    let Some((block, stem, end)) = block_parts(t.name) else { return Some(located(t, t.name.to_string())) };
    if (stem, end) == ROUTER_BIAS.0 {
        return Some(located(t, format!("model.layers.{block}.{}", ROUTER_BIAS.1)));
    }
    let part = PARTS.iter().find(|(ours, _)| *ours == stem).map(|(_, part)| format!("model.layers.{block}.{part}.{end}"));
    Some(located(t, part.unwrap_or_else(|| t.name.to_string())))
}

/// Checks that the sizes in the metadata equal the sizes of the tensors.
fn check_sizes(values: &Values, tensors: &[LocatedTensor], glm: &Glm) -> Result<()> {
    let shape = |name: &str| tensors.iter().find(|t| t.name == name).map(|t| t.shape.as_slice());
    let table = shape(TOP[0].1);
    values.agree("embedding_length", table.and_then(|s| s.last().copied()))?;
    values.agree("vocab_size", table.map(|s| s[0]))?;
    let dense = glm.flash.as_ref().and_then(|flash| flash.dense.iter().position(|dense| *dense));
    let gate = dense.and_then(|layer| shape(&format!("model.layers.{layer}.mlp.gate_proj.weight")));
    values.agree("feed_forward_length", gate.map(|s| s[0]))?;
    let layers: BTreeSet<usize> = tensors.iter().filter_map(|t| layer_of(&t.name)).collect();
    let n_layers = glm.flash.as_ref().map_or(0, |flash| flash.dense.len());
    match layers.len() == n_layers {
        true => Ok(()),
        false => Err(Error::file(format!("the metadata describe {n_layers} layers, but the tensors have {}", layers.len()))),
    }
}

#[cfg(test)]
mod tests;
