//! A GGUF file of llama.cpp: its own names and orientations become those of the official `.pth`.
//!
//! Glue between `header` and `names`. Nothing is decoded here: tensors stay in the file, blocks and all.

mod header;
mod names;
mod reader;
#[cfg(test)]
mod tests;

use super::config::LAYER_NORM_EPS;
use super::located::Located;
use crate::error::{Error, Result};
use header::Header;
use names::Model;
use std::collections::BTreeMap;

/// Lists a file's tensors by canonical name and in the official orientation, and its metadata but for arrays and long texts.
pub(super) fn parse(file: &[u8]) -> Result<(Vec<Located>, BTreeMap<String, String>)> {
    let mut header = Header::read(file)?;
    if let Some(parts) = header.metadata.get("split.count").filter(|n| !["0", "1"].contains(&n.as_str())) {
        return Err(
            Error::file(format!("expected a whole GGUF file, found one of {} parts", header::short(parts))).hint("join the parts first")
        );
    }
    let model = Model::of(&header.metadata)?;
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
    Ok((tensors, header.metadata))
}
