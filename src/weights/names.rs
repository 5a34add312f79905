//! From the names in a file to the canonical names of the official `.pth`, and back to web-rwkv's for export.
//!
//! Knows how names are spelt, and of shapes only what the spelling depends on; `orient` decides what lies transposed.

use super::Slot;
use super::convert::Layout;
use super::located::Located;
use super::orient::{self, Facts};
use crate::error::{Error, Result};
use std::cmp::Ordering;

/// What wrappers (DDP, Lightning, DeepSpeed, Hugging Face) put before every name.
const PREFIXES: [&str; 6] = ["model.", "module.", "rwkv.", "_forward_module.", "_orig_mod.", "base_model."];

/// Canonical names with their tensors, in natural order, and whose layout the file has.
pub(super) fn canonical(mut tensors: Vec<Located>, facts: Facts) -> Result<(Vec<(String, Slot)>, Layout)> {
    strip_prefixes(&mut tensors);
    let renamed = from_web(&mut tensors);
    let oriented = orient::swapped(&tensors, renamed, &facts);
    let layout = if renamed || oriented.contains(&true) { Layout::WebRwkv } else { Layout::Official };
    let slots = tensors.into_iter().zip(oriented).map(|(located, swapped)| (located.name.clone(), Slot { located, swapped }));
    let mut slots: Vec<_> = slots.collect();
    slots.sort_by(|(a, _), (b, _)| natural(a, b));
    match slots.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(Error::file("two tensors have this name").at(format!("tensor {}", pair[0].0))),
        None => Ok((slots, layout)),
    }
}

/// Strips prefixes only if that uncovers RWKV's own names; otherwise nobody knows what they mean.
fn strip_prefixes(tensors: &mut [Located]) {
    let known = |name: &str| name == "emb.weight" || name.starts_with("blocks.0.");
    let bare = |name: &str| {
        let mut rest = name;
        while let Some(shorter) = PREFIXES.iter().find_map(|p| rest.strip_prefix(p)) {
            rest = shorter;
        }
        rest.to_string()
    };
    if !tensors.iter().any(|t| known(&t.name)) && tensors.iter().any(|t| known(&bare(&t.name))) {
        tensors.iter_mut().for_each(|t| t.name = bare(&t.name));
    }
}

/// Undoes web-rwkv's renames; whether there were any.
fn from_web(tensors: &mut [Located]) -> bool {
    let any = |end: &str| tensors.iter().any(|t| t.name.ends_with(end));
    let v6 = any(".att.time_mix_w1") || any(".att.time_mix_x");
    let v5 = !v6 && any(".att.ln_x.weight") && !any(".att.r_k");
    let mut renamed = false;
    for t in tensors {
        let mut name = t.name.clone();
        if v6 {
            name = name.replace(".time_mix_", ".time_maa_");
        }
        // Of v5, `time_first` [H] is the official, exponentiated bonus; [H, S] is a raw `time_faaaa` under another name.
        let per_channel = t.shape.len() >= 2 && t.shape[t.shape.len() - 1] > 1;
        if v6 || (v5 && per_channel) {
            name = swap_end(name, ".att.time_first", ".att.time_faaaa");
        }
        name = swap_end(swap_end(name, ".lora.0", ".lora_A"), ".lora.1", ".lora_B");
        renamed |= name != t.name;
        t.name = name;
    }
    renamed
}

/// web-rwkv's name of a canonical tensor.
pub(super) fn to_web(name: &str) -> String {
    let name = swap_end(swap_end(name.to_string(), ".lora_A", ".lora.0"), ".lora_B", ".lora.1");
    swap_end(name, ".att.time_faaaa", ".att.time_first").replace(".time_maa_", ".time_mix_").to_lowercase()
}

fn swap_end(name: String, end: &str, other: &str) -> String {
    match name.strip_suffix(end) {
        Some(stem) => format!("{stem}{other}"),
        None => name,
    }
}

/// Part by part between dots, numbers by value: block 9 before block 10.
fn natural(a: &str, b: &str) -> Ordering {
    let part = |s: &str| (s.parse::<u64>().ok(), s.to_string());
    a.split('.').map(part).cmp(b.split('.').map(part)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    fn tensor(name: &str, shape: &[usize]) -> Located {
        Located { name: name.into(), dtype: DType::F16, shape: shape.to_vec(), strides: vec![1; shape.len()], bytes: 0..0, scale: 1.0 }
    }

    fn names(list: &[(&str, &[usize])]) -> (Vec<String>, &'static str) {
        let tensors = list.iter().map(|(n, s)| tensor(n, s)).collect();
        let (slots, layout) = canonical(tensors, Facts::default()).unwrap();
        (slots.into_iter().map(|(n, _)| n).collect(), layout.name())
    }

    #[test]
    fn prefixes_go_only_if_that_helps() {
        let (found, _) =
            names(&[("module.model.emb.weight", &[9, 4]), ("module.model.blocks.0.ln1.weight", &[4]), ("head.weight", &[9, 4])]);
        assert_eq!(found, ["blocks.0.ln1.weight", "emb.weight", "head.weight"]);
        let (found, _) = names(&[("model.layers.0.attn.r_k", &[4]), ("model.embeddings.weight", &[9, 4])]);
        assert_eq!(found, ["model.embeddings.weight", "model.layers.0.attn.r_k"]);
        let twice = vec![tensor("model.emb.weight", &[1]), tensor("module.emb.weight", &[1])];
        assert!(canonical(twice, Facts::default()).err().unwrap().to_string().contains("tensor emb.weight: two"));
    }

    #[test]
    fn web_rwkv_v6_and_v5_names_return() {
        let (found, layout) = names(&[
            ("emb.weight", &[99, 16]),
            ("blocks.0.att.time_mix_x", &[1, 1, 16]),
            ("blocks.0.att.time_mix_w1", &[20, 16]),
            ("blocks.0.att.time_first", &[2, 8]),
            ("blocks.0.ffn.time_mix_k", &[1, 1, 16]),
        ]);
        let expected =
            ["blocks.0.att.time_faaaa", "blocks.0.att.time_maa_w1", "blocks.0.att.time_maa_x", "blocks.0.ffn.time_maa_k", "emb.weight"];
        assert_eq!((found.as_slice(), layout), (&expected.map(String::from)[..], "web-rwkv"));
        let v5 = |shape: &[usize]| {
            names(&[("blocks.0.att.ln_x.weight", &[16]), ("blocks.0.att.time_first", shape), ("blocks.0.att.time_mix_k", &[1, 1, 16])])
        };
        assert_eq!((v5(&[2, 8]).0[1].as_str(), v5(&[2, 8]).1), ("blocks.0.att.time_faaaa", "web-rwkv"));
        assert_eq!((v5(&[2]).0[1].as_str(), v5(&[2]).1), ("blocks.0.att.time_first", "official"));
        assert_eq!(v5(&[2, 8]).0[2], "blocks.0.att.time_mix_k");
        let v4 = names(&[("emb.weight", &[9, 4]), ("blocks.0.att.time_first", &[4]), ("blocks.0.att.time_mix_k", &[1, 1, 4])]);
        assert_eq!((v4.0[0].as_str(), v4.1), ("blocks.0.att.time_first", "official"));
        assert_eq!(to_web("blocks.3.att.key.lora_A"), "blocks.3.att.key.lora.0");
        assert_eq!(to_web("blocks.3.att.time_maa_w1"), "blocks.3.att.time_mix_w1");
    }

    #[test]
    fn block_10_follows_block_9() {
        let (found, _) = names(&[("blocks.10.a", &[1]), ("emb.weight", &[1, 1]), ("blocks.9.b", &[1]), ("blocks.0.z", &[1])]);
        assert_eq!(found, ["blocks.0.z", "blocks.9.b", "blocks.10.a", "emb.weight"]);
    }
}
