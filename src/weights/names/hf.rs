//! The names of RWKV-4 to 7 in `transformers`: whole words instead of the official abbreviations. Orientations are as in the official `.pth`.

use super::{block_and_part, outside, restore_row, web, with_part_renamed, zip};
use crate::weights::TensorSlot;
use crate::weights::layout::Layout;
use crate::weights::located::LocatedTensor;
use crate::weights::orient::{self, Facts};

/// Prefixes of names within a block, as pairs (prefix in `transformers`, official prefix).
const PARTS: [(&str, &str); 4] = [("attention.", "att."), ("feed_forward.", "ffn."), ("pre_ln.", "ln0."), ("pre_norm.", "ln0.")];
/// The last words of mixes' names, as pairs (word in `transformers`, official letter).
const MIXES: [(&str, &str); 4] = [("key", "k"), ("value", "v"), ("receptance", "r"), ("gate", "g")];

/// Returns true if the tensors have names of `transformers`. Prefixes that wrappers such as DDP add must already be stripped.
pub(super) fn recognises(tensors: &[LocatedTensor]) -> bool {
    let in_block = |name: &str| block_and_part(name).is_some_and(|(_, p)| p.starts_with(PARTS[0].0) || p.starts_with(PARTS[1].0));
    tensors.iter().any(|t| t.name == "embeddings.weight" || in_block(&t.name))
}

/// Returns the tensors under their canonical names. The orientation of low-rank pairs is detected by their shapes, because some re-uploads store the
/// pairs transposed, as Linear layers.
pub(super) fn slots(mut tensors: Vec<LocatedTensor>) -> Vec<TensorSlot> {
    tensors.iter_mut().for_each(|t| t.name = renamed(&t.name));
    let any = |end: &str| tensors.iter().any(|t| t.name.ends_with(end));
    let v6 = any(".att.time_maa_w1") || any(".att.time_mix_w1");
    let raw_bonus = any(".att.ln_x.weight") && !any(".att.r_k");
    for t in &mut tensors {
        // One converter of RWKV-6 uses RWKV-5's names for the mixes, but with RWKV-6's meaning: these mixes weight the previous token, not the
        // current token.
        if v6 {
            t.name = t.name.replace(".time_mix_", ".time_maa_");
        }
        if v6 || (raw_bonus && web::is_per_channel(t)) {
            t.name = web::swap_end(std::mem::take(&mut t.name), ".att.time_first", ".att.time_faaaa");
        }
        restore_row(t);
    }
    let swapped = orient::swapped(&tensors, false, &Facts { declared: Some(Layout::Official), ..Facts::default() });
    zip(tensors, swapped)
}

/// Converts a name in `transformers` to the official name.
fn renamed(name: &str) -> String {
    let Some((number, part)) = block_and_part(name) else { return outside(name) };
    let part = with_part_renamed(part, &PARTS);
    let part = match part.split_once(".time_mix_") {
        Some((block, word)) => {
            let letter = MIXES.iter().find(|(hf, _)| *hf == word).map_or(word, |(_, letter)| *letter);
            format!("{block}.time_mix_{letter}")
        }
        None => part,
    };
    format!("blocks.{number}.{part}")
}

#[cfg(test)]
mod tests {
    use super::super::tests::names;
    use super::*;

    #[test]
    fn words_become_letters() {
        assert_eq!(renamed("blocks.11.attention.time_mix_receptance"), "blocks.11.att.time_mix_r");
        assert_eq!(renamed("blocks.1.feed_forward.time_mix_key"), "blocks.1.ffn.time_mix_k");
        assert_eq!(renamed("blocks.1.attention.time_mix_w1"), "blocks.1.att.time_mix_w1");
        assert_eq!(renamed("blocks.0.pre_ln.bias"), "blocks.0.ln0.bias");
        assert_eq!(renamed("layers.0.pre_norm.weight"), "blocks.0.ln0.weight");
        assert_eq!(renamed("pre_ln.weight"), "blocks.0.ln0.weight");
        assert_eq!(renamed("blocks.x.attention.key.weight"), "blocks.x.attention.key.weight");
        assert_eq!(renamed("optimizer.step"), "optimizer.step");
    }

    #[test]
    fn mixes_of_v5_stay_and_those_of_v6_do_not() {
        let of = |more: &[(&str, &[usize])]| {
            let first: [(&str, &[usize]); 3] = [
                ("rwkv.blocks.0.attention.time_mix_key", &[1, 1, 16]),
                ("rwkv.blocks.0.attention.time_first", &[2, 8]),
                ("rwkv.blocks.0.feed_forward.time_mix_key", &[1, 1, 16]),
            ];
            names(&[&first, more].concat())
        };
        let (v6, style) = of(&[("rwkv.blocks.0.attention.time_mix_w1", &[16, 10])]);
        assert_eq!(
            v6,
            ["time_faaaa", "time_maa_k", "time_maa_w1"]
                .map(|n| format!("blocks.0.att.{n}"))
                .iter()
                .cloned()
                .chain(["blocks.0.ffn.time_maa_k".into()])
                .collect::<Vec<_>>()
        );
        assert_eq!(style, "hf");
        let (v5, _) = of(&[("rwkv.blocks.0.attention.ln_x.weight", &[16])]);
        assert_eq!(v5[1..], ["blocks.0.att.time_faaaa", "blocks.0.att.time_mix_k", "blocks.0.ffn.time_mix_k"]);
        let (v4, _) = of(&[]);
        assert_eq!(v4[0], "blocks.0.att.time_first");
    }
}
