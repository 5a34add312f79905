//! A GGUF file of llama.cpp: its own names and orientations become the canonical ones.
//!
//! Reads the header; each [family](super::Family) has its map from names and keys in a file here. Nothing is decoded: tensors stay in
//! the file, blocks and all.

pub(super) mod glm;
mod header;
mod names;
mod reader;
pub(super) mod rwkv;
#[cfg(test)]
mod tests;

pub(super) use header::Header;

use super::FAMILIES;
use super::located::Located;
use crate::error::{Error, Result, short};
use std::collections::BTreeMap;

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
    let Some(family) = FAMILIES.iter().find(|family| family.gguf_architectures().contains(&architecture.as_str())) else {
        let known: Vec<&str> = FAMILIES.iter().rev().flat_map(|family| family.gguf_architectures()).copied().collect();
        let (last, others) = known.split_last().expect("there are families");
        let text = format!("expected a GGUF of the architecture {} or {last}, found {}", others.join(", "), short(&architecture, 64));
        return Err(Error::model(text));
    };
    let tensors = family.gguf(&architecture, &mut header)?;
    Ok((tensors, header.metadata))
}
