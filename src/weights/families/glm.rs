//! The family GLM: ChatGLM3, GLM-4, GLM-4-0414, and GLM-4.7-Flash, which has experts.

use crate::error::Result;
use crate::weights::config::glm::{GlmConfig, is_glm};
use crate::weights::config::{ModelConfig, keys::ConfigKeys};
use crate::weights::gguf::{self, Header};
use crate::weights::located::LocatedTensor;
use crate::weights::names::{self, NameStyle};
use crate::weights::orient::Facts;
use crate::weights::{GLM, Glm, ModelFamily, TensorSlot};
use serde_json::{Map, Value};

/// The supported values of `general.architecture` in GGUF files.
const ARCHITECTURES: [&str; 3] = {
    let [chatglm, glm4] = gguf::glm::ARCHITECTURES;
    [chatglm, glm4, gguf::flash::ARCHITECTURE]
};

/// Reads the files of GLM models.
pub struct GlmFiles;

impl ModelFamily for GlmFiles {
    fn name(&self) -> &'static str {
        "GLM"
    }

    fn is_model_type(&self, model_type: Option<&str>) -> bool {
        model_type.is_some_and(is_glm)
    }

    fn config(&self, config: Map<String, Value>) -> Result<Box<dyn ModelConfig>> {
        Ok(Box::new(GlmConfig::read(ConfigKeys::of(&config))?))
    }

    fn gguf_architectures(&self) -> &'static [&'static str] {
        &ARCHITECTURES
    }

    fn gguf(&self, architecture: &str, header: &mut Header<'_>) -> Result<Vec<LocatedTensor>> {
        let (tensors, glm) = match architecture {
            gguf::flash::ARCHITECTURE => gguf::flash::read(header)?,
            other => gguf::glm::read(other, header)?,
        };
        header.metadata.insert(GLM.to_string(), glm.to_json());
        Ok(tensors)
    }

    fn recognises(&self, tensors: &[LocatedTensor], glm: Option<&Glm>) -> bool {
        glm.is_some() || names::glm::recognises(tensors)
    }

    fn slots(&self, tensors: Vec<LocatedTensor>, _facts: &Facts, glm: Option<&Glm>) -> Result<(Vec<TensorSlot>, NameStyle)> {
        names::glm::slots(tensors, glm)
    }
}
