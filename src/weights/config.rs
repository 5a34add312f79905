//! Hugging Face's `config.json`, where there is one: whether this is an RWKV at all, and the few numbers that no shape tells.
//!
//! Shapes decide; a configuration that contradicts them belongs to another model. Knows no architecture.

use super::index::read_small;
use super::{Slot, layer_of};
use crate::error::{Error, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Real ones have a few kilobytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// Metadata: the ε of the group norm after the recurrence, where the model does not use the usual 64e-5.
pub const GROUP_NORM_EPS: &str = "wingbeat.group_norm_eps";
/// Metadata: the ε of all layer norms, usually 1e-5.
pub const LAYER_NORM_EPS: &str = "wingbeat.layer_norm_eps";

/// What we use of it; everything else is ignored.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Config {
    model_type: Option<String>,
    hidden_size: Option<u64>,
    num_hidden_layers: Option<u64>,
    vocab_size: Option<u64>,
    head_dim: Option<u64>,
    head_size: Option<u64>,
    head_size_divisor: Option<u64>,
    attention_hidden_size: Option<u64>,
    intermediate_size: Option<u64>,
    norm_eps: Option<f64>,
    layer_norm_epsilon: Option<f64>,
    tie_word_embeddings: Option<bool>,
}

impl Config {
    /// Reads one and refuses models that are none of ours.
    pub fn read(path: &Path) -> Result<Config> {
        Self::parse(&read_small(path, MAX_CONFIG_BYTES)?).map_err(|e| e.at(path.display()))
    }

    fn parse(json: &[u8]) -> Result<Config> {
        let config: Config =
            serde_json::from_slice(json).map_err(|e| Error::file(format!("expected the configuration of a model as JSON: {e}")))?;
        match &config.model_type {
            Some(found) if !is_rwkv(found) => {
                let start: String = found.chars().take(80).collect();
                Err(Error::model(format!("expected an RWKV model, found the model_type {start:?}"))
                    .hint("other models and hybrids do not run"))
            }
            _ => Ok(config),
        }
    }

    /// Whether the output matrix is the embedding, where the file has none of its own.
    pub fn is_tied(&self) -> bool {
        self.tie_word_embeddings == Some(true)
    }

    /// The metadata that an architecture may need. What contradicts the shapes is refused.
    pub fn metadata(&self, slots: &[(String, Slot)]) -> Result<BTreeMap<String, String>> {
        let shape = |name: &str| slots.iter().find(|(n, _)| n == name).map(|(_, slot)| slot.shape());
        let agree = |key: &str, said: Option<u64>, found: Option<usize>, place: &str| match (said, found) {
            (Some(said), Some(found)) if said != found as u64 => {
                let message = format!("expected {key} {found} as {place} has it, found {said}");
                Err(Error::model(message).hint("this config.json belongs to another model: download both again"))
            }
            _ => Ok(()),
        };
        let emb = shape("emb.weight").filter(|s| s.len() == 2);
        agree("hidden_size", self.hidden_size, emb.as_ref().map(|s| s[1]), "emb.weight")?;
        agree("vocab_size", self.vocab_size, emb.as_ref().map(|s| s[0]), "emb.weight")?;
        let rows = |name: &str| shape(name).filter(|s| s.len() == 2).map(|s| s[0]);
        let (att, ffn) = ("blocks.0.att.key.weight", "blocks.0.ffn.key.weight");
        agree("attention_hidden_size", self.attention_hidden_size, rows(att), att)?;
        agree("intermediate_size", self.intermediate_size, rows(ffn), ffn)?;
        let layers: BTreeSet<usize> = slots.iter().filter_map(|(name, _)| layer_of(name)).collect();
        agree("num_hidden_layers", self.num_hidden_layers, Some(layers.len()).filter(|n| *n > 0), "the number of blocks")?;

        let r_k = shape("blocks.0.att.r_k").filter(|s| s.len() == 2);
        let mut metadata = BTreeMap::new();
        if let Some(eps) = self.norm_eps.or(self.layer_norm_epsilon) {
            metadata.insert(LAYER_NORM_EPS.to_string(), number(eps)?);
        }
        // The ports of v5 and v6 divide y by this and then take 1e-5, as the official trainer does.
        if let Some(divisor) = self.head_size_divisor.filter(|_| r_k.is_none()) {
            metadata.insert(GROUP_NORM_EPS.to_string(), number((divisor * divisor) as f64 * 1e-5)?);
        }
        agree("head_dim", self.head_dim.or(self.head_size), r_k.as_ref().map(|s| s[1]), "blocks.0.att.r_k")?;
        if let (Some(r_k), Some(eps)) = (r_k, self.norm_eps) {
            metadata.insert(GROUP_NORM_EPS.to_string(), number(r_k[1] as f64 * eps)?);
        }
        Ok(metadata)
    }
}

/// As text with no more digits than f32 has: 64 x 1e-5 reads 0.00064.
fn number(eps: f64) -> Result<String> {
    let narrow = eps as f32;
    if !(narrow > 0.0 && narrow < 1.0) {
        return Err(Error::model(format!("expected an epsilon between 0 and 1, found {eps}")));
    }
    Ok(narrow.to_string())
}

/// `rwkv`, `rwkv5`, `rwkv_6`, `rwkv7_fla` and the like. Hybrids say the name of their other half: `rwkv6qwen2`, `arwkv7`.
fn is_rwkv(model_type: &str) -> bool {
    let lower = model_type.to_lowercase();
    let Some(rest) = lower.strip_prefix("rwkv") else { return false };
    rest.split(['_', '-', '.', ' ']).all(|part| ["", "fla", "hf", "world"].contains(&part) || is_version(part))
}

/// `7`, `v7`, `x070`.
fn is_version(part: &str) -> bool {
    let digits = part.strip_prefix(['v', 'x']).unwrap_or(part);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(json: &str) -> String {
        Config::parse(json.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn other_models_are_refused_by_name() {
        for name in ["rwkv", "rwkv5", "rwkv6", "rwkv7", "RWKV7", "rwkv7_fla", "rwkv_v6", "rwkv-x070", "rwkv5-world"] {
            Config::parse(format!(r#"{{"model_type":"{name}"}}"#).as_bytes()).unwrap();
        }
        for name in ["llama", "qwen2", "rwkv6qwen2", "arwkv7", "rwkv7_hybrid", "rwkv7llama", "mamba", ""] {
            let text = refusal(&format!(r#"{{"model_type":"{name}"}}"#));
            assert!(text.contains(&format!("expected an RWKV model, found the model_type \"{name}\"")), "{text}");
        }
    }

    #[test]
    fn hostile_configurations_are_one_line() {
        for json in ["", "[]x", "null", r#"{"hidden_size":-1}"#, r#"{"hidden_size":"9"}"#, r#"{"norm_eps":"x"}"#, r#"{"model_type":7}"#] {
            assert!(refusal(json).contains("as JSON"), "{json}");
        }
        assert!(!refusal(&"[".repeat(100_000)).contains('\n'));
        for eps in [0.0, -1e-5, 1.0, 1e-300] {
            assert!(number(eps).is_err(), "{eps}");
        }
        assert_eq!(number(64.0 * 1e-5).unwrap(), "0.00064");
        assert!(Config::parse(b"{}").unwrap().metadata(&[]).unwrap().is_empty());
    }
}
