//! Describes models of RWKV-6, RWKV-7, ARWKV-7 and QRWKV-6 in the terms of llama.cpp, with the reader's tables of names.

use super::super::model::{GgufModel, GgufTensor, Precision, matrix, size, unnamed};
use super::super::value::GgufValue;
use super::{Heads, IN_QWEN, KEPT, RwkvVersion, Swapped, TOP, VERSIONS, Vector};
use crate::error::{Error, Result};
use crate::weights::{Checkpoint, GROUP_NORM_EPS, HEAD_SIZE, LAYER_NORM_EPS, LERP_ORDER, layer_of, lerp_indices};

/// RWKV models have no limit on the context. llama.cpp needs a number, and its converter writes this number.
const CONTEXT: usize = 1 << 20;
/// llama.cpp's ε of the group norm. Files cannot set another value.
const GROUP_NORM: f32 = 64e-5;
/// Low-rank matrices that llama.cpp's converter always writes as F32. It writes the other low-rank matrices with the type of the large matrices.
const SINGLE: [&str; 4] = ["time_mix_w1", "time_mix_w2", "time_mix_decay_w1", "time_mix_decay_w2"];

/// The low-rank matrices of all lerps. The parts of the lerps follow each other, in the order w, k, v, r, g.
const LERPS: [&str; 2] = ["time_mix_w1", "time_mix_w2"];

/// Describes a checkpoint of an RWKV-6, RWKV-7, ARWKV-7 or QRWKV-6.
///
/// # Errors
///
/// `Usage` if llama.cpp has no architecture for the model. `Model` if a tensor is missing or has an unsupported shape.
pub fn model(input: &Checkpoint) -> Result<GgufModel> {
    let has = |name: &str| input.shape(name).is_some();
    let architecture = match (has("blocks.0.att.time_maa_w1"), has("blocks.0.att.r_k"), has("blocks.0.ffn.gate.weight")) {
        (true, _, false) => "rwkv6",
        (true, _, true) => "rwkv6qwen2",
        (false, true, false) => "rwkv7",
        (false, true, true) => "arwkv7",
        (false, false, _) => {
            let e = Error::usage("the layout gguf exists for RWKV-6, RWKV-7, ARWKV-7, QRWKV-6 and GLM-4 only").at(input.location());
            return Err(e.hint("leave out `layout`"));
        }
    };
    let version = VERSIONS.iter().find(|version| version.architecture == architecture).expect("the table has all architectures");
    // The body of Qwen2 has no norm after the embedding, and norms without biases.
    let is_needed = |name: &str| !version.is_in_qwen() || !(name.contains(".ln0.") || name.ends_with(".bias"));
    if let Some((_, missing)) = TOP.iter().find(|(_, name)| is_needed(name) && !has(name)) {
        return Err(Error::model("the tensor is missing, and the layout gguf needs it")
            .at(format!("tensor {missing}"))
            .at(input.location())
            .hint("leave out `layout`"));
    }
    let mut tensors = Vec::new();
    for name in input.names() {
        tensors.extend(version.of(name, input).map_err(|e| e.at(input.location()))?);
    }
    Ok(GgufModel { architecture: version.architecture, basename: None, sizes: sizes(version, input)?, tensors })
}

impl RwkvVersion {
    fn is_in_qwen(&self) -> bool {
        IN_QWEN.contains(&self.architecture)
    }

    /// Returns the tensors of the file that are made from the official tensor `official`. The first part of a fused tensor returns the whole fused
    /// tensor. The list is empty for the later parts, and for a tensor that the model does not use.
    fn of(&self, official: &str, input: &Checkpoint) -> Result<Vec<GgufTensor>> {
        let Some(shape) = input.shape(official) else { return Ok(vec![]) };
        let len: usize = shape.iter().product();
        if let Some((name, _)) = TOP.iter().find(|(_, known)| *known == official) {
            return Ok(vec![GgufTensor::kept(name.to_string(), official, shape)]);
        }
        let parts = layer_of(official).and_then(|block| Some((block, official.strip_prefix(&format!("blocks.{block}."))?)));
        let Some((block, part)) = parts else { return Err(unnamed(official)) };
        // The norm before the ffn has two names in GGUF. The later one in the table belongs to the body of Qwen2.
        let kept = |stem: &str| {
            let mut known = KEPT.iter().filter(|(_, name)| *name == stem).map(|(name, _)| *name);
            if self.is_in_qwen() { known.next_back() } else { known.next() }
        };
        if let Some((stem, end)) = part.rsplit_once('.').and_then(|(stem, end)| Some((kept(stem)?, end))) {
            return Ok(vec![GgufTensor::kept(format!("blk.{block}.{stem}.{end}"), official, shape)]);
        }
        match self.fused.iter().position(|name| *name == part) {
            Some(0) => return Ok(vec![self.fused(block, len, input)?]),
            Some(_) => return Ok(vec![]),
            None => {}
        }
        let Some((stem, _, form)) = self.own.iter().find(|(_, name, _)| *name == part) else { return Err(unnamed(official)) };
        if block == 0 && self.unused.contains(stem) {
            return Ok(vec![]);
        }
        let (shape, swapped, precision) = match form {
            Vector => (vec![len], false, Precision::Single),
            Swapped if SINGLE.contains(stem) => (swapped(&shape), true, Precision::Single),
            Swapped => (swapped(&shape), true, Precision::Float),
            // Files of RWKV-7 store the bonus r_k as one vector.
            Heads if self.unused.is_empty() => (shape, false, Precision::Single),
            Heads => (vec![len], false, Precision::Single),
        };
        let order = input.metadata().get(LERP_ORDER).map(|order| lerp_indices(order)).transpose()?;
        let order = order.filter(|indices| !indices.is_sorted()).map_or(vec![], Vec::from);
        let tensor = |stem: &str| GgufTensor {
            name: format!("blk.{block}.{stem}.weight"),
            sources: vec![official.to_string()],
            shape: shape.clone(),
            swapped,
            order: if LERPS.contains(&stem) { order.clone() } else { vec![] },
            precision,
        };
        // llama.cpp needs v0 to v2 in block 0, too, but does not use them. Its converter stores a0 to a2 under these names.
        let dummy = stem.replace("time_mix_a", "time_mix_v");
        let dummy = (block == 0 && dummy != *stem && self.unused.contains(&dummy.as_str())).then(|| tensor(&dummy));
        Ok(dummy.into_iter().chain([tensor(stem)]).collect())
    }

    /// Returns the fused tensor of a block's lerp vectors of `width` numbers. The model may lack the last vectors of the field `fused`.
    fn fused(&self, block: usize, width: usize, input: &Checkpoint) -> Result<GgufTensor> {
        let sources: Vec<String> = self.fused.iter().map(|name| format!("blocks.{block}.{name}")).collect();
        // Files of ARWKV-7 have x_g also without a gate, but llama.cpp then expects five vectors.
        let is_gated = !self.is_in_qwen() || input.shape(&format!("blocks.{block}.att.g1")).is_some();
        let has = |name: &String| input.shape(name).is_some() && (is_gated || !name.ends_with(".att.x_g"));
        let n = sources.iter().rposition(has).map_or(0, |last| last + 1).max(self.fused_least);
        if let Some(missing) = sources[..n].iter().find(|name| !has(name)) {
            return Err(Error::model("the tensor is missing, and the layout gguf needs it")
                .at(format!("tensor {missing}"))
                .hint("leave out `layout`"));
        }
        let found = sources[..n].to_vec();
        let shape = vec![found.len(), 1, 1, width];
        let name = format!("blk.{block}.time_mix_lerp_fused.weight");
        Ok(GgufTensor { name, sources: found, shape, swapped: false, order: vec![], precision: Precision::Single })
    }
}

/// Returns a shape with its last two dimensions swapped.
fn swapped(shape: &[usize]) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if let [.., rows, columns] = &mut shape[..] {
        std::mem::swap(rows, columns);
    }
    shape
}

/// Returns the metadata of a model, without the architecture's name in the keys.
fn sizes(version: &RwkvVersion, input: &Checkpoint) -> Result<Vec<(&'static str, GgufValue)>> {
    let [n_vocab, width] = matrix(input, "emb.weight")?;
    let (is_v6, is_in_qwen) = (version.unused.is_empty(), version.is_in_qwen());
    let [_, head_size] = match input.metadata().get(HEAD_SIZE).and_then(|size| size.parse().ok()) {
        Some(size) if is_in_qwen && is_v6 => [0, size],
        _ => matrix(input, if is_v6 { "blocks.0.att.time_faaaa" } else { "blocks.0.att.r_k" })?,
    };
    let [ffn, _] = matrix(input, if is_in_qwen { "blocks.0.ffn.gate.weight" } else { "blocks.0.ffn.key.weight" })?;
    let [_, attention] = matrix(input, "blocks.0.att.output.weight")?;
    if attention != width {
        let text = format!("the layout gguf needs an attention as wide as the model, found {attention} and {width} channels");
        return Err(Error::model(text).at(input.location()).hint("leave out `layout`"));
    }
    if let Some(eps) = input.metadata().get(GROUP_NORM_EPS).filter(|eps| eps.parse() != Ok(GROUP_NORM)) {
        let text = format!("the layout gguf has no key for the group norm's epsilon {eps}");
        return Err(Error::model(text).at(input.location()).hint("leave out `layout`"));
    }
    let eps = input.metadata().get(LAYER_NORM_EPS).and_then(|eps| eps.parse().ok()).unwrap_or(1e-5);
    let n_layers = input.names().filter_map(layer_of).max().map_or(0, |last| last + 1);
    let rank =
        |name: &str| matrix(input, &format!("blocks.{}.att.{name}", if name == "v1" { n_layers - 1 } else { 0 })).map(|[_, rank]| rank);
    let mut sizes = vec![
        ("context_length", size(CONTEXT)?),
        ("embedding_length", size(width)?),
        ("block_count", size(n_layers)?),
        ("feed_forward_length", size(ffn)?),
        ("attention.head_count", GgufValue::U32(0)), // llama.cpp reads this key, but RWKV does not use it
        (if is_in_qwen { "attention.layer_norm_rms_epsilon" } else { "attention.layer_norm_epsilon" }, GgufValue::F32(eps)),
        ("wkv.head_size", size(head_size)?),
        ("token_shift_count", GgufValue::U32(if is_in_qwen { 1 } else { 2 })),
        ("vocab_size", size(n_vocab)?),
    ];
    match is_v6 {
        true => sizes.extend([
            ("time_mix_extra_dim", size(rank("time_maa_w1")? / version.fused.len())?),
            ("time_decay_extra_dim", size(rank("time_decay_w1")?)?),
            match is_in_qwen {
                true => ("attention.head_count_kv", size(matrix(input, "blocks.0.att.key.weight")?[0] / head_size.max(1))?),
                // The numbers between blocks are F32 in llama.cpp and do not overflow, so no matrix is divided.
                false => ("rescale_every_n_layers", GgufValue::U32(0)),
            },
        ]),
        false => {
            let value = if n_layers > 1 { "v1" } else { "a1" };
            sizes.extend([
                ("attention.decay_lora_rank", size(rank("w1")?)?),
                ("attention.iclr_lora_rank", size(rank("a1")?)?),
                ("attention.value_residual_mix_lora_rank", size(rank(value)?)?),
            ]);
            if input.shape("blocks.0.att.g1").is_some() {
                sizes.push(("attention.gate_lora_rank", size(rank("g1")?)?));
            }
        }
    }
    Ok(sizes)
}
