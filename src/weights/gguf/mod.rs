//! A GGUF file of llama.cpp: its own names and orientations become the canonical ones.
//!
//! Glue between `header` and a file for each family. Nothing is decoded here: tensors stay in the file, blocks and all.

mod glm;
mod header;
mod names;
mod reader;
mod rwkv;
#[cfg(test)]
mod tests;

use super::GLM;
use super::config::LAYER_NORM_EPS;
use super::located::Located;
use crate::error::{Error, Result, short};
use header::Header;
use std::collections::BTreeMap;

/// All that are read, for messages.
const ARCHITECTURES: &str = "rwkv6, rwkv7, chatglm or glm4";

/// Lists a file's tensors by canonical name and in the canonical orientation, and its metadata but for arrays and long texts.
pub(super) fn parse(file: &[u8]) -> Result<(Vec<Located>, BTreeMap<String, String>)> {
    let mut header = Header::read(file)?;
    if let Some(parts) = header.metadata.get("split.count").filter(|n| !["0", "1"].contains(&n.as_str())) {
        return Err(
            Error::file(format!("expected a whole GGUF file, found one of {} parts", short(parts, 64))).hint("join the parts first")
        );
    }
    let Some(architecture) = header.metadata.get("general.architecture").cloned() else {
        return Err(Error::file("expected general.architecture in the metadata, found none"));
    };
    if let Some(model) = rwkv::Model::of(&architecture, &header.metadata)? {
        let mut tensors = Vec::new();
        for listed in header.tensors()? {
            tensors.extend(model.canonical(&listed).map_err(|e| e.at(format!("tensor {}", listed.name)))?);
        }
        let eps = format!("{}.attention.layer_norm_epsilon", model.architecture());
        if let Some(eps) = header.metadata.get(&eps).cloned() {
            header.metadata.insert(LAYER_NORM_EPS.to_string(), eps);
        }
        // What was rescaled is not any more: a copy of this file must not say so.
        header.metadata.retain(|key, _| !key.ends_with(".rescale_every_n_layers"));
        return Ok((tensors, header.metadata));
    }
    if !glm::ARCHITECTURES.contains(&architecture.as_str()) {
        return Err(Error::model(format!("expected a GGUF of the architecture {ARCHITECTURES}, found {}", short(&architecture, 64))));
    }
    let (tensors, glm) = glm::read(&architecture, &header)?;
    header.metadata.insert(GLM.to_string(), glm.to_json());
    Ok((tensors, header.metadata))
}
