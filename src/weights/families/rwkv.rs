//! The family RWKV: versions 4 to 7, and their relatives in the body of Qwen2.

use crate::error::Result;
use crate::weights::config::rwkv::{RwkvConfig, is_rwkv};
use crate::weights::config::{HEAD_SIZE, LAYER_NORM_EPS, ModelConfig, STOP_IDS};
use crate::weights::gguf::Header;
use crate::weights::gguf::rwkv::{ARCHITECTURES, IN_QWEN, RwkvMetadata};
use crate::weights::located::LocatedTensor;
use crate::weights::names::{self, NameStyle};
use crate::weights::orient::Facts;
use crate::weights::{Glm, ModelFamily, TensorSlot};
use serde_json::{Map, Value};

/// Reads the files of RWKV models.
pub struct RwkvFiles;

impl ModelFamily for RwkvFiles {
    fn name(&self) -> &'static str {
        "RWKV"
    }

    /// Also accepts a configuration without `model_type`, because some ports of RWKV leave out this key.
    fn is_model_type(&self, model_type: Option<&str>) -> bool {
        model_type.is_none_or(is_rwkv)
    }

    fn config(&self, config: Map<String, Value>) -> Result<Box<dyn ModelConfig>> {
        Ok(Box::new(RwkvConfig::read(config)?))
    }

    fn gguf_architectures(&self) -> &'static [&'static str] {
        ARCHITECTURES
    }

    fn gguf(&self, architecture: &str, header: &mut Header<'_>) -> Result<Vec<LocatedTensor>> {
        let model = RwkvMetadata::of(architecture, &header.metadata)?;
        let mut tensors = Vec::new();
        for listed in header.tensors()? {
            tensors.extend(model.canonical(&listed).map_err(|e| e.at(format!("tensor {}", listed.name)))?);
        }
        let is_in_qwen = IN_QWEN.contains(&architecture);
        let eps = if is_in_qwen { "attention.layer_norm_rms_epsilon" } else { "attention.layer_norm_epsilon" };
        let mut copied = vec![(eps, LAYER_NORM_EPS)];
        if is_in_qwen {
            copied.push(("wkv.head_size", HEAD_SIZE));
            let id = |name: &&str| header.metadata.get(&format!("tokenizer.ggml.{name}_token_id")).cloned();
            let mut ids: Vec<String> = ["eos", "eot", "eom"].iter().filter_map(id).collect();
            ids.dedup();
            header.metadata.insert(STOP_IDS.to_string(), ids.join(","));
        }
        for (key, ours) in copied {
            if let Some(value) = header.metadata.get(&format!("{architecture}.{key}")).cloned() {
                header.metadata.insert(ours.to_string(), value);
            }
        }
        // Reading undoes the rescaling, a division of some matrices by powers of two. So converted copies of this file must not have the key.
        header.metadata.retain(|key, _| !key.ends_with(".rescale_every_n_layers"));
        Ok(tensors)
    }

    /// Accepts every checkpoint that is not a GLM.
    fn recognises(&self, _tensors: &[LocatedTensor], glm: Option<&Glm>) -> bool {
        glm.is_none()
    }

    fn slots(&self, tensors: Vec<LocatedTensor>, facts: &Facts, _glm: Option<&Glm>) -> Result<(Vec<TensorSlot>, NameStyle)> {
        names::rwkv(tensors, facts)
    }
}
