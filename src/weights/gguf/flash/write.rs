//! Describes GLM-4.7-Flash in the terms of llama.cpp, with the reader's tables of names.
//!
//! The experts of a layer become one stack per projection, and the heads of `k_b` and of `v_b` one stack each. A stack is written matrix by matrix.

use super::super::glm::TOP;
use super::super::model::{GgufModel, GgufTensor, Precision, matrix, size, unnamed};
use super::super::value::GgufValue;
use super::{ARCHITECTURE, BASENAME, PARTS, ROUTER_BIAS, SIGMOID};
use crate::error::{Error, Result};
use crate::weights::{Checkpoint, Flash, Glm, layer_of};
use std::collections::BTreeSet;

/// The router of the experts, which llama.cpp needs as F32.
const ROUTER: &str = "mlp.gate";

/// Describes a checkpoint with the settings `glm` and `flash`.
///
/// # Errors
///
/// `Model` if a tensor is missing, or if a layer without experts comes after a layer with experts. `Usage` if llama.cpp has no name for a tensor.
pub fn model(input: &Checkpoint, glm: &Glm, flash: &Flash) -> Result<GgufModel> {
    let sizes = sizes(input, glm, flash)?;
    let (mut tensors, mut stacks) = (Vec::new(), BTreeSet::new());
    for name in input.names() {
        let file = FileName::of(name).ok_or_else(|| unnamed(name).at(input.location()))?;
        let Some(stack) = file.stack else {
            let kept = GgufTensor::kept(file.name, name, input.shape(name).expect("names() lists what shape() finds"));
            let precision = if name.ends_with(&format!(".{ROUTER}.weight")) { Precision::Single } else { kept.precision };
            tensors.push(GgufTensor { precision, ..kept });
            continue;
        };
        let n = if stack.is_of_heads { glm.n_head } else { flash.n_experts };
        if stack.index >= n {
            return Err(unnamed(name).at(input.location()));
        }
        if stacks.insert(file.name.clone()) {
            tensors.push(stacked(input, file.name, (0..n).map(|i| stack.member(i)).collect())?);
        }
    }
    Ok(GgufModel { architecture: ARCHITECTURE, basename: Some(BASENAME), sizes, tensors })
}

/// The name of a canonical tensor in the file.
struct FileName {
    name: String,
    /// The stack of matrices to which the tensor belongs, or `None` if the file has the tensor alone.
    stack: Option<StackName>,
}

/// A pattern for the canonical names of a stack's matrices. The names differ only in a number.
struct StackName {
    /// The text before the number, with a dot at its end.
    before: String,
    /// The text after the number, with a dot at its beginning.
    after: String,
    /// The number in the tensor's own name.
    index: usize,
    is_of_heads: bool,
}

impl StackName {
    fn member(&self, index: usize) -> String {
        format!("{}{index}{}", self.before, self.after)
    }
}

impl FileName {
    /// Returns the name of a canonical tensor in the file, or `None` if llama.cpp has no name for it.
    fn of(canonical: &str) -> Option<FileName> {
        if let Some((name, _)) = TOP.iter().find(|(_, known)| *known == canonical) {
            return Some(FileName { name: name.to_string(), stack: None });
        }
        let block = layer_of(canonical)?;
        let layer = format!("model.layers.{block}.");
        let part = canonical.strip_prefix(&layer)?;
        if part == ROUTER_BIAS.1 {
            let (stem, end) = ROUTER_BIAS.0;
            return Some(FileName { name: format!("blk.{block}.{stem}.{end}"), stack: None });
        }
        let (stem, end) = part.rsplit_once('.')?;
        let (stem, stack) = match split(stem) {
            Some((before, index, after)) => {
                let stack = StackName {
                    before: format!("{layer}{before}."),
                    after: format!("{after}.{end}"),
                    index,
                    is_of_heads: after.is_empty(),
                };
                (format!("{before}{after}"), Some(stack))
            }
            None => (stem.to_string(), None),
        };
        let (name, _) = PARTS.iter().find(|(_, known)| *known == stem)?;
        Some(FileName { name: format!("blk.{block}.{name}.{end}"), stack })
    }
}

/// Splits the name of a matrix of a stack at its number: `mlp.experts.5.up_proj` into `mlp.experts`, 5 and `.up_proj`, `self_attn.k_b.3` into
/// `self_attn.k_b`, 3 and an empty text. Returns `None` for the names of other tensors.
fn split(stem: &str) -> Option<(&str, usize, &str)> {
    const EXPERTS: &str = "mlp.experts";
    let number = |text: &str| text.parse::<usize>().ok().filter(|n| n.to_string() == text);
    if let Some(rest) = stem.strip_prefix(EXPERTS).and_then(|rest| rest.strip_prefix('.')) {
        let at = rest.find('.')?;
        return Some((EXPERTS, number(&rest[..at])?, &rest[at..]));
    }
    let (before, index) = stem.rsplit_once('.')?;
    ["self_attn.k_b", "self_attn.v_b"].contains(&before).then_some((before, number(index)?, ""))
}

/// Returns the stack of the matrices `sources`, `[matrices, rows, columns]`.
fn stacked(input: &Checkpoint, name: String, sources: Vec<String>) -> Result<GgufTensor> {
    let first = matrix(input, &sources[0])?;
    for source in &sources {
        let found = matrix(input, source)?;
        if found != first {
            let text = format!("expected the shape {first:?} as in {}, found the shape {found:?}", sources[0]);
            return Err(Error::model(text).at(format!("tensor {source}")).at(input.location()).hint("leave out `layout`"));
        }
    }
    let shape = vec![sources.len(), first[0], first[1]];
    Ok(GgufTensor { name, sources, shape, swapped: false, order: vec![], precision: Precision::Blocks })
}

/// Returns the metadata of a model, without the architecture's name in the keys.
fn sizes(input: &Checkpoint, glm: &Glm, flash: &Flash) -> Result<Vec<(&'static str, GgufValue)>> {
    let n_dense = flash.dense.iter().take_while(|dense| **dense).count();
    if let Some(later) = flash.dense.iter().skip(n_dense).position(|dense| *dense) {
        let text = format!(
            "llama.cpp needs the layers without experts before all others, found layer {} without experts after layer {n_dense} with experts",
            n_dense + later
        );
        return Err(Error::model(text).at(input.location()).hint("leave out `layout`"));
    }
    let [n_vocab, width] = matrix(input, TOP[0].1)?;
    let mut sizes = vec![
        ("context_length", size(glm.max_context)?),
        ("embedding_length", size(width)?),
        ("block_count", size(flash.dense.len())?),
        ("leading_dense_block_count", size(n_dense)?),
        ("attention.head_count", size(glm.n_head)?),
        // All heads read one latent vector, which llama.cpp counts as one key head.
        ("attention.head_count_kv", size(1)?),
        ("attention.q_lora_rank", size(flash.q_rank.unwrap_or(0))?),
        ("attention.kv_lora_rank", size(flash.kv_rank)?),
        ("attention.key_length", size(flash.kv_rank + flash.rope_size)?),
        ("attention.value_length", size(flash.kv_rank)?),
        ("attention.key_length_mla", size(glm.head_size)?),
        ("attention.value_length_mla", size(flash.value_size)?),
        ("attention.layer_norm_rms_epsilon", GgufValue::F32(glm.rms_norm_eps)),
        ("rope.dimension_count", size(flash.rope_size)?),
        ("rope.freq_base", GgufValue::F32(glm.rope_theta as f32)),
        ("expert_count", size(flash.n_experts)?),
        ("expert_used_count", size(flash.n_used)?),
        ("expert_shared_count", size(flash.n_shared)?),
        ("expert_feed_forward_length", size(flash.expert_ffn)?),
        ("expert_weights_scale", GgufValue::F32(flash.scale)),
        ("expert_weights_norm", GgufValue::Bool(flash.normalises)),
        ("expert_gating_func", size(SIGMOID)?),
        ("vocab_size", size(n_vocab)?),
    ];
    if n_dense > 0 {
        sizes.push(("feed_forward_length", size(matrix(input, "model.layers.0.mlp.gate_proj.weight")?[0])?));
    }
    // llama.cpp refuses a model that uses all of its groups. Such groups change nothing.
    if flash.n_used_groups < flash.n_groups {
        sizes.extend([("expert_group_count", size(flash.n_groups)?), ("expert_group_used_count", size(flash.n_used_groups)?)]);
    }
    Ok(sizes)
}
