//! The family RWKV, versions 4 to 7.

use crate::error::Result;
use crate::weights::config::rwkv::{RwkvConfig, is_rwkv};
use crate::weights::config::{LAYER_NORM_EPS, ModelConfig};
use crate::weights::gguf::Header;
use crate::weights::gguf::rwkv::{ARCHITECTURES, RwkvMetadata};
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
        let eps = format!("{architecture}.attention.layer_norm_epsilon");
        if let Some(eps) = header.metadata.get(&eps).cloned() {
            header.metadata.insert(LAYER_NORM_EPS.to_string(), eps);
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
