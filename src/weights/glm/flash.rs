//! The settings of latent attention and of experts in GLM-4.7-Flash, and the shapes of its tensors.

use super::{Glm, MAX_ROWS, OF_ANOTHER};
use crate::error::{Error, Result};
use crate::weights::{TensorSlot, layer_of};
use serde::{Deserialize, Serialize};

/// The maximum numbers of layers, heads and experts. Each head and each expert has its own tensors. Without limits, a small hostile file could make
/// the loader list many millions of tensors.
pub(in crate::weights) const MAX_LAYERS: usize = 256;
const MAX_HEADS: usize = 1024;
const MAX_EXPERTS: usize = 1024;
/// The largest number of experts that one token uses.
const MAX_USED: usize = 16;
/// The largest rank, and the largest number of channels of a part of a head.
const MAX_RANK: usize = 1 << 16;
/// The largest number of channels of a key (the latent and the rotated channels), which kernels keep in workgroup memory.
const MAX_KEY: usize = 2048;
/// The largest number of channels of an expert.
const MAX_FFN: usize = 1 << 17;
/// The largest factor of the experts' weights.
const MAX_SCALE: f32 = 1e6;

/// The settings of latent attention and of experts, which only models of the type [`FLASH`](super::FLASH) have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flash {
    /// The rank of the query projection (`q_a_proj`, then `q_b_proj`). `None` means one plain matrix, `q_proj`.
    pub q_rank: Option<usize>,
    /// The number of channels of the latent vector that is cached per token and layer.
    pub kv_rank: usize,
    /// The number of channels of a query or key head that are not rotated.
    pub nope_size: usize,
    /// The number of rotated channels of a query head, and of the one rotated key that all heads share.
    pub rope_size: usize,
    /// The number of channels of a value head.
    pub value_size: usize,
    /// The number E of routed experts per layer.
    pub n_experts: usize,
    /// The number of routed experts per token.
    pub n_used: usize,
    /// The number of groups of experts. Each group has n_experts / n_groups experts with neighbouring indices.
    pub n_groups: usize,
    /// The number of groups that the experts of one token come from.
    pub n_used_groups: usize,
    /// The number of shared experts, which every token uses. Together they are one SwiGLU with n_shared · expert_ffn channels.
    pub n_shared: usize,
    /// The number F of channels of an expert's SwiGLU.
    pub expert_ffn: usize,
    /// The factor of the routed experts' sum.
    pub scale: f32,
    /// True if the weights of a token's experts are divided by their sum.
    pub normalises: bool,
    /// One entry per layer: true if the layer's mlp is a plain SwiGLU, false if it has experts.
    pub dense: Vec<bool>,
}

impl Flash {
    /// Checks that all values are in range, and that they agree with the other settings of the model.
    ///
    /// # Errors
    ///
    /// `Model` if a value is out of range.
    pub(super) fn check(&self, glm: &Glm) -> Result<()> {
        let refuse = |text: String| Err(Error::model(text));
        let Flash { n_experts, n_used, n_groups, n_used_groups, n_shared, expert_ffn, .. } = *self;
        let parts =
            [("kv_rank", self.kv_rank), ("nope_size", self.nope_size), ("rope_size", self.rope_size), ("value_size", self.value_size)];
        for (name, size) in parts {
            if size == 0 || size > MAX_RANK || !size.is_multiple_of(8) {
                return refuse(format!("expected a multiple of 8 from 8 to {MAX_RANK} as {name} of latent attention, found {size}"));
            }
        }
        if self.kv_rank + self.rope_size > MAX_KEY || expert_ffn > MAX_FFN {
            let text = format!("expected keys of at most {MAX_KEY} channels and experts of at most {MAX_FFN}, found");
            return refuse(format!("{text} {} + {} and {expert_ffn}", self.kv_rank, self.rope_size));
        }
        if let Some(rank) = self.q_rank.filter(|rank| !(1..=MAX_RANK).contains(rank)) {
            return refuse(format!("expected a q_rank of 1 to {MAX_RANK}, found {rank}"));
        }
        if glm.n_head > MAX_HEADS || glm.n_kv_head != glm.n_head {
            return refuse(format!(
                "expected at most {MAX_HEADS} query heads and as many key heads in latent attention, found {} and {}",
                glm.n_head, glm.n_kv_head
            ));
        }
        if glm.head_size != self.nope_size + self.rope_size || glm.rotary_size != self.rope_size {
            return refuse(format!(
                "expected heads of {} + {} channels, found heads of {} channels of which {} are rotated",
                self.nope_size, self.rope_size, glm.head_size, glm.rotary_size
            ));
        }
        if glm.n_head * (self.nope_size + self.value_size) > MAX_ROWS {
            return refuse(format!(
                "expected values of at most {MAX_ROWS} rows together, found {} heads of {}",
                glm.n_head, self.value_size
            ));
        }
        if glm.attention_bias {
            return refuse(format!("biases of queries, keys and values are not supported with model_type {}", glm.model_type));
        }
        if n_groups == 0 || !(1..=MAX_EXPERTS).contains(&n_experts) || !n_experts.is_multiple_of(n_groups) {
            return refuse(format!(
                "expected 1 to {MAX_EXPERTS} experts in groups of equal size, found {n_experts} experts in {n_groups} groups"
            ));
        }
        let per_group = n_experts / n_groups;
        if !(1..=n_groups).contains(&n_used_groups) || n_groups > 1 && per_group < 2 {
            return refuse(format!(
                "expected a token to use 1 to {n_groups} groups of at least 2 experts, found {n_used_groups} groups of {per_group}"
            ));
        }
        let most = MAX_USED.min(n_used_groups * per_group);
        if !(1..=most).contains(&n_used) {
            return refuse(format!("expected a token to use 1 to {most} experts, found {n_used}"));
        }
        if expert_ffn == 0 || n_shared == 0 || expert_ffn.checked_mul(n_shared.max(2)).is_none_or(|rows| rows > MAX_ROWS) {
            return refuse(format!(
                "expected experts of at most {MAX_ROWS} rows, found {n_shared} shared experts of {expert_ffn} channels"
            ));
        }
        if !(self.scale > 0.0 && self.scale <= MAX_SCALE) {
            return refuse(format!("expected a factor of the experts above 0 and at most {MAX_SCALE:e}, found {}", self.scale));
        }
        if !(1..=MAX_LAYERS).contains(&self.dense.len()) {
            return refuse(format!("expected 1 to {MAX_LAYERS} layers, found {}", self.dense.len()));
        }
        Ok(())
    }

    /// Compares the settings with the shapes of the tensors in layer 0 and in the first layer that has experts. Refuses a bias in any layer. Does not
    /// report missing tensors, or wrong shapes in other layers: loading the model reports them.
    ///
    /// # Errors
    ///
    /// `Model` if a shape contradicts the settings, or if a tensor has an unsupported bias.
    pub(super) fn check_tensors(&self, glm: &Glm, slots: &[(String, TensorSlot)]) -> Result<()> {
        let shape = |name: &str| slots.iter().find(|(n, _)| n == name).map(|(_, slot)| slot.shape());
        let width = shape("model.embed_tokens.weight").and_then(|s| s.last().copied());
        for (name, expected) in self.shapes(glm, width) {
            let Some(found) = shape(&name) else { continue };
            let fits = found.len() == expected.len() && expected.iter().zip(&found).all(|(e, f)| e.is_none_or(|e| e == *f));
            if !fits {
                let size = |d: &Option<usize>| d.map_or("any".to_string(), |d| d.to_string());
                let expected: Vec<String> = expected.iter().map(size).collect();
                let text = format!("expected the shape [{}], found the shape {found:?}", expected.join(", "));
                return Err(Error::model(text).at(format!("tensor {name}")).hint(OF_ANOTHER));
            }
        }
        // If biases were ignored, the model would run without an error and generate nonsense.
        match slots.iter().find(|(name, _)| layer_of(name).is_some() && name.ends_with(".bias")) {
            Some((name, _)) => Err(Error::model("no supported GLM has this bias").at(format!("tensor {name}")).hint(OF_ANOTHER)),
            None => Ok(()),
        }
    }

    /// Returns names of tensors and their shapes. A size of `None` is not compared. `width` is the width of the embedding.
    fn shapes(&self, glm: &Glm, width: Option<usize>) -> Vec<(String, Vec<Option<usize>>)> {
        let (q, f, shared) = (glm.q_rows(), self.expert_ffn, self.expert_ffn * self.n_shared);
        let last = glm.n_head - 1;
        let attention = [
            ("q_a_proj".to_string(), self.q_rank, width),
            ("q_b_proj".to_string(), Some(q), self.q_rank),
            ("q_proj".to_string(), Some(q), width),
            ("kv_a_proj_with_mqa".to_string(), Some(self.kv_rank + self.rope_size), width),
            (format!("k_b.{last}"), Some(self.kv_rank), Some(self.nope_size)),
            (format!("v_b.{last}"), Some(self.value_size), Some(self.kv_rank)),
            ("o_proj".to_string(), width, Some(glm.n_head * self.value_size)),
        ];
        let in_layer = |layer: usize, part: &str| format!("model.layers.{layer}.{part}");
        let mut all: Vec<_> =
            attention.into_iter().map(|(p, rows, k)| (in_layer(0, &format!("self_attn.{p}.weight")), vec![rows, k])).collect();
        if let Some(sparse) = self.dense.iter().position(|dense| !dense) {
            let last = self.n_experts - 1;
            all.push((in_layer(sparse, "mlp.gate.weight"), vec![Some(self.n_experts), width]));
            all.push((in_layer(sparse, "mlp.gate.e_score_correction_bias"), vec![Some(self.n_experts)]));
            for (mlp, f) in [(format!("experts.{last}"), f), ("shared_experts".to_string(), shared)] {
                all.push((in_layer(sparse, &format!("mlp.{mlp}.gate_proj.weight")), vec![Some(f), width]));
                all.push((in_layer(sparse, &format!("mlp.{mlp}.up_proj.weight")), vec![Some(f), width]));
                all.push((in_layer(sparse, &format!("mlp.{mlp}.down_proj.weight")), vec![width, Some(f)]));
            }
        }
        all
    }
}
