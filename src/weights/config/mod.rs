//! Hugging Face's `config.json`, where there is one: whether this is a model that runs at all, and the numbers that no shape tells.
//!
//! Shapes decide; a configuration that contradicts them belongs to another model. A file here for each family.

pub(super) mod glm;
pub(super) mod keys;
pub(super) mod rwkv;

use super::index::read_small;
use super::{FAMILIES, Glm, Slot, layer_of};
use crate::error::{Error, Result, short};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Real ones have a few kilobytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// Metadata: the ε of the group norm after the recurrence, where the model does not use the usual 64e-5.
pub const GROUP_NORM_EPS: &str = "wingbeat.group_norm_eps";
/// Metadata: the ε of all layer norms, usually 1e-5.
pub const LAYER_NORM_EPS: &str = "wingbeat.layer_norm_eps";

/// What the loader uses of a configuration; everything else in it is ignored.
pub(super) trait ModelConfig {
    /// Whether the output matrix is the embedding, where the file has none of its own.
    fn is_tied(&self) -> bool;

    /// What it says of a GLM, if it is one's.
    fn glm(&self) -> Option<&Glm> {
        None
    }

    /// The metadata that an architecture may need. What contradicts the shapes is refused.
    fn metadata(&self, shapes: &Shapes<'_>) -> Result<BTreeMap<String, String>>;
}

/// Reads a `config.json`, and refuses models of no [family](super::Family).
pub(super) fn read(path: &Path) -> Result<Box<dyn ModelConfig>> {
    parse(&read_small(path, MAX_CONFIG_BYTES)?).map_err(|e| e.at(path.display()))
}

fn parse(json: &[u8]) -> Result<Box<dyn ModelConfig>> {
    let config: Map<String, Value> = serde_json::from_slice(json).map_err(|e| no_config(&e).caused_by(e))?;
    let model_type = match config.get("model_type") {
        None | Some(Value::Null) => None,
        Some(Value::String(found)) => Some(found.as_str()),
        Some(_) => return Err(no_config(&"expected a text as model_type")),
    };
    match FAMILIES.iter().find(|family| family.is_model_type(model_type)) {
        Some(family) => family.config(config),
        None => {
            let known: Vec<&str> = FAMILIES.iter().rev().map(|family| family.name()).collect();
            let found = short(model_type.unwrap_or_default(), 80);
            Err(Error::model(format!("expected an {} model, found the model_type {found:?}", known.join(" or ")))
                .hint("other models, hybrids, and GLM with vision or with experts do not run"))
        }
    }
}

/// The metadata that an architecture may need, by what the configuration says and the tensors show.
pub(super) fn metadata(config: &dyn ModelConfig, slots: &[(String, Slot)]) -> Result<BTreeMap<String, String>> {
    config.metadata(&Shapes(slots))
}

fn no_config(why: &dyn std::fmt::Display) -> Error {
    Error::file(format!("expected the configuration of a model as JSON: {}", short(&why.to_string(), 200)))
}

/// The shapes of a checkpoint's canonical tensors.
pub(super) struct Shapes<'a>(&'a [(String, Slot)]);

impl Shapes<'_> {
    fn of(&self, name: &str) -> Option<Vec<usize>> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, slot)| slot.shape())
    }

    /// Rows and columns.
    fn matrix(&self, name: &str) -> Option<[usize; 2]> {
        self.of(name)?.try_into().ok()
    }

    fn n_layer(&self) -> Option<usize> {
        let layers: BTreeSet<usize> = self.0.iter().filter_map(|(name, _)| layer_of(name)).collect();
        Some(layers.len()).filter(|n| *n > 0)
    }
}

/// That the configuration says of `key` what `place` has, where both are there.
fn agree(key: &str, said: Option<u64>, found: Option<usize>, place: &str) -> Result<()> {
    match (said, found) {
        (Some(said), Some(found)) if said != found as u64 => {
            let message = format!("expected {key} {found} as {place} has it, found {said}");
            Err(Error::model(message).hint("this config.json belongs to another model: download both again"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(json: &str) -> String {
        parse(json.as_bytes()).err().unwrap().to_string()
    }

    #[test]
    fn other_models_are_refused_by_name() {
        for name in ["rwkv", "rwkv5", "rwkv6", "rwkv7", "RWKV7", "rwkv7_fla", "rwkv_v6", "rwkv-x070", "rwkv5-world"] {
            parse(format!(r#"{{"model_type":"{name}"}}"#).as_bytes()).unwrap();
        }
        let others = ["llama", "qwen2", "rwkv6qwen2", "arwkv7", "rwkv7_hybrid", "rwkv7llama", "mamba", ""];
        let of_glm = ["glm4v", "glm4_moe", "glm4v_moe", "glm46v", "glm_ocr", "GLM", "chatglm2", "glm4v_text"];
        for name in others.into_iter().chain(of_glm) {
            let text = refusal(&format!(r#"{{"model_type":"{name}"}}"#));
            assert!(text.contains(&format!("expected an RWKV or GLM model, found the model_type \"{name}\"")), "{text}");
        }
    }

    #[test]
    fn hostile_configurations_are_one_line() {
        for json in ["", "[]x", "null", r#"{"hidden_size":-1}"#, r#"{"hidden_size":"9"}"#, r#"{"norm_eps":"x"}"#, r#"{"model_type":7}"#] {
            assert!(refusal(json).contains("as JSON"), "{json}");
        }
        let long = "x".repeat(1 << 19);
        for json in ["[".repeat(100_000), format!(r#"{{"hidden_size":"{long}"}}"#), format!(r#"{{"model_type":"{long}"}}"#)] {
            let text = refusal(&json);
            assert!(!text.contains('\n') && text.len() < 400, "{text}");
        }
        assert!(metadata(parse(b"{}").unwrap().as_ref(), &[]).unwrap().is_empty());
    }
}
