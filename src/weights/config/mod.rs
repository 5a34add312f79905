//! Reads Hugging Face's `config.json`: the model type, and values that the tensors' shapes do not determine.
//!
//! A configuration that contradicts the shapes belongs to another model and is refused. Each family of models has one file here.

pub(super) mod glm;
pub(super) mod keys;
pub(super) mod rwkv;

use super::index::read_small;
use super::{FAMILIES, Glm, TensorSlot, layer_of};
use crate::error::{Error, Result, short, with_place};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The maximum size of a `config.json`, in bytes. Real files have a few kilobytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// The metadata key for the ε of the group norm in the time mix. Without this key, ε is 64e-5.
pub const GROUP_NORM_EPS: &str = "wingbeat.group_norm_eps";
/// The metadata key for the ε of all layer norms. Without this key, ε is 1e-5.
pub const LAYER_NORM_EPS: &str = "wingbeat.layer_norm_eps";
/// The metadata key for the head size of models whose tensors do not determine it.
pub const HEAD_SIZE: &str = "wingbeat.head_size";
/// The metadata key for the order of the lerps in `time_maa_w1` and `time_maa_w2`, as five letters. Without this key, the order is `wkvrg`.
pub const LERP_ORDER: &str = "wingbeat.lerp_order";
/// RWKV-6's order of the lerps.
const LERP_LETTERS: &str = "wkvrg";
/// The metadata key for the ids of tokens that end a text, with commas between them. Models with an RWKV vocabulary do not have this key.
pub const STOP_IDS: &str = "wingbeat.stop_ids";

/// Parses the value of [`LERP_ORDER`]. Returns the positions of the lerps w, k, v, r and g in the file, in this order.
///
/// # Errors
///
/// `Model` if the value is not the five letters in some order.
pub fn lerp_indices(order: &str) -> Result<[usize; 5]> {
    let index = |letter| order.chars().position(|of| of == letter).filter(|_| order.chars().count() == LERP_LETTERS.len());
    let found: Option<Vec<usize>> = LERP_LETTERS.chars().map(index).collect();
    found.and_then(|found| found.try_into().ok()).ok_or_else(|| {
        Error::model(format!("expected the letters {LERP_LETTERS} in some order as metadata value {LERP_ORDER}, found {order:?}"))
    })
}

/// Parses the value of [`STOP_IDS`]. Returns `None` if the value is not a list of ids.
pub fn ids(text: &str) -> Option<Vec<u32>> {
    text.split(',').filter(|id| !id.is_empty()).map(|id| id.parse().ok()).collect()
}

/// Model types that are refused with a reason, as pairs (beginning of the model type, reason). The error has the reason of the first pair that
/// matches.
const REFUSED: [(&str, &str); 9] = [
    ("glm4_moe", "GLM-4.5, 4.6 and 4.7 have experts (MoE)"),
    ("glm4v_moe", "GLM-4.5V and GLM-4.6V have experts (MoE)"),
    ("glm_moe_dsa", "GLM-5 has experts and sparse attention"),
    ("glm5", "GLM-5 has experts and sparse attention"),
    ("glm_ocr", "GLM-OCR reads only images"),
    ("glm_image", "GLM-Image makes only images"),
    ("glmasr", "GLM-ASR reads only sound"),
    ("deepseek", "DeepSeek models have experts or latent attention (MLA)"),
    ("kimi", "Kimi models have experts and latent attention (MLA)"),
];
/// The hint that lists the supported GLM models.
pub(super) const DENSE: &str = "wingbeat runs these GLM models: GLM-4-9B, GLM-4-32B-0414, GLM-Z1, GLM-Edge, GLM-4.7-Flash, \
     and GLM-4.1V and GLM-4.6V-Flash without images";

/// The values of a configuration that the loader uses. All other keys are ignored.
pub(super) trait ModelConfig {
    /// Returns true if a model without an output matrix uses its embedding as the output matrix.
    fn is_tied(&self) -> bool;

    /// Returns the configuration of a GLM, or `None` for another family.
    fn glm(&self) -> Option<&Glm> {
        None
    }

    /// Checks the shapes and returns the metadata entries that the architecture needs from this configuration.
    ///
    /// # Errors
    ///
    /// `Model` if the configuration contradicts the shapes.
    fn metadata(&self, shapes: &Shapes<'_>) -> Result<BTreeMap<String, String>>;
}

/// Reads a `config.json`.
///
/// # Errors
///
/// `File` if the file is not JSON. `Model` if no [family](super::ModelFamily) supports the file's model type, or if the family refuses the
/// configuration.
pub(super) fn read(path: &Path) -> Result<Box<dyn ModelConfig>> {
    parse(&read_small(path, MAX_CONFIG_BYTES)?).map_err(|e| e.at(path.display()))
}

fn parse(json: &[u8]) -> Result<Box<dyn ModelConfig>> {
    let config: Map<String, Value> = serde_json::from_slice(json).map_err(|e| no_config(&with_place(&e)).caused_by(e))?;
    let model_type = match config.get("model_type") {
        None | Some(Value::Null) => None,
        Some(Value::String(found)) => Some(found.as_str()),
        Some(_) => return Err(no_config("model_type must be a string")),
    };
    match FAMILIES.iter().find(|family| family.is_model_type(model_type)) {
        Some(family) => family.config(config),
        None => {
            let known: Vec<&str> = FAMILIES.iter().rev().map(|family| family.name()).collect();
            let found = model_type.unwrap_or_default();
            if let Some((_, what)) = REFUSED.iter().find(|(begin, _)| found.starts_with(begin)) {
                return Err(Error::model(format!("unsupported model_type {:?} in the configuration: {what}", short(found, 80))).hint(DENSE));
            }
            let (found, known) = (short(found, 80), known.join(" or "));
            Err(Error::model(format!("unsupported model_type {found:?} in the configuration, expected an {known} model"))
                .hint("wingbeat runs no other models and no hybrids of several architectures"))
        }
    }
}

/// Compares the configuration with the shapes of the tensors. Returns the metadata entries that the architecture needs from the configuration.
pub(super) fn metadata(config: &dyn ModelConfig, slots: &[(String, TensorSlot)]) -> Result<BTreeMap<String, String>> {
    config.metadata(&Shapes(slots))
}

/// Returns the error for a file that is not a configuration.
fn no_config(why: &str) -> Error {
    Error::file(format!("expected the configuration of a model as JSON: {}", short(why, 200))).hint("download config.json again")
}

/// The shapes of a checkpoint's tensors, by their canonical names.
pub(super) struct Shapes<'a>(&'a [(String, TensorSlot)]);

impl Shapes<'_> {
    fn of(&self, name: &str) -> Option<Vec<usize>> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, slot)| slot.shape())
    }

    /// Returns the numbers of rows and columns of a matrix, or `None` if the tensor is missing or not a matrix.
    fn matrix(&self, name: &str) -> Option<[usize; 2]> {
        self.of(name)?.try_into().ok()
    }

    fn n_layer(&self) -> Option<usize> {
        let layers: BTreeSet<usize> = self.0.iter().filter_map(|(name, _)| layer_of(name)).collect();
        Some(layers.len()).filter(|n| *n > 0)
    }
}

/// Checks that the configuration's value of `key` equals the size `found` in the tensors. If the value or the size is missing, the check
/// passes.
fn agree(key: &str, configured: Option<u64>, found: Option<usize>, place: &str) -> Result<()> {
    match (configured, found) {
        (Some(configured), Some(found)) if configured != found as u64 => {
            let message = format!("the configuration sets {key} to {configured}, but {place} has {found}");
            Err(Error::model(message).hint("this config.json belongs to another model: download config.json and the weights again"))
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
        for name in ["rwkv", "rwkv5", "rwkv6", "rwkv7", "RWKV7", "rwkv7_fla", "rwkv_v6", "rwkv-x070", "rwkv5-world", "rwkv_hybrid"] {
            parse(format!(r#"{{"model_type":"{name}"}}"#).as_bytes()).unwrap();
        }
        let others = ["llama", "qwen2", "arwkv7", "rwkv7_hybrid", "rwkv7llama", "mamba", ""];
        for name in others.into_iter().chain(["GLM", "glm4_5"]) {
            let text = refusal(&format!(r#"{{"model_type":"{name}"}}"#));
            assert!(
                text.contains(&format!("unsupported model_type \"{name}\" in the configuration, expected an RWKV or GLM model")),
                "{text}"
            );
        }
        for (name, what) in [
            ("glm4_moe", "GLM-4.5, 4.6 and 4.7 have experts"),
            ("glm4v_moe", "GLM-4.5V and GLM-4.6V have experts"),
            ("glm_moe_dsa", "GLM-5 has experts"),
            ("glm5_next", "GLM-5 has experts"),
            ("glm_ocr", "GLM-OCR reads only images"),
            ("deepseek_v3", "DeepSeek models have experts"),
            ("kimi_k2", "Kimi models have experts"),
        ] {
            let text = refusal(&format!(r#"{{"model_type":"{name}"}}"#));
            assert!(
                text.contains(&format!("unsupported model_type \"{name}\" in the configuration: {what}"))
                    && text.contains("GLM-4-32B-0414"),
                "{text}"
            );
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
