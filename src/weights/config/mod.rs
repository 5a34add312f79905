//! Hugging Face's `config.json`, where there is one: whether this is a model that runs at all, and the numbers that no shape tells.
//!
//! Shapes decide; a configuration that contradicts them belongs to another model. A file here for each family.

mod glm;
mod keys;
mod rwkv;

use super::index::read_small;
use super::{Glm, Slot, layer_of};
use crate::error::{Error, Result, short};
use keys::Keys;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Real ones have a few kilobytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// Metadata: the ε of the group norm after the recurrence, where the model does not use the usual 64e-5.
pub const GROUP_NORM_EPS: &str = "wingbeat.group_norm_eps";
/// Metadata: the ε of all layer norms, usually 1e-5.
pub const LAYER_NORM_EPS: &str = "wingbeat.layer_norm_eps";

/// What we use of it; everything else is ignored.
#[derive(Debug)]
pub(super) enum Config {
    Rwkv(rwkv::Rwkv),
    Glm(glm::Said),
}

impl Config {
    /// Reads one and refuses models that are none of ours.
    pub fn read(path: &Path) -> Result<Config> {
        Self::parse(&read_small(path, MAX_CONFIG_BYTES)?).map_err(|e| e.at(path.display()))
    }

    fn parse(json: &[u8]) -> Result<Config> {
        let config: Map<String, Value> = serde_json::from_slice(json).map_err(|e| no_config(&e).caused_by(e))?;
        match config.get("model_type") {
            None | Some(Value::Null) => rwkv::Rwkv::read(config).map(Config::Rwkv),
            Some(Value::String(found)) if rwkv::is_rwkv(found) => rwkv::Rwkv::read(config).map(Config::Rwkv),
            Some(Value::String(found)) if glm::is_glm(found) => glm::Said::read(Keys::of(&config)).map(Config::Glm),
            Some(Value::String(found)) => {
                Err(Error::model(format!("expected an RWKV or GLM model, found the model_type {:?}", short(found, 80)))
                    .hint("other models, hybrids, and GLM with vision or with experts do not run"))
            }
            Some(_) => Err(no_config(&"expected a text as model_type")),
        }
    }

    /// Whether the output matrix is the embedding, where the file has none of its own.
    pub fn is_tied(&self) -> bool {
        match self {
            Config::Rwkv(rwkv) => rwkv.is_tied(),
            Config::Glm(glm) => glm.is_tied,
        }
    }

    /// What it says of a GLM, if it is one's.
    pub fn glm(&self) -> Option<&Glm> {
        match self {
            Config::Rwkv(_) => None,
            Config::Glm(said) => Some(&said.glm),
        }
    }

    /// The metadata that an architecture may need, but for those of a GLM. What contradicts the shapes is refused.
    pub fn metadata(&self, slots: &[(String, Slot)]) -> Result<BTreeMap<String, String>> {
        let shapes = Shapes(slots);
        match self {
            Config::Rwkv(rwkv) => rwkv.metadata(&shapes),
            Config::Glm(said) => said.check(&shapes).map(|()| BTreeMap::new()),
        }
    }
}

fn no_config(why: &dyn std::fmt::Display) -> Error {
    Error::file(format!("expected the configuration of a model as JSON: {}", short(&why.to_string(), 200)))
}

/// The shapes of a checkpoint's canonical tensors.
struct Shapes<'a>(&'a [(String, Slot)]);

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
        Config::parse(json.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn other_models_are_refused_by_name() {
        for name in ["rwkv", "rwkv5", "rwkv6", "rwkv7", "RWKV7", "rwkv7_fla", "rwkv_v6", "rwkv-x070", "rwkv5-world"] {
            Config::parse(format!(r#"{{"model_type":"{name}"}}"#).as_bytes()).unwrap();
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
        assert!(Config::parse(b"{}").unwrap().metadata(&[]).unwrap().is_empty());
    }
}
