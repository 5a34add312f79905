//! Reads and writes GGUF files of llama.cpp. Tensors receive their canonical names and orientations.
//!
//! Each [family](super::ModelFamily) has a file here, which maps GGUF names to canonical names and GGUF keys to canonical metadata. Only the header
//! is read: tensors stay in the file, in its format. `token_lists` reads the lists of the vocabulary when they are needed. `write` goes the other
//! way, with the same tables of names.

mod blocks;
pub(super) mod flash;
pub(super) mod glm;
mod header;
pub(super) mod model;
mod names;
mod reader;
pub(super) mod rwkv;
#[cfg(test)]
mod tests;
mod token_lists;
mod types;
mod value;
pub(super) mod write;

pub(super) use header::Header;
pub use token_lists::TokenLists;
pub use value::GgufValue;
pub use write::GgufContent;

use super::FAMILIES;
use super::config::DENSE;
use super::located::LocatedTensor;
use crate::error::{Error, Result, short};
use std::collections::BTreeMap;

/// Returns how many bytes at the beginning of a file must be in memory. `head` has the bytes so far. If the header continues after these bytes,
/// returns four times their number, at least 1 MiB, because only a complete header shows its own length. Otherwise returns their number.
pub(super) fn header_bytes(head: &[u8], size: u64) -> u64 {
    let is_cut = |e: &Error| head.len() <= reader::MAX_HEADER_BYTES && e.hint.as_deref() == Some(reader::AGAIN);
    match Header::read(head, size).and_then(|header| header.tensors().map(|_| ())) {
        Err(e) if is_cut(&e) => (head.len() as u64 * 4).max(1 << 20),
        _ => head.len() as u64,
    }
}

/// Returns a file's tensors, with canonical names and in the canonical orientation, and its metadata. Arrays and long texts of the metadata are
/// left out. `file` has all bytes of the file, or its header. `size` is the number of bytes of the file.
///
/// # Errors
///
/// `File` if the file is truncated, damaged, hostile, or only a part of a split file. `Model` if no family supports the file's architecture.
pub(super) fn parse(file: &[u8], size: u64) -> Result<(Vec<LocatedTensor>, BTreeMap<String, String>)> {
    let mut header = Header::read(file, size)?;
    if let Some(parts) = header.metadata.get("split.count").filter(|n| !["0", "1"].contains(&n.as_str())) {
        return Err(Error::file(format!("expected a whole GGUF file, found one of {} parts", short(parts, 64)))
            .hint("merge the parts with llama-gguf-split"));
    }
    let Some(architecture) = header.metadata.get("general.architecture").cloned() else {
        return Err(Error::file("the metadata of the GGUF file have no general.architecture"));
    };
    let Some(family) = FAMILIES.iter().find(|family| family.gguf_architectures().contains(&architecture.as_str())) else {
        let known: Vec<&str> = FAMILIES.iter().rev().flat_map(|family| family.gguf_architectures()).copied().collect();
        let (last, others) = known.split_last().expect("there are families");
        let text =
            format!("unsupported architecture {} of this GGUF file, expected {} or {last}", short(&architecture, 64), others.join(", "));
        let is_relative = ["glm", "deepseek", "kimi"].iter().any(|begin| architecture.starts_with(begin));
        return Err(Error::model(text).hint(if is_relative { DENSE } else { "wingbeat runs RWKV and GLM-4 models" }));
    };
    let tensors = family.gguf(&architecture, &mut header)?;
    Ok((tensors, header.metadata))
}

/// Returns another GGUF name under which a file of the same model may store the tensor `name`, with the same inputs. One fused tensor may hold
/// queries, keys and values, and another the experts' gate and up matrices. The embedding may also be the output matrix. Returns `None` for other
/// tensors.
pub(crate) fn shared_name(name: &str) -> Option<String> {
    if let Some((block, "q.weight" | "k.weight" | "v.weight")) = name.rsplit_once(".attn_") {
        return Some(format!("{block}.attn_qkv.weight"));
    }
    if let Some((block, "gate_exps.weight" | "up_exps.weight")) = name.rsplit_once(".ffn_") {
        return Some(format!("{block}.ffn_gate_up_exps.weight"));
    }
    (name == "output.weight").then(|| "token_embd.weight".to_string())
}
