//! Converts a file's names to canonical names: as in RWKV's official `.pth` or, for a GLM, as in `transformers`. Also converts canonical names to
//! web-rwkv's names for export.
//!
//! This module knows names, and looks at a shape only if a name depends on it. `orient` decides which tensors are stored transposed. An unknown name
//! stays unchanged.

mod decoder;
mod fla;
mod flash;
pub(super) mod glm;
mod hf;
mod hybrid;
mod web;

pub(super) use decoder::to_decoder;
pub(super) use web::to_web;

use super::located::LocatedTensor;
use super::orient::{self, Facts};
use super::{FAMILIES, Glm, TensorSlot};
use crate::error::{Error, Result};
use std::cmp::Ordering;

/// The style of names and orientations in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameStyle {
    /// Names and orientations of the original `.pth`.
    Official,
    /// Names and orientations of web-rwkv's `.st`: some names differ, and low-rank matrices are stored transposed.
    WebRwkv,
    /// Names of the library `transformers`, made of whole words, and the orientations of the original `.pth`.
    Hf,
    /// Names of RWKV-7 in Hugging Face folders of 2026, whose decoder layers have the part `linear_attn`.
    Decoder,
    /// Names of RWKV-7 in flash-linear-attention, where a low-rank pair is two Linear layers.
    Fla,
    /// Names of ARWKV-7 and QRWKV-6 in their Hugging Face folders.
    Hybrid,
    /// Names of ChatGLM's own code, where q, k and v are one fused tensor.
    ChatGlm,
}

impl NameStyle {
    /// Returns the name in reports, such as `official`.
    pub fn name(self) -> &'static str {
        match self {
            NameStyle::Official => "official",
            NameStyle::WebRwkv => "web-rwkv",
            NameStyle::Hf => "hf",
            NameStyle::Decoder => "decoder",
            NameStyle::Fla => "fla",
            NameStyle::Hybrid => "hybrid",
            NameStyle::ChatGlm => "chatglm",
        }
    }
}

/// The prefixes that wrappers (DDP, Lightning, DeepSpeed, PEFT, Hugging Face, EmbeddingRWKV) add to every name.
const PREFIXES: [&str; 8] = ["model.", "module.", "rwkv.", "rwkv7.", "reranker.", "_forward_module.", "_orig_mod.", "base_model."];
/// RWKV's files are recognised by these prefixes of names within a block. `mlp.` is missing, because other models also have it.
const BLOCK_PARTS: [&str; 6] = ["att.", "ffn.", "attention.", "feed_forward.", "attn.", "linear_attn."];
/// The names of the embedding and of the output matrix, which are one tensor in a tied model.
const TIED: [(&str, &str); 2] = [("emb.weight", "head.weight"), ("model.embed_tokens.weight", "lm_head.weight")];
/// The vectors of RWKV-7 that the official file stores with the shape `[1, 1, C]`. C is the width of the model.
const ROWS: [&str; 11] = ["x_r", "x_w", "x_k", "x_v", "x_a", "x_g", "w0", "a0", "v0", "k_k", "k_a"];

/// Returns the canonical names with their tensors, in natural order, and the style of the file. In a model with tied embeddings, the embedding
/// is also the output matrix. `glm` is the configuration of a GLM, or `None` if the checkpoint has no such configuration.
///
/// # Errors
///
/// `File` if two tensors have the same canonical name. Also the errors of [`ModelFamily::slots`](super::ModelFamily::slots).
pub(super) fn canonical(
    tensors: Vec<LocatedTensor>,
    facts: &Facts,
    is_tied: bool,
    glm: Option<&Glm>,
) -> Result<(Vec<(String, TensorSlot)>, NameStyle)> {
    let family = FAMILIES.iter().find(|family| family.recognises(&tensors, glm)).expect("the last family accepts any names");
    let (slots, style) = family.slots(tensors, facts, glm)?;
    let mut slots: Vec<_> = slots.into_iter().map(|slot| (slot.located.name.clone(), slot)).collect();
    for (emb, head) in TIED {
        if is_tied && !slots.iter().any(|(name, _)| name == head) {
            let emb = slots.iter().find(|(name, _)| name == emb).map(|(_, slot)| slot.clone());
            slots.extend(emb.map(|slot| (head.to_string(), slot)));
        }
    }
    slots.sort_by(|(a, _), (b, _)| natural(a, b));
    match slots.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(Error::file("two tensors have this name").at(format!("tensor {}", pair[0].0))),
        None => Ok((slots, style)),
    }
}

/// Returns the metadata that follow from the style of names in a file.
pub(super) fn metadata(slots: &[(String, TensorSlot)], style: NameStyle) -> Option<(String, String)> {
    if style == NameStyle::Hybrid { hybrid::metadata(slots) } else { None }
}

/// Returns the tensors that an adapter of an RWKV model changes, as [`rwkv`] does. An adapter may have too few names to show their style. If the
/// model lacks a tensor, other styles are tried, and the first style with which the model has all tensors is used. `has` returns whether the model
/// has a tensor.
pub(super) fn rwkv_adapter(tensors: Vec<LocatedTensor>, facts: &Facts, has: &dyn Fn(&str) -> bool) -> Result<Vec<TensorSlot>> {
    let are_known = |slots: &[TensorSlot]| slots.iter().all(|slot| has(&slot.located.name));
    let (found, _) = rwkv(tensors.clone(), facts)?;
    if are_known(&found) {
        return Ok(found);
    }
    let mut stripped = tensors;
    stripped.iter_mut().for_each(|t| t.name = bare(&t.name, &[]).to_string());
    type Style = fn(Vec<LocatedTensor>) -> Result<Vec<TensorSlot>>;
    let styles: [Style; 3] = [|t| Ok(decoder::slots(t)), fla::slots, |t| Ok(hf::slots(t))];
    let others = styles.into_iter().filter_map(|style| style(stripped.clone()).ok());
    Ok(others.into_iter().find(|slots| are_known(slots)).unwrap_or(found))
}

/// Returns the tensors of an RWKV model with canonical names and orientations, and the style of the file.
pub(super) fn rwkv(mut tensors: Vec<LocatedTensor>, facts: &Facts) -> Result<(Vec<TensorSlot>, NameStyle)> {
    if hybrid::recognises(&tensors) {
        return Ok((hybrid::slots(tensors), NameStyle::Hybrid));
    }
    strip_prefixes(&mut tensors);
    if decoder::recognises(&tensors) {
        return Ok((decoder::slots(tensors), NameStyle::Decoder));
    }
    if fla::recognises(&tensors) {
        return Ok((fla::slots(tensors)?, NameStyle::Fla));
    }
    if hf::recognises(&tensors) {
        return Ok((hf::slots(tensors), NameStyle::Hf));
    }
    let renamed = web::to_official(&mut tensors);
    for t in &mut tensors {
        // Some Hugging Face folders use the official names within blocks. Their vectors have the shape [C], and the head may be called
        // lm_head.weight.
        restore_row(t);
        if t.name == "lm_head.weight" {
            t.name = "head.weight".into();
        }
        // In some rerankers of EmbeddingRWKV, `token.weight` is the embedding of the only token.
        if t.name == "token.weight" {
            t.name = "emb.weight".into();
        }
    }
    let swapped = orient::swapped(&tensors, renamed, facts);
    let style = if renamed || swapped.contains(&true) { NameStyle::WebRwkv } else { NameStyle::Official };
    Ok((zip(tensors, swapped), style))
}

fn zip(tensors: Vec<LocatedTensor>, swapped: Vec<bool>) -> Vec<TensorSlot> {
    tensors.into_iter().zip(swapped).map(|(located, swapped)| TensorSlot { located, swapped }).collect()
}

/// Converts a name to the official name. `parts` are pairs (prefix within a layer, official prefix), of which the first match is used. Prefixes that
/// wrappers such as DDP add must already be stripped. An unknown name stays unchanged.
fn official(name: &str, parts: &[(&str, &str)]) -> String {
    let Some((number, part)) = block_and_part(name) else { return outside(name) };
    format!("blocks.{number}.{}", with_part_renamed(part, parts))
}

/// Renames tensors with [`official`]. Their values and orientations must already be official.
fn renamed(mut tensors: Vec<LocatedTensor>, parts: &[(&str, &str)]) -> Vec<TensorSlot> {
    for t in &mut tensors {
        t.name = official(&t.name, parts);
        restore_row(t);
    }
    let swapped = vec![false; tensors.len()];
    zip(tensors, swapped)
}

/// Strips wrappers' prefixes if some stripped names are names of RWKV. Otherwise, all names stay unchanged.
fn strip_prefixes(tensors: &mut [LocatedTensor]) {
    let known = |name: &str| {
        let of_block = |(_, part): (&str, &str)| name.starts_with("blocks.") || BLOCK_PARTS.iter().any(|p| part.starts_with(p));
        ["emb.weight", "embeddings.weight"].contains(&name) || block_and_part(name).is_some_and(of_block)
    };
    if !tensors.iter().any(|t| known(&t.name)) && tensors.iter().any(|t| known(bare(&t.name, &[]))) {
        tensors.iter_mut().for_each(|t| t.name = bare(&t.name, &[]).to_string());
    }
}

/// Returns a name without wrappers' prefixes and without the prefixes `more`.
fn bare<'a>(mut name: &'a str, more: &[&str]) -> &'a str {
    while let Some(shorter) = PREFIXES.iter().chain(more).find_map(|p| name.strip_prefix(*p)) {
        name = shorter;
    }
    name
}

/// Splits a name such as `blocks.3.att.key.weight` or `layers.3.…` into the block's number and the name within the block. Returns `None` if the
/// name has another form.
fn block_and_part(name: &str) -> Option<(&str, &str)> {
    let rest = name.strip_prefix("blocks.").or_else(|| name.strip_prefix("layers."))?;
    rest.split_once('.').filter(|(number, _)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Replaces the prefix of `part`, a name within a layer. `prefixes` are pairs (prefix in the file, official prefix), of which the first match
/// is used. Without a match, the name stays unchanged.
fn with_part_renamed(part: &str, prefixes: &[(&str, &str)]) -> String {
    let renamed = prefixes.iter().find_map(|(theirs, ours)| Some(format!("{ours}{}", part.strip_prefix(theirs)?)));
    renamed.unwrap_or_else(|| part.to_string())
}

/// Converts Hugging Face's name of a tensor outside of blocks to the official name. An unknown name stays unchanged.
fn outside(name: &str) -> String {
    let name = match name {
        "embeddings.weight" | "embed_tokens.weight" => "emb.weight",
        "lm_head.weight" => "head.weight",
        "norm.weight" => "ln_out.weight",
        "norm.bias" => "ln_out.bias",
        other => other,
    };
    match ["pre_ln.", "pre_norm.", "embedding_norm."].iter().find_map(|p| name.strip_prefix(*p)) {
        Some(end) => format!("blocks.0.ln0.{end}"),
        None => name.to_string(),
    }
}

/// Reshapes a vector of C elements in an RWKV-7 model from `[C]` to its official shape `[1, 1, C]`. Other tensors stay unchanged.
fn restore_row(t: &mut LocatedTensor) {
    let is_row = t.name.rsplit('.').next().is_some_and(|last| ROWS.contains(&last));
    if let (true, &[width], &[stride]) = (is_row, &t.shape[..], &t.strides[..]) {
        (t.shape, t.strides) = (vec![1, 1, width], vec![width, width, stride]);
    }
}

/// Compares two names part by part, where dots separate the parts. Numbers are compared by value: block 9 comes before block 10.
fn natural(a: &str, b: &str) -> Ordering {
    fn part(text: &str) -> (Option<u64>, &str) {
        (text.parse().ok(), text)
    }
    // A sort compares many names with a common beginning, which is skipped.
    let n_equal = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let from = a.as_bytes()[..n_equal].iter().rposition(|&byte| byte == b'.').map_or(0, |dot| dot + 1);
    a[from..].split('.').map(part).cmp(b[from..].split('.').map(part)).then_with(|| a.cmp(b))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::tensor::DType;

    pub(super) fn tensor(name: &str, shape: &[usize]) -> LocatedTensor {
        LocatedTensor {
            name: name.into(),
            dtype: DType::F16,
            shape: shape.to_vec(),
            strides: vec![1; shape.len()],
            bytes: 0..0,
            file: 0,
            scale: 1.0,
            coding: None,
        }
    }

    pub(super) fn names(list: &[(&str, &[usize])]) -> (Vec<String>, &'static str) {
        let tensors = list.iter().map(|(n, s)| tensor(n, s)).collect();
        let (slots, layout) = canonical(tensors, &Facts::default(), false, None).unwrap();
        (slots.into_iter().map(|(n, _)| n).collect(), layout.name())
    }

    #[test]
    fn prefixes_are_stripped_only_if_rwkv_names_remain() {
        let (found, _) =
            names(&[("module.model.emb.weight", &[9, 4]), ("module.model.blocks.0.ln1.weight", &[4]), ("head.weight", &[9, 4])]);
        assert_eq!(found, ["blocks.0.ln1.weight", "emb.weight", "head.weight"]);
        let (found, _) = names(&[("base_model.model.model.blocks.3.ln1.weight", &[4])]);
        assert_eq!(found, ["blocks.3.ln1.weight"]);
        let (found, style) = names(&[("model.layers.0.mlp.gate.weight", &[4]), ("model.embed_tokens.weight", &[9, 4])]);
        assert_eq!((found, style), (vec!["model.embed_tokens.weight".into(), "model.layers.0.mlp.gate.weight".into()], "official"));
        let twice = vec![tensor("model.emb.weight", &[1]), tensor("module.emb.weight", &[1])];
        assert!(canonical(twice, &Facts::default(), false, None).err().unwrap().to_string().contains("tensor emb.weight: two"));
    }

    #[test]
    fn block_10_follows_block_9() {
        let (found, _) = names(&[("blocks.10.a", &[1]), ("emb.weight", &[1, 1]), ("blocks.9.b", &[1]), ("blocks.0.z", &[1])]);
        assert_eq!(found, ["blocks.0.z", "blocks.9.b", "blocks.10.a", "emb.weight"]);
    }

    #[test]
    fn the_order_is_that_of_a_comparison_of_all_parts() {
        let slow = |a: &str, b: &str| {
            let parts = |s: &str| s.split('.').map(|part| (part.parse::<u64>().ok(), part.to_string())).collect::<Vec<_>>();
            parts(a).cmp(&parts(b)).then_with(|| a.cmp(b))
        };
        let names =
            ["", ".", "a", "a.", "a.1", "a.10", "a.9", "a.09", "a.1b", "ab", "a.é", "a.è.1", "1", "10.a", "1.b", "9", "a.9.x", "a.9x"];
        for a in names {
            for b in names {
                assert_eq!(natural(a, b), slow(a, b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_tied_model_has_its_embedding_as_head() {
        let head = |list: &[&str], is_tied| {
            let tensors = list.iter().enumerate().map(|(i, n)| LocatedTensor { file: i, ..tensor(n, &[9, 4]) }).collect();
            let (slots, _) = canonical(tensors, &Facts::default(), is_tied, None).unwrap();
            slots.iter().find(|(n, _)| n == "head.weight").map(|(_, slot)| slot.located.file)
        };
        assert_eq!(head(&["model.layers.0.attn.r_k", "model.embeddings.weight"], true), Some(1));
        assert_eq!(head(&["model.embeddings.weight", "lm_head.weight"], true), Some(1));
        assert_eq!(head(&["model.embeddings.weight"], false), None);
    }
}
