//! The names in web-rwkv's files. The mixes and the bonus of RWKV-6 have the names of RWKV-5. The matrices A and B of a LoRA adapter are called
//! `lora.0` and `lora.1`.

use crate::weights::located::LocatedTensor;

/// Replaces web-rwkv's names by official names. Returns true if any name changed.
pub(super) fn to_official(tensors: &mut [LocatedTensor]) -> bool {
    let any = |end: &str| tensors.iter().any(|t| t.name.ends_with(end));
    let v6 = any(".att.time_mix_w1") || any(".att.time_mix_x");
    let v5 = !v6 && any(".att.ln_x.weight") && !any(".att.r_k");
    let mut renamed = false;
    for t in tensors {
        let mut name = t.name.clone();
        if v6 {
            name = name.replace(".time_mix_", ".time_maa_");
        }
        if v6 || (v5 && is_per_channel(t)) {
            name = swap_end(name, ".att.time_first", ".att.time_faaaa");
        }
        name = swap_end(swap_end(name, ".lora.0", ".lora_A"), ".lora.1", ".lora_B");
        renamed |= name != t.name;
        t.name = name;
    }
    renamed
}

/// Returns true if the bonus has one element per channel. RWKV-5's official `time_first` has one element per head, the logarithm of the bonus.
/// web-rwkv's `time_first` has one element per channel, the bonus itself. The official name of that tensor is `time_faaaa`.
pub(super) fn is_per_channel(bonus: &LocatedTensor) -> bool {
    bonus.shape.len() >= 2 && bonus.shape.last().is_some_and(|&size| size > 1)
}

/// Converts a canonical name to web-rwkv's name.
pub(in crate::weights) fn to_web(name: &str) -> String {
    let name = swap_end(swap_end(name.to_string(), ".lora_A", ".lora.0"), ".lora_B", ".lora.1");
    swap_end(name, ".att.time_faaaa", ".att.time_first").replace(".time_maa_", ".time_mix_").to_lowercase()
}

/// Replaces the ending `end` of a name by `other`. A name without this ending stays unchanged.
pub(super) fn swap_end(name: String, end: &str, other: &str) -> String {
    match name.strip_suffix(end) {
        Some(stem) => format!("{stem}{other}"),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::names;
    use super::*;

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
}
