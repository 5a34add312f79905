//! Reads the `config.json` of an RWKV model.

use super::{GROUP_NORM_EPS, HEAD_SIZE, LAYER_NORM_EPS, ModelConfig, STOP_IDS, Shapes, agree, no_config};
use crate::error::{Error, Result, with_place};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The keys of an RWKV model's `config.json` that the loader uses.
#[derive(Debug, Default, Deserialize)]
pub(in crate::weights) struct RwkvConfig {
    hidden_size: Option<u64>,
    num_hidden_layers: Option<u64>,
    vocab_size: Option<u64>,
    head_dim: Option<u64>,
    head_size: Option<u64>,
    head_size_divisor: Option<u64>,
    attention_hidden_size: Option<u64>,
    intermediate_size: Option<u64>,
    num_attention_heads: Option<u64>,
    decay_low_rank_dim: Option<u64>,
    a_low_rank_dim: Option<u64>,
    v_low_rank_dim: Option<u64>,
    gate_low_rank_dim: Option<u64>,
    norm_eps: Option<f64>,
    layer_norm_epsilon: Option<f64>,
    rms_norm_eps: Option<f64>,
    eos_token_id: Option<StopIds>,
    tie_word_embeddings: Option<bool>,
}

/// One id or several ids of tokens that end a text.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum StopIds {
    One(u32),
    Many(Vec<u32>),
}

impl RwkvConfig {
    /// Reads a configuration.
    ///
    /// # Errors
    ///
    /// `File` if a key has a value of a wrong type.
    pub fn read(config: Map<String, Value>) -> Result<RwkvConfig> {
        serde_json::from_value(Value::Object(config)).map_err(|e| no_config(&with_place(&e)).caused_by(e))
    }
}

impl ModelConfig for RwkvConfig {
    fn is_tied(&self) -> bool {
        self.tie_word_embeddings == Some(true)
    }

    fn metadata(&self, shapes: &Shapes<'_>) -> Result<BTreeMap<String, String>> {
        let emb = shapes.matrix("emb.weight");
        agree("hidden_size", self.hidden_size, emb.map(|s| s[1]), "emb.weight")?;
        agree("vocab_size", self.vocab_size, emb.map(|s| s[0]), "emb.weight")?;
        let rows = |name: &str| shapes.matrix(name).map(|s| s[0]);
        let gate = "blocks.0.ffn.gate.weight";
        let is_in_qwen = rows(gate).is_some();
        // A QRWKV-6 has fewer key heads than receptance heads, so only its receptance matrix has the width of the attention.
        let [att, ffn] = match is_in_qwen {
            true => ["blocks.0.att.receptance.weight", gate],
            false => ["blocks.0.att.key.weight", "blocks.0.ffn.key.weight"],
        };
        agree("attention_hidden_size", self.attention_hidden_size, rows(att), att)?;
        agree("intermediate_size", self.intermediate_size, rows(ffn), ffn)?;
        agree("num_hidden_layers", self.num_hidden_layers, shapes.n_layer(), "the file")?;

        let r_k = shapes.matrix("blocks.0.att.r_k");
        let mut metadata = BTreeMap::new();
        if is_in_qwen {
            agree("head_size", self.head_size, r_k.map(|s| s[1]), "blocks.0.att.r_k")?;
            return self.in_qwen(shapes);
        }
        if let Some(eps) = self.norm_eps.or(self.layer_norm_epsilon) {
            metadata.insert(LAYER_NORM_EPS.to_string(), number(eps)?);
        }
        // The ports of RWKV-5 and 6 divide the output of the time mix by this divisor before they normalise with ε = 1e-5. Normalising the
        // undivided output with ε = divisor² · 1e-5 gives the same result.
        if let Some(divisor) = self.head_size_divisor.filter(|_| r_k.is_none()) {
            let divisor = divisor as f64;
            metadata.insert(GROUP_NORM_EPS.to_string(), number(divisor * divisor * 1e-5)?);
        }
        agree("head_dim", self.head_dim, r_k.map(|s| s[1]), "blocks.0.att.r_k")?;
        agree("head_size", self.head_size, r_k.map(|s| s[1]), "blocks.0.att.r_k")?;
        if r_k.is_some() {
            agree("num_attention_heads", self.num_attention_heads, r_k.map(|s| s[0]), "blocks.0.att.r_k")?;
            let ranks = [
                ("decay", self.decay_low_rank_dim, 0, "w1"),
                ("a", self.a_low_rank_dim, 0, "a1"),
                ("gate", self.gate_low_rank_dim, 0, "g1"),
            ];
            for (name, said, layer, pair) in ranks.into_iter().chain([("v", self.v_low_rank_dim, 1, "v1")]) {
                let tensor = format!("blocks.{layer}.att.{pair}");
                agree(&format!("{name}_low_rank_dim"), said, shapes.matrix(&tensor).map(|s| s[1]), &tensor)?;
            }
        }
        if let (Some([_, head_size]), Some(eps)) = (r_k, self.norm_eps) {
            metadata.insert(GROUP_NORM_EPS.to_string(), number(head_size as f64 * eps)?);
        }
        Ok(metadata)
    }
}

impl RwkvConfig {
    /// Returns the metadata of a model in the body of Qwen2. `num_attention_heads` counts the heads of the original Qwen2. The time mix of a QRWKV-6
    /// has the same number of heads. So the head size is the number of rows of its receptance matrix, divided by this number.
    fn in_qwen(&self, shapes: &Shapes<'_>) -> Result<BTreeMap<String, String>> {
        let mut metadata = BTreeMap::new();
        if let Some(eps) = self.rms_norm_eps {
            metadata.insert(LAYER_NORM_EPS.to_string(), number(eps)?);
        }
        if let Some(divisor) = self.head_size_divisor {
            metadata.insert(GROUP_NORM_EPS.to_string(), number((divisor * divisor) as f64 * 1e-5)?);
        }
        let is_qrwkv6 = shapes.matrix("blocks.0.att.time_maa_w1").is_some();
        let width = if is_qrwkv6 { shapes.matrix("blocks.0.att.receptance.weight").map(|s| s[0] as u64) } else { None };
        let of_heads =
            width.zip(self.num_attention_heads).filter(|(width, n)| *n > 0 && width.is_multiple_of(*n)).map(|(width, n)| width / n);
        if let Some(size) = self.head_size.or(of_heads) {
            metadata.insert(HEAD_SIZE.to_string(), size.to_string());
        }
        let ids = match &self.eos_token_id {
            Some(StopIds::One(id)) => vec![*id],
            Some(StopIds::Many(ids)) => ids.clone(),
            None => vec![],
        };
        metadata.insert(STOP_IDS.to_string(), ids.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
        Ok(metadata)
    }
}

/// Formats an epsilon with the digits of f32: 64 × 1e-5 is `0.00064`.
fn number(eps: f64) -> Result<String> {
    let narrow = eps as f32;
    if !(narrow > 0.0 && narrow < 1.0) {
        return Err(Error::model(format!("expected an epsilon of the norms between 0 and 1 in the configuration, found {eps}")));
    }
    Ok(narrow.to_string())
}

/// Returns true for `rwkv`, `rwkv5`, `rwkv_6`, `rwkv7_fla` and similar types, and for the types of ARWKV-7 and QRWKV-6. Returns false for other
/// hybrids.
pub(in crate::weights) fn is_rwkv(model_type: &str) -> bool {
    if ["rwkv_hybrid", "rwkv6qwen2"].contains(&model_type) {
        return true;
    }
    let lower = model_type.to_lowercase();
    let Some(rest) = lower.strip_prefix("rwkv") else { return false };
    rest.split(['_', '-', '.', ' ']).all(|part| ["", "fla", "hf", "world"].contains(&part) || is_version(part))
}

/// Returns true for a version number: `7`, `v7`, `x070`.
fn is_version(part: &str) -> bool {
    let digits = part.strip_prefix(['v', 'x']).unwrap_or(part);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epsilon_has_the_digits_of_f32() {
        for eps in [0.0, -1e-5, 1.0, 1e-300] {
            assert!(number(eps).is_err(), "{eps}");
        }
        assert_eq!(number(64.0 * 1e-5).unwrap(), "0.00064");
    }
}
