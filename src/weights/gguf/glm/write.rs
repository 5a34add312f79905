//! Describes GLM models in the terms of llama.cpp, with the reader's tables of names.

use super::super::model::{GgufModel, GgufTensor, matrix, size, unnamed};
use super::super::value::GgufValue;
use super::{ARCHITECTURES, PARTS, TOP};
use crate::error::{Error, Result};
use crate::weights::{Checkpoint, Glm, layer_of};

/// Describes a checkpoint of a GLM with the settings `glm`. For a model with vision, describes only the text half, a `glm4`.
///
/// # Errors
///
/// `Model` if a tensor is missing, or if llama.cpp does not support the sizes of the heads. `Usage` if llama.cpp has no name for a tensor.
pub fn model(input: &Checkpoint, glm: &Glm) -> Result<GgufModel> {
    let [chatglm, glm4] = ARCHITECTURES;
    let architecture = if glm.has_branch_norms() { glm4 } else { chatglm };
    let [n_vocab, width] = matrix(input, TOP[0].1)?;
    let [_, ffn] = matrix(input, "model.layers.0.mlp.down_proj.weight")?;
    if architecture == chatglm && glm.q_rows() != width {
        let text =
            format!("llama.cpp needs heads that together have the width {width}, found {} heads of {} channels", glm.n_head, glm.head_size);
        return Err(Error::model(text).at(input.location()).hint("leave out `layout`"));
    }
    let n_layers = input.names().filter_map(layer_of).max().map_or(0, |last| last + 1);
    let sizes = vec![
        ("context_length", size(glm.max_context)?),
        ("embedding_length", size(width)?),
        ("block_count", size(n_layers)?),
        ("feed_forward_length", size(ffn)?),
        ("attention.head_count", size(glm.n_head)?),
        ("attention.head_count_kv", size(glm.n_kv_head)?),
        ("attention.key_length", size(glm.head_size)?),
        ("attention.value_length", size(glm.head_size)?),
        ("attention.layer_norm_rms_epsilon", GgufValue::F32(glm.rms_norm_eps)),
        ("rope.dimension_count", size(glm.rotary_size)?),
        ("rope.freq_base", GgufValue::F32(glm.rope_theta as f32)),
        ("vocab_size", size(n_vocab)?),
    ];
    let tensor = |name: &str| {
        let shape = input.shape(name).expect("names() lists what shape() finds");
        of(name, shape).ok_or_else(|| unnamed(name).at(input.location()))
    };
    Ok(GgufModel { architecture, basename: None, sizes, tensors: input.names().map(tensor).collect::<Result<_>>()? })
}

/// Returns the file's tensor for a canonical tensor, or `None` if llama.cpp has no name for it.
fn of(canonical: &str, shape: Vec<usize>) -> Option<GgufTensor> {
    if let Some((name, _)) = TOP.iter().find(|(_, known)| *known == canonical) {
        return Some(GgufTensor::kept(name.to_string(), canonical, shape));
    }
    let block = layer_of(canonical)?;
    let (part, end) = canonical.strip_prefix(&format!("model.layers.{block}."))?.rsplit_once('.')?;
    let (name, _) = PARTS.iter().find(|(_, known)| *known == part)?;
    Some(GgufTensor::kept(format!("blk.{block}.{name}.{end}"), canonical, shape))
}
